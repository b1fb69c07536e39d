"""A node's right to lead its slice, in one epoch: it is given once, and once over, it stays over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from shoal_contract.errors import ShoalError

FOREVER_S = float(1 << 20)


class Lead:
    """Keeps whether the node may still lead. `over` is set when it may not, and `why` then says why.

    `lease_left_s` returns how long the node's lease surely lives, in seconds. A node that runs alone has none.
    """

    def __init__(self, epoch: int, lease_left_s: Callable[[], float] = lambda: FOREVER_S) -> None:
        self.epoch = epoch
        self.over = asyncio.Event()
        self.why: ShoalError | None = None
        self._lease_left_s = lease_left_s

    @property
    def remaining_s(self) -> float:
        """Returns how long this node may surely still answer, in seconds. 0: not any more."""
        return 0.0 if self.over.is_set() else self._lease_left_s()

    def end(self, why: ShoalError) -> None:
        """Ends the lead. From now on nothing more is answered. The first reason stays."""
        if not self.over.is_set():
            why.__traceback__ = why.__context__ = None  # They would keep what the leading role was made of.
            self.why = why
            self.over.set()
