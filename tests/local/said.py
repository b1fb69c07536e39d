"""What the processes of a local cluster said, and a way to wait for it."""

from __future__ import annotations

import asyncio

WAIT_S = 60


class Said:
    """Pass it as `on_line`."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self._changed = asyncio.Event()

    def __call__(self, name: str, line: str) -> None:
        self.lines.append((name, line))
        self._changed.set()

    def has(self, part: str) -> bool:
        return any(part in line for _, line in self.lines)

    def clear(self) -> None:
        """What was said so far no longer counts."""
        self.lines.clear()

    async def until(self, part: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while not self.has(part):
                self._changed.clear()
                await self._changed.wait()
