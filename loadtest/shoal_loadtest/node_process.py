"""Runs a slice node as a real process: start, stop, kill, and its use of memory and CPU as the kernel reports it.

Belongs here: one process and its checkpointer. Not here: the content of its folder (prepared.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.limits import CHECKPOINTER_QUIET_S, NODE_READY_S_MAX, NODE_STOP_S_MAX

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LOG_FILE = "node.log"


@dataclass(frozen=True)
class Usage:
    """Says what one process of a node uses. Memory in bytes; `cpu_s`: user and system time since it started."""

    resident: int
    proportional: int
    cpu_s: float


class NodeProcess:
    """Runs a slice node. Use as `async with NodeProcess(folder) as node:`; leaving kills the node, as a run's folder is
    thrown away."""

    def __init__(self, data: Path, memory_mib: int = 0) -> None:
        """`memory_mib`: the node's budget; 0: its own default."""
        self.data = data
        self._memory_mib = memory_mib
        self.address = ""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def __aenter__(self) -> NodeProcess:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    async def start(self) -> float:
        """Starts the node. Returns the seconds until its ready line. Raises BenchFailed."""
        self.data.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "shoal_slice_node", "--slice", "s01", "--node", "n01"]
        command += ["--listen", "127.0.0.1:0", "--data", str(self.data), "--standalone"]
        command += ["--memory-mib", str(self._memory_mib)] if self._memory_mib else []
        started_s = time.perf_counter()
        with (self.data.parent / LOG_FILE).open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), NODE_READY_S_MAX)
        except TimeoutError:
            await self.kill()
            raise BenchFailed(f"the node was not ready within {NODE_READY_S_MAX} s") from None
        if not line:
            raise BenchFailed(f"the node ended with {await self._process.wait()}: see {self.data.parent / LOG_FILE}")
        self.address = json.loads(line)["address"]
        return time.perf_counter() - started_s

    async def stop(self) -> float:
        """Stops the node cleanly, with its last checkpoint. Returns the seconds that it took. Raises BenchFailed."""
        started_s = time.perf_counter()
        code = await self._end(signal.SIGTERM)
        if code:
            raise BenchFailed(f"the node ended with {code}: see {self.data.parent / LOG_FILE}")
        return time.perf_counter() - started_s

    async def checkpointed(self) -> None:
        """Waits until the checkpointer has nothing under way: it has used no CPU for a while. Raises BenchFailed."""
        used_s, waited_s = -1.0, 0.0
        while (now_s := self.usage()["checkpointer"].cpu_s) != used_s:
            used_s = now_s
            await asyncio.sleep(CHECKPOINTER_QUIET_S)
            waited_s += CHECKPOINTER_QUIET_S
            if waited_s > NODE_STOP_S_MAX:
                raise BenchFailed(f"the checkpointer was still busy after {NODE_STOP_S_MAX} s")

    async def kill(self) -> None:
        await self._end(signal.SIGKILL)

    async def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        self._process = None
        if process.returncode is None:
            process.send_signal(number)
        try:
            return await asyncio.wait_for(process.wait(), NODE_STOP_S_MAX)
        except TimeoutError:
            process.kill()
            raise BenchFailed(f"the node did not stop within {NODE_STOP_S_MAX} s; it was killed") from None

    def usage(self) -> dict[str, Usage]:
        return usage_of(self.pid)


@dataclass(frozen=True)
class ClusterNode:
    """Stands for a node that other code started and will end."""

    address: str
    pid: int

    @classmethod
    def among(cls, cluster_pid: int) -> ClusterNode:
        """Returns the only slice node among the children of `shoal up`. Raises BenchFailed."""
        for process in psutil.Process(cluster_pid).children(recursive=True):
            command = process.cmdline()
            if "shoal_slice_node" in command:
                return cls(command[command.index("--listen") + 1], process.pid)
        raise BenchFailed("the cluster has no slice node")

    def usage(self) -> dict[str, Usage]:
        return usage_of(self.pid)


def usage_of(pid: int) -> dict[str, Usage]:
    """Returns what a node's `broker` and `checkpointer` use now."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    pids = {"broker": pid, **dict.fromkeys(["checkpointer"], int(children[0]) if children else 0)}
    return {name: _usage(found) for name, found in pids.items() if found}


def _usage(pid: int) -> Usage:
    sizes = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, kibibytes, *_ = line.split()
        sizes[name] = int(kibibytes) * 1024
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return Usage(sizes["Rss:"], sizes["Pss:"], (int(fields[11]) + int(fields[12])) / _TICKS_PER_S)
