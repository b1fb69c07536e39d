"""Bounds what one record's drops, purges or acks may take at once. Deterministic: part of `apply`."""

from __future__ import annotations


class BindingBudget:
    """Keeps in `remaining` how many bindings may still be looked at or ended, or what they may still cost. The rest
    waits for later parts or turns, or is refused."""

    __slots__ = ("remaining",)

    def __init__(self, bindings: int) -> None:
        self.remaining = bindings
