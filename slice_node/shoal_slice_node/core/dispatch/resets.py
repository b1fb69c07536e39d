"""Keeps which handles of a session stand for another life of their queue than the client knows, and counts them.

The client is told each handle in its turn, before anything of the next life. It counts what it was told, and says in
its acks and nacks how much that was, so that those for an earlier life are known (Attachment.resets_before). Not here:
what ends a life (attaching).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice


class Resets:
    """Keeps the resets of one session. `noted`: how many handles the client was told, or is to be told, since the
    session began; one that waits already is not counted again."""

    __slots__ = ("_waiting", "noted")

    def __init__(self) -> None:
        self.noted = 0
        self._waiting: dict[int, None] = {}
        """In the order in which the client is told."""

    def __bool__(self) -> bool:
        """Returns whether some wait."""
        return bool(self._waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(self._waiting)

    def note(self, handle: int) -> None:
        """Notes that the handle's queue was dropped: the client is to be told."""
        if handle not in self._waiting:
            self._waiting[handle] = None
            self.noted += 1

    def take(self, count_max: int) -> list[int]:
        """Returns up to `count_max` of the handles that the client is to be told of: it is told now."""
        handles = list(islice(self._waiting, count_max))
        for handle in handles:
            del self._waiting[handle]
        return handles
