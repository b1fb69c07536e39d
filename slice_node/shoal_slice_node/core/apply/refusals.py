"""Bounds the texts of the refusals in one outcome by a budget; texts beyond the budget are not even formed.

An escaped name may take four times its bytes, and a frame of a thousand refused requests would multiply that cost.
Deterministic: outcomes are kept for repeats, the same on every node.
"""

from __future__ import annotations

from shoal_contract.errors import ShoalError
from shoal_contract.names import show
from shoal_contract.wire.slice_pb2 import Refusal
from shoal_slice_node.core.limits import REFUSALS_BYTES_MAX


class Refusals:
    """Keeps one outcome's budget. `_left`: bytes that its texts may still take; below 0: no further text is formed."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = REFUSALS_BYTES_MAX

    def begin(self) -> None:
        """Begins another outcome. Also called after an outcome, so that errors outside of outcomes have texts."""
        self._left = REFUSALS_BYTES_MAX

    def shown(self, name: bytes) -> str:
        """Returns a name for an error's texts; an empty one where the texts would be thrown away."""
        return show(name) if self._left >= 0 else ""

    def to_wire(self, number: int, error: ShoalError) -> Refusal:
        """Returns the refusal of a step's request `number`: with texts; beyond the budget, code and figures only."""
        refusal = Refusal(request=number)
        found = refusal.error
        error.write(found, texts=self._left >= 0)
        if self._left >= 0:
            self._left -= found.ByteSize()
            if self._left < 0:
                found.Clear()
                error.write(found, texts=False)
        return refusal
