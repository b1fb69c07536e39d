"""Remembers what queues were given before their feeds were forgotten: to give it again is a redelivery."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Container
from typing import NamedTuple

from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import DELIVERED_MARKS_MAX
from shoal_slice_node.core.rows.ids import ID_BYTES


class KnownQueues:
    """Contains the ids of queues that dispatch has something of: their feed, or marks."""

    __slots__ = ("_feeds", "_marked")

    def __init__(self, feeds: Container[object], marked: Container[object]) -> None:
        self._feeds = feeds
        self._marked = marked

    def __contains__(self, queue_id: object) -> bool:
        return queue_id in self._feeds or queue_id in self._marked


class _Mark(NamedTuple):
    """Notes that a binding was given what it had not done below `to`. Its cursor was `cursor`; if the cursor is lower
    now, the binding began anew."""

    cursor: int
    to: int


class Marks:
    """Keeps marks of the last DELIVERED_MARKS_MAX bindings."""

    def __init__(self) -> None:
        self._marks: OrderedDict[bytes, _Mark] = OrderedDict()
        """Marks by queue id + key id, joined: a pair would take twice the memory."""
        self.queues: Counter[bytes] = Counter()
        """How many marks each queue has; none has 0."""

    def __bool__(self) -> bool:
        """Returns whether there are any."""
        return bool(self._marks)

    def mark(self, stream: Stream) -> None:
        """Remembers what was given."""
        to = max(stream.next, self.marked(stream))
        queue_id = stream.feed.queue_id
        self.forget(queue_id, stream.key_id)
        self._marks[queue_id + stream.key_id] = _Mark(stream.cursor, to)
        self.queues[queue_id] += 1
        if len(self._marks) > DELIVERED_MARKS_MAX:
            oldest = next(iter(self._marks))
            self.forget(oldest[:ID_BYTES], oldest[ID_BYTES:])

    def forget(self, queue_id: bytes, key_id: bytes) -> None:
        """Forgets a binding that is gone, or began anew."""
        if self._marks.pop(queue_id + key_id, None) is not None:
            self.queues[queue_id] -= 1
            if not self.queues[queue_id]:
                del self.queues[queue_id]

    def cut(self, queue_id: bytes, key_id: bytes, start: int) -> None:
        """Takes in that a binding began at `start`: what was given from there on was of the one before."""
        mark = self._marks.get(queue_id + key_id)
        if mark is None:
            return
        if start <= mark.cursor:
            self.forget(queue_id, key_id)
        elif start < mark.to:
            self._marks[queue_id + key_id] = mark._replace(to=start)

    def marked(self, stream: Stream) -> int:
        """Returns the offset below which all was given; 0: nothing is known."""
        mark = self._marks.get(stream.feed.queue_id + stream.key_id)
        return 0 if mark is None or stream.cursor < mark.cursor else mark.to
