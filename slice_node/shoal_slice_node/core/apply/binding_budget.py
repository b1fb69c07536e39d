"""A budget of bindings for one record: what drops and purges may still do at once. Deterministic: part of `apply`."""

from __future__ import annotations


class BindingBudget:
    """`left`: bindings that may still be looked at or ended. What exceeds it is left to later parts or turns."""

    __slots__ = ("left",)

    def __init__(self, bindings: int) -> None:
        self.left = bindings
