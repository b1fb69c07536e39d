"""Keeps a queue under consumption: its streams, and the sessions that compete for it."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from shoal_slice_node.core.dispatch.exclusive import Exclusive
from shoal_slice_node.core.dispatch.range_room import RangeRoom, counted_as_pulled
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Rests
from shoal_slice_node.core.limits import (
    COUNTED_NAME_BYTES,
    OUT_OF_LINE_LOOKS_MAX,
    PARCEL_OVERHEAD_BYTES,
    RANGE_BYTES,
    STREAM_BYTES,
)

if TYPE_CHECKING:
    from shoal_contract.options import QueueOptions
    from shoal_slice_node.core.dispatch.attachment import Attachment


def long_bytes(name: bytes) -> int:
    """Returns what a name takes beyond what counts for each queue and binding."""
    return max(0, len(name) - COUNTED_NAME_BYTES)


class Feed:
    """Keeps what dispatch knows of one queue.

    `attachments`, by session number, get pushes, in turns; `pullers` took messages. `sole`: the attachment, if there is
    exactly one, and no ack timeout: `Growing` gives it new chunks without a look at the line. `lagging`: streams with
    something to read or give again; a stream is in it exactly while `stream.lagging`. `unflushed`: streams with acks
    that no flush has taken. `loading`: some bindings may have no stream yet; the loader makes them. `to_load`: for so
    many of these the memory is counted already. `expires_after_s`, `ack_timeout_ms`, `max_deliveries`, `dead_letter`:
    as the queue's options say. `exclusive`: which one session may consume it; None: any number may. `gone`: the feed is
    not registered any more; it has no streams then. `passed_over`: the number of streams, at the end of `lagging`, that
    were looked at and got nothing, as they wait for acks. If all wait, the feed waits too. Every event that may change
    this sets it to 0. `found_last`: the number of the session that was found last where nobody was in line; 0: none.
    `joins_behind`: streams of new bindings join only parcels with higher numbers: others may bring what was bound.
    """

    __slots__ = (
        "_leaving",
        "_line",
        "_new_lagging",
        "_pulled",
        "_rests",
        "_room",
        "_unapplied_acks",
        "ack_timeout_ms",
        "attachments",
        "dead_letter",
        "exclusive",
        "expires_after_s",
        "found_last",
        "gone",
        "joins_behind",
        "lagging",
        "loading",
        "max_deliveries",
        "name",
        "names_bytes",
        "passed_over",
        "pullers",
        "queue_id",
        "ranges",
        "resting",
        "resting_messages",
        "sole",
        "streams",
        "to_load",
        "unflushed",
    )

    def __init__(
        self,
        queue_id: bytes,
        name: bytes,
        options: QueueOptions,
        exclusive: Exclusive | None,
        rests: Rests,
        room: RangeRoom,
    ) -> None:
        """`room`: where the ranges of its streams count."""
        self.queue_id = queue_id
        self.name = name
        self.expires_after_s = options.expires_after_s
        self.exclusive = exclusive
        self.ack_timeout_ms = options.ack_timeout_ms
        self.max_deliveries = options.max_deliveries
        self.dead_letter = options.dead_letter
        self.loading = True
        self.to_load = 0
        self.gone, self.passed_over, self.joins_behind = False, 0, 0
        self.streams: dict[bytes, Stream] = {}
        self.attachments: dict[int, Attachment] = {}
        self.sole: Attachment | None = None
        self.pullers: dict[int, Attachment] = {}
        self.lagging: dict[bytes, Stream] = {}
        self.unflushed: dict[bytes, Stream] = {}
        self._line: deque[Attachment] = deque()
        """The attachments that may have room, the next to be served first; an attachment is in it exactly while it is
        `lined`. One without room leaves the line. It is lined up again when its window opens or its session has room.
        So a look for room never costs more than the attachments that leave the line."""
        self.found_last = self._new_lagging = 0
        self._leaving = False
        """Some attachments left, and their messages are still being taken back."""
        self._rests, self._room = rests, room
        self.ranges = 0
        """The number of done ranges, and of stretches to be given again, in all streams."""
        self.names_bytes = long_bytes(name)
        """What its name and those of its streams' keys take beyond what counts for each feed and stream."""
        self._pulled = 0
        """How many of its ranges `room` counts as those of a queue that sessions only pull from."""
        self.resting = self.resting_messages = 0
        """The number of stretches that rest, in all streams, and of their messages."""
        self._unapplied_acks = 0
        """The number of streams' acks in records that are not applied yet, and 1 while a flush takes acks from here."""

    @property
    def consumed(self) -> bool:
        """Returns whether a session has the queue attached, or has pulled messages of it out."""
        return bool(self.attachments or self.pullers)

    @property
    def busy(self) -> bool:
        """Returns whether the feed is needed even if no session has attached the queue."""
        return bool(self.pullers or self.unflushed or self._unapplied_acks or self._leaving or self.resting)

    @property
    def idle(self) -> bool:
        """Returns whether the feed may be forgotten: nothing consumes the queue, and the tables have all its acks."""
        return not (self.attachments or self.busy)

    # Attachments.

    def add(self, attachment: Attachment) -> None:
        self.attachments[attachment.session.number] = attachment
        self._count_pulled()
        self._choose_sole()
        self.line_up(attachment)

    def remove(self, attachment: Attachment) -> None:
        del self.attachments[attachment.session.number]
        self._count_pulled()
        self._choose_sole()
        if attachment.end():
            self._line.remove(attachment)

    def _choose_sole(self) -> None:
        sole = len(self.attachments) == 1 and not self.ack_timeout_ms
        self.sole = next(iter(self.attachments.values())) if sole else None

    def add_puller(self, attachment: Attachment) -> None:
        self.pullers[attachment.session.number] = attachment
        self._count_pulled()

    def remove_puller(self, attachment: Attachment) -> None:
        if self.pullers.get(attachment.session.number) is attachment:  # Another one may have come after it.
            del self.pullers[attachment.session.number]
        self._count_pulled()

    def join_behind(self, number: int) -> None:
        """Notes that parcels up to this one may bring what a binding had that ended just now."""
        self.joins_behind = number

    def begin_leave(self) -> None:
        """Notes that messages of attachments that left are being taken back; the feed stays until `end_leave`."""
        assert not self._leaving
        self._leaving = True

    def end_leave(self) -> None:
        self._leaving = False

    @property
    def leaving(self) -> bool:
        """Returns whether messages of attachments that left are being taken back."""
        return self._leaving

    # Streams.

    @property
    def streams_counted(self) -> int:
        """Returns for how many streams the memory is counted."""
        return len(self.streams) + self.to_load

    def count_before(self, streams: int) -> None:
        """Notes for how many streams that are still to be made the memory is counted already."""
        self.to_load = streams

    def add_stream(self, stream: Stream) -> None:
        self.streams[stream.key_id] = stream
        self.names_bytes += long_bytes(stream.key)
        stream.begin_count()

    def count_ranges(self, more: int) -> None:
        """Notes that a stream has so many ranges more, or less if it is negative."""
        self.ranges += more
        self._room.count(self, more)
        self._count_pulled()

    def _count_pulled(self) -> None:
        pulled = counted_as_pulled(self)
        if pulled != self._pulled:
            self._room.count_pulled(pulled - self._pulled)
            self._pulled = pulled

    @property
    def ranges_outweigh_streams(self) -> bool:
        """Returns whether its ranges take more memory than its streams."""
        return RANGE_BYTES * self.ranges > STREAM_BYTES * self.streams_counted

    @property
    def ranges_expected(self) -> int:
        """Returns how many ranges it has once it is loaded, if the other streams have as many."""
        return self.ranges * self.streams_counted // max(1, len(self.streams))

    @property
    def is_short(self) -> bool:
        """Returns whether there is no memory for more ranges."""
        return self._room.is_short

    def put_last(self, stream: Stream) -> None:
        """Puts a stream behind the others: something came back of it (returning.py)."""
        self.streams[stream.key_id] = self.streams.pop(stream.key_id)

    def last_streams(self, count_max: int) -> list[bytes]:
        """Returns the key ids of the last streams, the last one at the end."""
        if count_max >= len(self.streams):
            return list(self.streams)
        return list(islice(reversed(self.streams), count_max))[::-1]

    def remove_stream(self, stream: Stream) -> bool:
        """Forgets a stream. Returns False if the feed does not have it."""
        self.forget_work(stream)
        stream.end_count()
        if self.streams.pop(stream.key_id, None) is None:
            return False
        self.names_bytes -= long_bytes(stream.key)
        return True

    def forget_work(self, stream: Stream) -> None:
        """Notes that nothing of the stream is to be read, given again, or journaled."""
        self.clear_lagging(stream)
        self.unflushed.pop(stream.key_id, None)

    def loaded(self) -> None:
        """Notes that every binding has its stream."""
        self.loading = False

    def end(self) -> dict[bytes, Stream]:
        """Ends the feed, which is not registered any more. Returns its streams."""
        self.gone = True
        self.lagging = {}
        self.sole = None
        self._line.clear()
        self.unflushed = {}
        streams, self.streams = self.streams, {}
        self.count_ranges(-self.ranges)
        return streams

    def forget_consumers(self) -> None:
        """Forgets who consumed a feed that ended: they name it, and would stay for each other's sake."""
        assert self.gone
        self.attachments, self.pullers = {}, {}

    def set_lagging(self, stream: Stream) -> None:
        is_first_new = not (stream.lagging or self._new_lagging)
        self.lag_on(stream)
        self._new_lagging += is_first_new

    def lag_on(self, stream: Stream) -> None:
        """Puts a stream that was looked at, and taken out, behind the others that lag."""
        self.passed_over = 0
        self._new_lagging += bool(self._new_lagging and not stream.lagging)
        stream.note_lagging(True)
        self.lagging[stream.key_id] = stream

    def take_new_lagging(self) -> int:
        """Returns how many of the last streams that lag have begun to since the last call, or stand among these."""
        count, self._new_lagging = self._new_lagging, 0
        return count

    def first_lagging(self, count: int) -> list[Stream]:
        """Returns up to `count` of the streams that lag, the first ones. To take one out and put it behind the others
        costs as much as all that were taken out before: so callers take several at once."""
        return list(islice(self.lagging.values(), count))

    def clear_lagging(self, stream: Stream) -> None:
        self.passed_over = 0
        stream.note_lagging(False)
        self.lagging.pop(stream.key_id, None)

    def pass_over(self, streams: int) -> None:
        """Notes that so many streams, at the end of `lagging`, got nothing: they wait for acks. 0: all may get some."""
        self.passed_over = streams

    # Acks, and what came back.

    def begin_rest(self, session: int, messages: int) -> None:
        """Notes that a stretch of a stream, which this session had last, rests; the feed stays until `end_rest`."""
        self._rests.begin(session, not self.resting)
        self.resting += 1
        self.resting_messages += messages

    def end_rest(self, session: int, messages: int) -> None:
        self.resting -= 1
        self.resting_messages -= messages
        self._rests.end(session, not self.resting)
        assert self.resting >= 0 and self.resting_messages >= 0

    def acked(self, stream: Stream) -> None:
        """Notes that the stream has acks that the feed's next flush takes."""
        self.unflushed[stream.key_id] = stream

    def begin_flush(self) -> dict[bytes, Stream]:
        """Returns the streams with acks, for a flush that begins. The feed stays until `end_acks` was called for it."""
        streams, self.unflushed = self.unflushed, {}
        self._unapplied_acks += 1
        return streams

    def begin_acks(self) -> None:
        """Notes that acks of a stream are on their way to the tables; the feed stays until `end_acks`."""
        self._unapplied_acks += 1

    def end_acks(self) -> None:
        self._unapplied_acks -= 1
        assert self._unapplied_acks >= 0

    # The line.

    @property
    def has_line(self) -> bool:
        """Returns whether somebody is in line."""
        return bool(self._line)

    def line_up(self, attachment: Attachment) -> None:
        """Puts an attachment in line, if it is not there: it may have room again."""
        if not self.gone and attachment.join_line():
            self._line.append(attachment)

    def line_up_first(self, attachment: Attachment) -> None:
        """Puts an attachment first in line, for a turn of its session: others would be turned away, and wait for a turn
        in which they turn this one away, without end."""
        if self.gone:
            return
        if not attachment.join_line():
            self._line.remove(attachment)
        self._line.appendleft(attachment)

    def pick(self, cost_bytes: int, more: int = 0, more_bytes: int = 0) -> Attachment | None:
        """Returns the next attachment in line that has room for what takes so much memory. A session without room notes
        this feed, and asks for it when it has room. `more`, `more_bytes`: so much is to go before the last message;
        None, and it stays the next, if its window has room for a part only."""
        attachment = self._first_with_room(cost_bytes)
        if attachment is None or (more and not attachment.has_window_behind(more, more_bytes)):
            return None
        if len(self._line) > 1:
            self._line.rotate(-1)
        return attachment

    def give_way(self, attachment: Attachment) -> None:
        """Lets others go first, if the attachment is the next in line."""
        if len(self._line) > 1 and self._line[0] is attachment:
            self._line.rotate(-1)

    @property
    def has_many(self) -> bool:
        """Returns whether more sessions consume it than one look asks for room."""
        return len(self.attachments) > OUT_OF_LINE_LOOKS_MAX

    def put_behind(self, attachment: Attachment) -> None:
        """Puts an attachment behind the others, where they are looked at whether they are in line or not."""
        self.attachments[attachment.session.number] = self.attachments.pop(attachment.session.number)

    def note_found(self, attachment: Attachment) -> None:
        """Notes that the attachment was found where nobody was in line."""
        self.found_last = attachment.session.number

    def find_room(self, cost_bytes: int = PARCEL_OVERHEAD_BYTES) -> bool:
        """Returns whether `pick` would find an attachment for what takes so much memory: as little as can be, if it is
        not said. Those without room leave the line, and sessions without room note this feed, as with `pick`."""
        return self._first_with_room(cost_bytes) is not None

    def _first_with_room(self, cost_bytes: int) -> Attachment | None:
        line = self._line
        while line:
            attachment = line[0]
            if attachment.window_open:
                session = attachment.session
                if session.has_room_for(cost_bytes):
                    return attachment
                session.turn_away(self, cost_bytes)
            line.popleft()
            attachment.taken_from_line()
        return None
