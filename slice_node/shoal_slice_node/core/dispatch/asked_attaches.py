"""Keeps which queues a session asked to attach, until that is done or refused: it has its turn later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable


class AskedAttaches:
    """Keeps the names, and how many frames asked for each."""

    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: Counter[bytes] = Counter()

    def begin(self, names: Iterable[bytes]) -> None:
        """Notes that the session asked to attach these queues."""
        self._asked.update(names)

    def end(self, names: Iterable[bytes]) -> None:
        """Notes that they were attached, or refused."""
        for name in names:
            self._asked[name] -= 1
            if not self._asked[name]:
                del self._asked[name]

    def so_far(self) -> Callable[[bytes], bool]:
        """Returns a function that says, now or later, whether an attach of a queue is not done yet that was asked for
        up to now."""
        asked = frozenset(self._asked)
        return lambda name: name in asked and name in self._asked
