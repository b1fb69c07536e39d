"""Bounds how many bindings one record's drops, or purges, may take at once. Deterministic: part of `apply`."""

from __future__ import annotations


class BindingBudget:
    """Keeps in `left` how many bindings may still be looked at or ended. The rest waits for later parts or turns."""

    __slots__ = ("left",)

    def __init__(self, bindings: int) -> None:
        self.left = bindings
