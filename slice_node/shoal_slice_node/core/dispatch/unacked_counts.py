"""Tells how much of a queue is unacked: for descriptions.

That is what consumers have, and what rests: it was nacked with a delay that is not over, or it came back and how often
it was delivered is not noted yet, or its copy is not at the dead-letter key. Both count in what a key gives at most
(`Stream.messages_allowed`), so they count here, for a queue as for each of its bindings.
"""

from __future__ import annotations

from shoal_slice_node.core.dispatch.feeds import Feed


def unacked(feed: Feed) -> int:
    """Returns how many messages of the queue are unacked; for a moment, gaps that sessions are told count, too, and
    what one that has left had does not. O(sessions that consume it)."""
    consumers = [*feed.attachments.values(), *feed.pullers.values()]
    return sum([one.messages for one in consumers]) + feed.resting_messages


def unacked_of_key(feed: Feed, key_id: bytes) -> tuple[int, bool]:
    """Returns how many messages of a key are unacked, and whether only the lowest one is given until some are acked, or
    come back."""
    stream = feed.streams.get(key_id)
    return (0, False) if stream is None else (stream.out_messages, stream.messages_allowed <= 0)
