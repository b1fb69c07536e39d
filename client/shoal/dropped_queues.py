"""Keeps which queues of an inbox were dropped while it consumed them, and makes the error that says so.

A queue counts as dropped when its home has dropped it; parts on other slices follow. The inbox stays attached: if the
queue is declared anew, its messages come. Not here: what becomes of acks and repeats then (inbox_slice.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from shoal.telling import Telling
from shoal_contract.errors import NoSuchQueue
from shoal_contract.names import show


class DroppedQueues:
    """Keeps the dropped queues of one inbox. `queues`: the inbox's own dictionary, handle -> queue. `home_of`: returns
    the slice of a queue's direct key. `on_dropped`: wakes what waits for messages. `ends`: `take_error` returns errors;
    False for an inbox that was opened without queues: there they come and go, and it waits for those to come."""

    def __init__(
        self,
        queues: Mapping[int, bytes],
        home_of: Callable[[bytes], str],
        telling: Telling,
        on_dropped: Callable[[], None],
        ends: bool,
    ) -> None:
        self.handles: set[int] = set()
        """Handles whose queue was dropped and, as far as known, not declared anew. A part of `queues`."""
        self._queues = queues
        self._home_of = home_of
        self._telling = telling
        self._on_dropped = on_dropped
        self._ends = ends
        self._ended: set[int] = set()
        """Handles whose queue's life ended at its home, which has not told of another one. Holds all of `handles`."""
        self._untold = False
        """True if a queue was dropped since `take_error` returned an error."""

    def dropped(self, slice_name: str, handles: Iterable[int]) -> None:
        """Records that a slice dropped its parts of these queues. Tells of those whose home it is."""
        for handle in handles:
            queue = self._queues[handle]
            if self._home_of(queue) == slice_name:
                self._ended.add(handle)
                self._untold = True
                self._telling.error(_was_dropped(queue, ""))
            elif handle in self._ended and handle not in self.handles:
                self._untold = True  # What came after its home's word was of the life that ended.
            else:
                continue
            self.handles.add(handle)
        if self.handles:
            self._on_dropped()

    def exist(self, slice_name: str, handles: Iterable[int]) -> None:
        """Records that these queues exist again, as their parts at this slice show."""
        for handle in handles:
            self.handles.discard(handle)
            if self._home_of(self._queues[handle]) == slice_name:
                self._ended.discard(handle)

    def leave(self, handles: Iterable[int]) -> None:
        """Forgets queues that leave the inbox. Perhaps only dropped ones are left in it now."""
        self.handles.difference_update(handles)
        self._ended.difference_update(handles)
        if self.handles:
            self._on_dropped()

    def take_error(self) -> NoSuchQueue | None:
        """Returns an error, once, if every queue of the inbox was dropped: no message can come."""
        if not self._untold or not self.handles or len(self.handles) < len(self._queues):
            return None
        self._untold = False
        if not self._ends:
            return None
        others = len(self.handles) - 1
        return _was_dropped(self._queues[min(self.handles)], f", and {others:,} more" if others else "")


def _was_dropped(queue: bytes, more: str) -> NoSuchQueue:
    name = show(queue)
    return NoSuchQueue(f"queue {name}{more}: dropped while this inbox consumed it; declare it anew", subject=name)
