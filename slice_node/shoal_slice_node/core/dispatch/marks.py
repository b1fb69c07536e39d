"""Remembers what queues were given before their feeds were forgotten: to give it again is a redelivery."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import DELIVERED_MARKS_MAX


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

    def __bool__(self) -> bool:
        """Returns whether there are any."""
        return bool(self._marks)

    def mark(self, stream: Stream) -> None:
        """Remembers what was given."""
        slot = stream.feed.queue_id + stream.key_id
        self._marks[slot] = _Mark(stream.cursor, max(stream.next, self.marked(stream)))
        self._marks.move_to_end(slot)
        if len(self._marks) > DELIVERED_MARKS_MAX:
            self._marks.popitem(last=False)

    def marked(self, stream: Stream) -> int:
        """Returns the offset below which all was given; 0: nothing is known."""
        mark = self._marks.get(stream.feed.queue_id + stream.key_id)
        return 0 if mark is None or stream.cursor < mark.cursor else mark.to
