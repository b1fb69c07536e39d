"""Tells by how much the memory of a process grew lately."""

from __future__ import annotations

from collections import deque


class Growth:
    """Keeps the least memory of the last `within_s` seconds. Times are in seconds of time.monotonic."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._least: deque[tuple[float, int]] = deque()
        """Times and what was held then; each is less than all that follow, so the first is the least."""

    def add(self, now_s: float, held_bytes: int) -> int:
        """Notes what is held now. Returns by how many bytes that is more than the least."""
        while self._least and self._least[-1][1] >= held_bytes:
            self._least.pop()
        self._least.append((now_s, held_bytes))
        while self._least[0][0] < now_s - self._within_s:
            self._least.popleft()
        return held_bytes - self._least[0][1]

    def begin(self, now_s: float, held_bytes: int) -> None:
        """Begins anew: what grew before is accounted for."""
        self._least.clear()
        self._least.append((now_s, held_bytes))
