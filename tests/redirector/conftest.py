"""A real etcd with a cluster in it, and real redirector processes."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import httpx
import pytest

from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceStub
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_local.etcd import LocalEtcd

if TYPE_CHECKING:
    from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceAsyncStub

CLUSTER = "test"
PARTITIONS = 64
SLICES = ("s1", "s2", "s3")
WAIT_S = 60


@dataclass(frozen=True)
class Redirector:
    """A running process, and clients of it. `stub` is of its gRPC service."""

    process: asyncio.subprocess.Process
    ready: dict[str, object]
    channel: grpc.aio.Channel
    http: httpx.AsyncClient

    @property
    def stub(self) -> "RedirectorServiceAsyncStub":
        return RedirectorServiceStub(self.channel)


@pytest.fixture
async def etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    etcd = LocalEtcd(tmp_path / "etcd")
    await etcd.start()
    yield etcd
    await etcd.stop()


@pytest.fixture
async def client(etcd: LocalEtcd) -> AsyncIterator[EtcdClient]:
    async with EtcdClient(etcd.options()) as client:
        yield client


@pytest.fixture
async def cluster(client: EtcdClient) -> None:
    await create_cluster(client, CLUSTER, SLICES, PARTITIONS)


async def launch(endpoint: str, *more: str, stderr: int | None = None) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "shoal_redirector", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command += ["--etcd", endpoint, "--cluster", CLUSTER, *more]
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=stderr)


async def until_ready(process: asyncio.subprocess.Process, stack: AsyncExitStack) -> Redirector:
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_S):
        ready = json.loads(await process.stdout.readline())
    channel = await stack.enter_async_context(grpc.aio.insecure_channel(ready["grpc"]))
    http = await stack.enter_async_context(httpx.AsyncClient(base_url=f"http://{ready['http']}", trust_env=False))
    return Redirector(process, ready, channel, http)


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest.fixture
async def redirector(etcd: LocalEtcd, cluster: None) -> AsyncIterator[Redirector]:
    async with AsyncExitStack() as stack:
        process = await launch(etcd.endpoint)
        stack.push_async_callback(end, process)
        yield await until_ready(process, stack)
