"""Defines what an inbox gets from a slice: a delivery that knows before which nacks it was put on its way."""

from __future__ import annotations

from collections.abc import Container, Sequence

from shoal.core.returning import NackPlace
from shoal.eras import Era
from shoal.messages import Delivery
from shoal.queue_names import QueueNames
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk


class InboxDelivery(Delivery):
    """Is a delivery of one era. `nacks_taken`: the place of the last nack that the slice had looked at
    before it was put on its way."""

    __slots__ = ("_era", "nacks_taken")

    def __init__(
        self,
        item: wire.Delivery,
        first: int,
        end: int,
        chunk: Chunk,
        handles: Sequence[int],
        era: Era,
        names: QueueNames | None = None,
    ) -> None:
        super().__init__(item, first, end, chunk, handles, era, names)
        self._era = era
        self.nacks_taken: NackPlace = era.stream, item.nacks_taken

    def note_handed_out(self, consumers: Sequence[int | bytes] | None = None, offset: int | None = None) -> None:
        """Notes that the program has these messages: its inbox is to know."""
        first, end = (self.first, self.end) if offset is None else (offset, offset + 1)
        handles: Sequence[int] = self.handles if consumers is None else consumers  # type: ignore[assignment] # handles
        self._era.note_handed_out(self.key_bytes, first, end, handles)

    def give_back_numbered(self, handles: Container[int]) -> list[tuple[int, int, int, NackPlace]]:
        """Takes handles out, and gives back what they would have got. Returns each handle with ranges,
        first <= offset < end, and the place of the nack that gives each back."""
        return [
            (handle, first, end, place)
            for handle in self._take_out(handles)
            for first, end, place in self._era.give_back_numbered(self, handle)
        ]

    def forget_copy(self, handles: Container[int]) -> None:
        """Takes handles out that are given this again, as they gave back a copy of it."""
        for handle in self._take_out(handles):
            self._era.forget_copy(self, handle)

    def _take_out(self, handles: Container[int]) -> list[int]:
        gone = [one for one in self.handles if one in handles]
        self._consumers = [one for one in self.handles if one not in handles]
        return gone
