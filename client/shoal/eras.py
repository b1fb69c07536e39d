"""Acks for messages of an inbox: each goes by the stream that brought it, and by the life of its queue.

Not here: what becomes of an ack of an earlier era (inbox_slice.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from shoal.core.returning import NackPlace
from shoal.messages import Delivery, PartLife


class _AtSlice(Protocol):
    """Takes acks of one slice for an inbox (inbox_slice.py)."""

    def ack(self, era: Era, key: bytes, first: int, end: int, handles: Sequence[int]) -> None: ...

    def nack(self, era: Era, key: bytes, first: int, end: int, handles: Sequence[int], delay_ms: int) -> None: ...

    def give_back(self, era: Era, key: bytes, first: int, end: int, handles: Sequence[int]) -> None: ...

    def check_call(self) -> None: ...

    def queue_of(self, consumer: int | bytes) -> bytes: ...

    def part_of(self, era: Era, handle: int) -> PartLife: ...

    def note_handed_out(self, era: Era, key: bytes, first: int, end: int, handles: Sequence[int]) -> None: ...

    def give_back_numbered(
        self, era: Era, key: bytes, first: int, end: int, handle: int
    ) -> list[tuple[int, int, NackPlace]]: ...

    def forget_copy(self, era: Era, key: bytes, first: int, end: int, handle: int) -> None: ...


class Era:
    """Acks what one stream delivered between two ends of queues' lives. `number` grows; `stream` 0: none is open."""

    __slots__ = ("_at_slice", "number", "stream")

    def __init__(self, at_slice: _AtSlice, number: int, stream: int) -> None:
        self._at_slice = at_slice
        self.number = number
        self.stream = stream

    def ack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        """Acks offsets first <= offset < end of the delivery for these handles. Raises Unavailable once the inbox is
        closed."""
        self._at_slice.ack(self, delivery.key_bytes, first, end, consumers)  # type: ignore[arg-type]  # handles

    def nack(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes], delay_ms: int) -> None:
        """Gives these offsets back for these handles. Raises Unavailable once the inbox is closed."""
        handles: Sequence[int] = consumers  # type: ignore[assignment]  # handles
        self._at_slice.nack(self, delivery.key_bytes, first, end, handles, delay_ms)

    def give_back(self, delivery: Delivery, first: int, end: int, consumers: Sequence[int | bytes]) -> None:
        """Gives back what the program was not handed out, also of handles that are being detached."""
        self._at_slice.give_back(self, delivery.key_bytes, first, end, consumers)  # type: ignore[arg-type]  # handles

    def note_handed_out(self, key: bytes, first: int, end: int, handles: Sequence[int]) -> None:
        """Notes that the program has these offsets, for an inbox that is to know."""
        self._at_slice.note_handed_out(self, key, first, end, handles)

    def give_back_numbered(self, delivery: Delivery, handle: int) -> list[tuple[int, int, NackPlace]]:
        """Gives a delivery back for one handle. Returns ranges of it, first <= offset < end, each with the place of the
        nack that gives it back."""
        return self._at_slice.give_back_numbered(self, delivery.key_bytes, delivery.first, delivery.end, handle)

    def forget_copy(self, delivery: Delivery, handle: int) -> None:
        """Takes in that a delivery came for one handle, and is given again by an earlier nack."""
        self._at_slice.forget_copy(self, delivery.key_bytes, delivery.first, delivery.end, handle)

    def check_call(self) -> None:
        """Raises BadCall from another event loop."""
        self._at_slice.check_call()

    def queue_of(self, consumer: int | bytes) -> bytes:
        """Returns the queue of a handle; empty if it has left the inbox."""
        return self._at_slice.queue_of(consumer)

    def part_of(self, consumer: int | bytes) -> PartLife:
        """Returns the life that the queue of a handle had in this era, as far as the slice told."""
        return self._at_slice.part_of(self, consumer)  # type: ignore[arg-type]  # a handle
