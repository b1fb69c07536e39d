"""A real slice node, alone, as a process of its own; and raw sessions to it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

READY_S = 30


class NodeProcess:
    """`http` empty: it was not asked for."""

    def __init__(self, process: asyncio.subprocess.Process, address: str, http: str = "") -> None:
        self.process = process
        self.address = address
        self.http = http

    @classmethod
    async def start(cls, data: Path, *arguments: str) -> NodeProcess:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "shoal_slice_node", "--slice", "s01", "--node", "n01", "--standalone"),
            *("--listen", "127.0.0.1:0", "--data", str(data), *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdout is not None
        async with asyncio.timeout(READY_S):
            line = await process.stdout.readline()
        assert line, f"the node ended with {await process.wait()}"
        ready = json.loads(line)
        return cls(process, ready["address"], ready.get("http", ""))

    async def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def stop(self) -> int:
        """The exit code after SIGTERM."""
        self.process.terminate()
        async with asyncio.timeout(READY_S):
            return await self.process.wait()

    @asynccontextmanager
    async def stub(self) -> AsyncIterator[SliceServiceAsyncStub]:
        async with grpc.aio.insecure_channel(self.address) as channel:
            yield SliceServiceStub(channel)
