"""A real cluster for tests whose event loops come and go: it lives in a thread with a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import TracebackType

from shoal_local.cluster import LocalCluster

START_S = 120
"""etcd, a redirector and three nodes, on a machine that does other things too."""


class RealCluster:
    """Use as `with RealCluster(folder) as redirector`: its host:port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="real cluster")
        self._cluster = LocalCluster(folder, slices=3)

    def __enter__(self) -> str:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._cluster.start(), self._loop).result(START_S)
        except BaseException:
            self._end()
            raise
        return self._cluster.redirector

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._cluster.stop(), self._loop).result(START_S)
        finally:
            self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
