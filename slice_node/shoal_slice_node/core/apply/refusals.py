"""Refusals in one outcome: their texts have a budget, and what goes beyond it is not even formed.

Names may be escaped to four times their bytes, at a cost that a frame of a thousand refused requests would multiply.
Deterministic: outcomes are kept for repeats, the same on every node.
"""

from __future__ import annotations

from shoal_contract.errors import ShoalError
from shoal_contract.names import show
from shoal_contract.wire.slice_pb2 import Refusal
from shoal_slice_node.core.limits import REFUSALS_BYTES_MAX


class Refusals:
    """`_left`: bytes that the texts of this outcome may still take; below 0: no further one has a text."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = REFUSALS_BYTES_MAX

    def begin(self) -> None:
        """Of another outcome; also after one, so that errors outside of outcomes have their texts."""
        self._left = REFUSALS_BYTES_MAX

    def shown(self, name: bytes) -> str:
        """A name for an error's texts; empty where they would be thrown away."""
        return show(name) if self._left >= 0 else ""

    def to_wire(self, number: int, error: ShoalError) -> Refusal:
        """The refusal of request `number` of its step: with its texts, or, beyond the budget, code and figures only."""
        refusal = Refusal(request=number)
        found = refusal.error
        error.write(found, texts=self._left >= 0)
        if self._left >= 0:
            self._left -= found.ByteSize()
            if self._left < 0:
                found.Clear()
                error.write(found, texts=False)
        return refusal
