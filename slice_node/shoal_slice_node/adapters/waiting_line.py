"""Keeps sources in the order in which they began to wait, in a line that they may leave and come back to in their old
place."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable


class WaitingLine:
    """Holds sources by their tickets: the lower its ticket, the further to the front a source is. A change moves a
    few bytes for each source behind it: 5,000 sources make 40 KB."""

    __slots__ = ("_sources", "_tickets")

    def __init__(self) -> None:
        self._tickets: list[int] = []
        self._sources: dict[int, Hashable] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def add(self, ticket: int, source: Hashable) -> None:
        """Puts a source into the line. No two sources may have the same ticket."""
        insort(self._tickets, ticket)
        self._sources[ticket] = source

    def remove(self, ticket: int) -> Hashable:
        """Takes out the source with this ticket, and returns it."""
        del self._tickets[bisect_left(self._tickets, ticket)]
        return self._sources.pop(ticket)

    @property
    def first(self) -> int:
        """Returns the ticket of the first source. The line must not be empty."""
        return self._tickets[0]
