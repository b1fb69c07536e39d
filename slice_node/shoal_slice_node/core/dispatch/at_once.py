"""Bounds what is done at once, instead of in a turn: all that comes until the pump has had a turn shares one sum.

A session that ends, or a queue that is detached, is small, and thousands may come between two turns of the pump.
"""

from __future__ import annotations

from shoal_slice_node.core.limits import AT_ONCE_MAX


class AtOnce:
    """Counts costs, in streams reached. `left`: what may still be done at once; the rest waits for turns."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = AT_ONCE_MAX

    def renew(self) -> None:
        """Begins anew: the pump had a turn."""
        self.left = AT_ONCE_MAX

    def take(self, cost: int) -> bool:
        """Returns whether work of this cost may be done at once; it counts then."""
        if cost > self.left:
            return False
        self.left -= cost
        return True

    def spend(self, cost: int) -> None:
        """Counts what was done at once."""
        self.left = max(0, self.left - cost)
