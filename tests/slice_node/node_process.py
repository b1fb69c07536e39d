"""A real slice node as a process of its own, and what it takes of the machine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import psutil

from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

READY_S = 30
ALONE = ("--standalone",)


@dataclass(frozen=True)
class How:
    """`program`: what Python runs. `where`: the arguments of its cluster. `log`: where its log goes. `folder`: in which
    it works. `environment`: besides the test's own."""

    program: Sequence[str] = ("-m", "shoal_slice_node")
    where: Sequence[str] = ALONE
    log: Path | None = None
    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


PLAINLY = How()


class NodeProcess:
    """`http` empty: it was not asked for. `admin`: the same as `address`, unless it has a port of its own."""

    def __init__(self, process: asyncio.subprocess.Process, address: str, http: str = "", admin: str = "") -> None:
        self.process = process
        self.address = address
        self.http = http
        self.admin = admin or address
        self._measured = psutil.Process(process.pid)

    @classmethod
    async def start(cls, data: Path, *arguments: str, how: How = PLAINLY) -> NodeProcess:
        process = await launch(data, *arguments, how=how)
        assert process.stdout is not None
        async with asyncio.timeout(READY_S):
            line = await process.stdout.readline()
        assert line, f"the node ended with {await process.wait()}"
        ready = json.loads(line)
        return cls(process, ready["address"], ready.get("http", ""), ready.get("admin", ""))

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """The exit code after SIGTERM."""
        self.process.terminate()
        async with asyncio.timeout(READY_S):
            return await self.process.wait()

    @property
    def alive(self) -> bool:
        return self._measured.is_running() and self._measured.status() != psutil.STATUS_ZOMBIE

    @property
    def resident_bytes(self) -> int:
        return int(self._measured.memory_info().rss)

    @property
    def processor_s(self) -> float:
        """Processor time that it took since its start."""
        times = self._measured.cpu_times()
        return float(times.user + times.system)

    @asynccontextmanager
    async def stub(self) -> AsyncIterator[SliceServiceAsyncStub]:
        async with grpc.aio.insecure_channel(self.address) as channel:
            yield SliceServiceStub(channel)


async def launch(data: Path, *arguments: str, how: How = PLAINLY) -> asyncio.subprocess.Process:
    """Starts a node that may never be ready."""
    with ExitStack() as stack:
        log = asyncio.subprocess.DEVNULL if how.log is None else stack.enter_context(how.log.open("ab"))
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *how.program, "--slice", "s01", "--node", "n01", *how.where),
            *("--listen", "127.0.0.1:0", "--data", str(data), *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            cwd=how.folder,
            env={**os.environ, **how.environment},
        )


async def refusal_to_start(data: Path, *arguments: str, how: How) -> str:
    """Starts a node that must not serve. Returns its log once it has ended by itself."""
    process = await launch(data, *arguments, how=how)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(READY_S):
            line = await process.stdout.readline()
            assert not line, f"it serves: {line!r}"
            assert await process.wait() not in (0, None)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
    return "" if how.log is None else how.log.read_text()
