"""Keeps which queues a session asked to attach, until that is done or refused: it has its turn later.

Many drops may each ask which attaches came before them. So the attaches are numbered: a drop keeps a number, and no
names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class AskedAttaches:
    """Keeps, for each name, the frames that asked for it and are not done or refused. They end in their order."""

    __slots__ = ("_first", "_frames", "_later")

    def __init__(self) -> None:
        self._first: dict[bytes, int] = {}
        """The first of these frames."""
        self._later: dict[bytes, list[int]] = {}
        """The others: only of names that several frames ask for."""
        self._frames = 0

    def begin(self, names: Iterable[bytes]) -> None:
        """Notes that the session asked to attach these queues."""
        self._frames = frame = self._frames + 1
        for name in names:
            if name in self._first:
                self._later.setdefault(name, []).append(frame)
            else:
                self._first[name] = frame

    def end(self, names: Iterable[bytes]) -> None:
        """Notes that they were attached, or refused: what the first frame asked for that is not done."""
        for name in names:
            later = self._later.get(name)
            if later is None:
                del self._first[name]
                continue
            self._first[name] = later.pop(0)
            if not later:
                del self._later[name]

    def so_far(self) -> Callable[[bytes], bool]:
        """Returns a function that says, now or later, whether an attach of a queue is not done yet that was asked for
        up to now. It keeps no names."""
        frames = self._frames
        return lambda name: self._first.get(name, frames + 1) <= frames
