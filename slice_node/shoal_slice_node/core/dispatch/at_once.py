"""Bounds what is done at once and might wait for a turn: each piece of it is small, but thousands may come between two
turns of the pump, as when a machine goes away with all its sessions."""

from __future__ import annotations

from shoal_slice_node.core.limits import AT_ONCE_BETWEEN_TURNS_MAX


class AtOnce:
    """Counts it, in streams looked at and stretches taken back. `left`: what is allowed still; if it is 0 or less, what
    comes waits for turns."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = AT_ONCE_BETWEEN_TURNS_MAX

    def spend(self, cost: int) -> None:
        """Notes that so much was done at once."""
        self.left -= cost

    def renew(self) -> None:
        """Notes that the pump has a turn, and that nothing of it waits: of many that leave one queue together, what
        each has is not looked for alone."""
        self.left = AT_ONCE_BETWEEN_TURNS_MAX
