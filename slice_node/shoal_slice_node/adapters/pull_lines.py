"""Has pulls of one owner from one queue that wait for room, or take long, done one after the other, in the order in
which they were asked for: a later one would take messages that come first. Only the first one asks for room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from shoal_slice_node.core.turns import Source

Begin = Callable[[], None]


class PullLines:
    """Keeps pulls that wait for an earlier one, by owner and queue."""

    def __init__(self) -> None:
        self._lines: dict[Source, dict[bytes, deque[Begin]]] = {}
        """Those behind the first one, which is not in it."""
        self._left: deque[tuple[Source, bytes]] = deque()
        self._goes_on = False

    def __bool__(self) -> bool:
        """Returns whether a pull is not done."""
        return bool(self._lines)

    def has(self, source: Source, queue: bytes) -> bool:
        """Returns whether a pull of this owner from this queue entered, and has not left."""
        return queue in self._lines.get(source, ())

    def enter(self, source: Source, queue: bytes, begin: Begin) -> None:
        """Calls `begin` once all pulls are done that entered before, which may be at once. `leave` is to follow."""
        lines = self._lines.setdefault(source, {})
        line = lines.get(queue)
        if line is None:
            lines[queue] = deque()
            begin()
        else:
            line.append(begin)

    def leave(self, source: Source, queue: bytes) -> None:
        """Notes that the first one is done, or not wanted any more, and begins the next. Nothing happens if the owner
        was forgotten."""
        self._left.append((source, queue))
        if self._goes_on:
            return  # It was begun, and left at once: a call below begins the next.
        self._goes_on = True
        try:
            while self._left:
                self._begin_next(*self._left.popleft())
        finally:
            self._goes_on = False

    def _begin_next(self, source: Source, queue: bytes) -> None:
        lines = self._lines.get(source, {})
        line = lines.get(queue)
        if line:
            line.popleft()()
        elif line is not None:
            del lines[queue]
            if not lines:
                del self._lines[source]

    def forget(self, source: Source) -> None:
        """Forgets those of an owner that is gone."""
        self._lines.pop(source, None)
