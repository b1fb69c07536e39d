"""Checks the promise that no binding falls silent: if a binding has a backlog, and a session with room has attached its
queue, then the binding is being served or is in line for it.

Where the share of deliveries is crowded, a session waits in line for its turn (room_line.py). An attachment has no room
while it is paused (pausing), and for ever once it is stopped: a stop makes its window 0. Of one that is paused it is
checked that something will end the pause; of one that is stopped, nothing.

A test checks after every step. A running node checks a few feeds from time to time, counts what it finds, and puts it
in line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.pausing import note_again
from shoal_slice_node.core.dispatch.streams import Stream


class Silent(NamedTuple):
    """Describes a stream that would wait for ever, and why."""

    feed: Feed
    stream: Stream | None
    reason: str


def silent_streams(dispatcher: Dispatcher, feeds: Iterable[Feed]) -> Iterator[Silent]:
    """Yields all that is wrong with these feeds. O(their streams and attachments)."""
    for feed in feeds:
        if feed.gone:
            continue
        yield from _out_of_line(dispatcher, feed)
        if not _has_room_in_line(feed):
            continue
        for stream in feed.streams.values():
            reason = _silence(dispatcher, feed, stream)
            if reason:
                yield Silent(feed, stream, reason)


def serve(dispatcher: Dispatcher, silent: Silent) -> None:
    """Puts in line what the check found. Pauses that nothing would end are noted again."""
    for attachment in silent.feed.attachments.values():
        note_again(dispatcher.registry, attachment)
        silent.feed.line_up(attachment)
    if silent.stream is not None:
        silent.feed.set_lagging(silent.stream)
    dispatcher.registry.wake(silent.feed)


def _out_of_line(dispatcher: Dispatcher, feed: Feed) -> Iterator[Silent]:
    """Yields attachments that are outside of the line and will not be lined up again, by an ack or by their session's
    room."""
    roomy = dispatcher.registry.roomy
    for attachment in feed.attachments.values():
        session = attachment.session
        if attachment.paused and not session.closed:
            if attachment not in session.paused and attachment not in session.resumed:
                yield Silent(feed, None, f"session {session.number} was paused, and nothing will end the pause")
            elif attachment in session.resumed and session not in roomy:
                yield Silent(feed, None, f"session {session.number} reads again, and its pauses are not ended")
            continue
        if attachment.lined or not attachment.window_open or session.closed:
            continue
        if feed.queue_id not in session.turned_away:
            yield Silent(feed, None, f"session {session.number} is neither in line nor asked when it has room")
        elif session in roomy or session in dispatcher.shares.line:
            continue
        elif session.has_room_of_its_own:
            yield Silent(feed, None, f"session {session.number} has room, and feeds that it turned away are not served")
        elif not (session.under_way_bytes or session.owed):
            yield Silent(feed, None, f"session {session.number} has no room and nothing that would make any")


def _has_room_in_line(feed: Feed) -> bool:
    """Returns whether a look at the feed would find room. Attachments outside of the line do not count: when they are
    lined up, the feed is looked at then."""
    return any(
        attachment.lined and attachment.window_open and attachment.session.has_room and not attachment.session.closed
        for attachment in feed.attachments.values()
    )


def _silence(dispatcher: Dispatcher, feed: Feed, stream: Stream) -> str:
    """Returns why nothing will serve this stream; "" if something will, or if it lacks nothing."""
    found = dispatcher.state.key_by_id(stream.key_id)
    if found is None or not (stream.returned or stream.next < (stream.end or found[1].head)):
        return ""
    if not stream.lagging:
        return "" if stream.key_id in dispatcher.growing.spreads else "it has backlog and is not noted as lagging"
    if stream.key_id not in feed.lagging:
        return "it lags, and its feed does not know"
    registry = dispatcher.registry
    if feed in registry.ready or feed in registry.short or _waits_for_acks(stream):
        return ""
    if _is_served_by_a_turn(dispatcher, feed):
        return ""
    return "it lags and its feed is not in line"


def _is_served_by_a_turn(dispatcher: Dispatcher, feed: Feed) -> bool:
    """Returns whether a session has its turn soon and looks at the feed then, which it turned away: it may be in the
    feed's line all the same, if a turn of it ended before it came to what it has room for."""
    roomy, line = dispatcher.registry.roomy, dispatcher.shares.line
    sessions = [attachment.session for attachment in feed.attachments.values() if attachment.window_open]
    return any(
        feed.queue_id in session.turned_away and (session in roomy or session in line)
        for session in sessions
        if not session.closed
    )


def _waits_for_acks(stream: Stream) -> bool:
    """Returns whether the stream has as many done ranges as are allowed, and its lowest message is out, or rests: then
    only the ack of this message helps, or the end of its rest."""
    return stream.messages_allowed <= 0 and stream.waits_below(stream.lowest)
