"""Finds the queues in memory that a frame of acks names: it is answered once all acks of these are durable, whatever
else waits.

Belongs here: which queues. Not here: taking the acks (settling), waiting (ack_flush).
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import ACK_FEEDS_NAMED_MAX
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.read.unacked import parts_named


def named_feeds(node: Node, session: Session, acks: Sequence[wire.Ack]) -> list[Feed] | None:
    """Returns the feeds of the queues that acks name, after these were taken: a queue without a feed has no ack that is
    not durable. None: too many are named, or a handle is not known any more, or the tables may not be looked at: then
    the frame waits for all acks that came before."""
    if not node.commit.whole:
        return None
    found: dict[Feed, None] = {}  # One queue may be named for each of its keys.
    for ack in acks:
        if len(ack.handles) + len(ack.queues) > ACK_FEEDS_NAMED_MAX:
            return None
        for handle in ack.handles:
            attachment = session.attachments.get(handle)
            if attachment is None:
                return None
            found[attachment.feed] = None
        for queue_id in parts_named(node.state, ack):
            feed = None if queue_id is None else node.dispatcher.feeds.get(queue_id)
            if feed is not None:
                found[feed] = None
        if len(found) > ACK_FEEDS_NAMED_MAX:
            return None
    return list(found)
