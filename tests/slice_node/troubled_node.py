"""A node whose disk fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import httpx
from prometheus_client.parser import text_string_to_metric_families

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.admin_pb2 import FiguresRequest
from shoal_contract.wire.admin_pb2_grpc import AdminServiceStub
from shoal_slice_node.adapters.metrics import PREFIX

from .faulty_node import FOLDER
from .node_process import ALONE, How, NodeProcess

WAIT_S = 60
FULL = "the disk of its journal is full: changes are refused until there is room"


class Troubled:
    """A node alone, the folder of its faults, and its log."""

    def __init__(self, node: NodeProcess, faults: Path, log: Path) -> None:
        self.node = node
        self.faults = faults
        self._log = log
        self.http = httpx.AsyncClient(base_url=f"http://{node.http}", trust_env=False, timeout=WAIT_S)

    def lines(self, part: str) -> list[str]:
        return [line for line in self._log.read_text().splitlines() if part in line]

    async def declare(self, queue: bytes) -> None:
        async with self.node.stub() as stub:
            await stub.Declare(wire.DeclareRequest(queue=queue))

    async def until_ready(self, ready: bool) -> str:
        """Returns what /readyz says once it says so: figures are kept for a moment."""
        async with asyncio.timeout(WAIT_S):
            while True:
                answer = await self.http.get("/readyz")
                if (answer.status_code == 200) is ready:
                    return answer.text
                await asyncio.sleep(0.05)

    async def metric(self, name: str, **labels: str) -> float:
        text = (await self.http.get("/metrics")).text
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == PREFIX + name and labels.items() <= sample.labels.items():
                    return float(sample.value)
        raise AssertionError(name)

    async def trouble(self) -> str:
        """As `shoal status` and `shoal top` show it."""
        async with grpc.aio.insecure_channel(self.node.address) as channel:
            return (await AdminServiceStub(channel).Figures(FiguresRequest())).trouble


@asynccontextmanager
async def troubled(folder: Path, *arguments: str) -> AsyncIterator[Troubled]:
    faults, log = folder / "faults", folder / "log"
    faults.mkdir()
    how = How(("-m", "tests.slice_node.faulty_node"), ALONE, log, None, {FOLDER: str(faults)})
    node = await NodeProcess.start(folder / "data", "--http", "127.0.0.1:0", *arguments, how=how)
    found = Troubled(node, faults, log)
    try:
        yield found
        if node.process.returncode is None:
            assert await node.stop() == 0
    finally:
        await found.http.aclose()
        await node.kill()
