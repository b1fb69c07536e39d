"""Keeps which queues a session asked to attach, until that is done or refused: it has its turn later.

Many drops may each ask which attaches came before them. So the attaches are numbered: a drop keeps a number, and no
names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable


class AskedAttaches:
    """Keeps, for each name, the first frame that asked for it since it was last done or refused, and how many did
    besides."""

    __slots__ = ("_first", "_frames", "_more")

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}
        self._more: Counter[bytes] = Counter()
        """Only of names that several frames ask for."""
        self._frames = 0

    def begin(self, names: Iterable[bytes]) -> None:
        """Notes that the session asked to attach these queues."""
        self._frames = frame = self._frames + 1
        for name in names:
            if name in self._first:
                self._more[name] += 1
            else:
                self._first[name] = frame

    def end(self, names: Iterable[bytes]) -> None:
        """Notes that they were attached, or refused."""
        for name in names:
            if name not in self._more:
                del self._first[name]
            elif self._more[name] > 1:
                self._more[name] -= 1
            else:
                del self._more[name]

    def so_far(self) -> Callable[[bytes], bool]:
        """Returns a function that says, now or later, whether an attach of a queue is not done yet that was asked for
        up to now. It keeps no names."""
        frames = self._frames
        return lambda name: self._first.get(name, frames + 1) <= frames
