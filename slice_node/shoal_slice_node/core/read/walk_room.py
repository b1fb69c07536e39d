"""Bounds the memory of walks over queues with many bindings: each remembers those that it met, until it is over.

Walks are done side by side, a step each, so all that have begun are large at the same time. Of queues with few
bindings they begin at once: a look at one queue need not wait.
"""

from __future__ import annotations

from collections import deque

from shoal_slice_node.core.limits import WALK_BINDINGS_AT_ONCE, WALKED_BINDING_BYTES, WALKS_BYTES_MAX
from shoal_slice_node.core.turns import Pause, Result, Work


class WalkRoom:
    """Lets walks begin in the order in which they asked, as far as there is room, or one alone."""

    __slots__ = ("_line", "held_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self._line: deque[Pause] = deque()
        """Those that wait, the first one first."""

    def within(self, bindings: int, walk: Work[Result]) -> Work[Result]:
        """Does the work of a walk over so many bindings once there is room for it."""
        if bindings <= WALK_BINDINGS_AT_ONCE:
            return (yield from walk)
        size_bytes = bindings * WALKED_BINDING_BYTES
        yield from self._wait(size_bytes)
        try:
            return (yield from walk)
        finally:
            self.held_bytes -= size_bytes
            self._look_again()

    def _wait(self, size_bytes: int) -> Work[None]:
        place = Pause()
        self._line.append(place)
        try:
            while self._line[0] is not place or (self.held_bytes and self.held_bytes + size_bytes > WALKS_BYTES_MAX):
                yield place
        finally:
            self._line.remove(place)
            self._look_again()
        self.held_bytes += size_bytes

    def _look_again(self) -> None:
        if self._line:
            self._line[0].end()
