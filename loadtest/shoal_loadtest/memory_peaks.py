"""Measures the peak resident memory of processes and their children, by role."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

import psutil

from shoal_loadtest.limits import MEMORY_LOOK_S

_ROLES = (
    ("bin/java ", "Spark's JVM"),
    ("shoal_slice_node.processes.checkpointer_process", "checkpointer"),
    ("shoal_slice_node.processes.snapshot_process", "snapshot processes"),
    ("pyspark.daemon", "Spark's Python workers"),
    ("shoal_pipeline", "Spark's driver in Python"),
    ("shoal_slice_node", "broker"),
    ("shoal_redirector", "redirector and etcd"),
    ("etcd", "redirector and etcd"),
)


class MemoryPeaks:
    """Watches the memory of processes. `bytes`: the highest sum over the processes of each role, seen at one time."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self.bytes: dict[str, int] = {}

    async def watch(self) -> None:
        """Watches until cancelled."""
        while True:
            for role, resident in self._now().items():
                self.bytes[role] = max(resident, self.bytes.get(role, 0))
            await asyncio.sleep(MEMORY_LOOK_S)

    def _now(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for pid in self._pids:
            try:
                root = psutil.Process(pid)
                family = [root, *root.children(recursive=True)]
            except psutil.Error:
                continue
            for process in family:
                try:
                    command = " ".join(process.cmdline())
                    resident = process.memory_info().rss
                except psutil.Error:
                    continue
                role = next((role for part, role in _ROLES if part in command), None)
                if role is not None:
                    found[role] += resident
        return found
