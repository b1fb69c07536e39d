"""Keeps the newest directory, how old it may be, and the waiters for the next one. One for the process, on its event
loop.

Waiters hold nothing: each asks for the newest directory when it is ready for more, so a slow one only skips versions.
"""

from __future__ import annotations

import asyncio
import time

from shoal_contract.errors import Unavailable
from shoal_redirector.core.directory import Directory


class Board:
    def __init__(self) -> None:
        self._directory: Directory | None = None
        self._lost_s: float | None = time.monotonic()
        """When etcd was lost, by time.monotonic; None while it is heard."""
        self._changed = asyncio.Event()
        """Set, and replaced by a new one, with each new directory."""

    @property
    def age_ms(self) -> int:
        """Returns the milliseconds since etcd was last heard; 0 while connected."""
        return 0 if self._lost_s is None else int((time.monotonic() - self._lost_s) * 1000)

    @property
    def directory(self) -> Directory | None:
        """Returns the newest directory; None before the first."""
        return self._directory

    def newest(self) -> Directory:
        """Returns the newest directory. Raises Unavailable before the first."""
        if self._directory is None:
            raise Unavailable("this redirector has not seen the partition map yet", subject="map")
        return self._directory

    async def after(self, seen: Directory | None) -> Directory:
        """Waits until the newest directory is not `seen`, and returns it."""
        while self._directory is None or self._directory is seen:
            await self._changed.wait()
        return self._directory

    def show(self, directory: Directory) -> None:
        if directory != self._directory:
            self._directory = directory
            self._changed.set()
            self._changed = asyncio.Event()

    def link(self, linked: bool) -> None:
        if linked:
            self._lost_s = None
        elif self._lost_s is None:
            self._lost_s = time.monotonic()
