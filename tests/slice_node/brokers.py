"""Brokers inside the test's own loop, and real gRPC in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc

from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_slice_node.adapters.broker import Broker, BrokerOptions
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.recovery import recover
from shoal_slice_node.adapters.servers import Servers
from shoal_slice_node.core.memory import plan_memory
from shoal_slice_node.storage.data_folder import STORE_FOLDER

OPTIONS = BrokerOptions(plan_memory(512), own_bytes=lambda: 0)
"""What the tests hold in this process is not the broker's."""


@asynccontextmanager
async def running(
    folder: Path, epoch: int = 1, options: BrokerOptions = OPTIONS, checkpoint: bool = False
) -> AsyncIterator[Broker]:
    """A broker that owns every partition. `checkpoint`: it makes one when it stops. What failed inside is raised."""
    failures: list[BaseException] = []
    broker = Broker(await recover(folder), epoch, lambda _, error: failures.append(error), options)
    broker.start()
    try:
        await broker.set_owned(1, b"\x01" * PARTITIONS_DEFAULT)
        yield broker
    finally:
        await broker.stop(checkpoint and not failures)
    if failures:
        raise failures[0]


@asynccontextmanager
async def served(broker: Broker, folder: Path) -> AsyncIterator[str]:
    """Its address."""
    servers = Servers.listen("127.0.0.1:0", "", "", "", OPTIONS.memory.budget_bytes)
    servers.add(broker, Figures(broker, "s01", "n01"), folder / STORE_FOLDER)
    await servers.start()
    try:
        yield servers.address
    finally:
        await servers.stop(0)


@asynccontextmanager
async def connected(broker: Broker, folder: Path) -> AsyncIterator[grpc.aio.Channel]:
    """A channel to it."""
    async with served(broker, folder) as address, grpc.aio.insecure_channel(address) as channel:
        yield channel


@asynccontextmanager
async def connections(
    folder: Path, count: int, options: Sequence[tuple[str, int]] = ()
) -> AsyncIterator[list[grpc.aio.Channel]]:
    """A broker, and so many channels to it, each with a connection of its own. `options`: of each channel."""
    async with running(folder) as broker, served(broker, folder) as address, AsyncExitStack() as stack:
        own = (("grpc.use_local_subchannel_pool", 1), *options)
        yield [
            await stack.enter_async_context(grpc.aio.insecure_channel(address, (*own, ("test", number))))
            for number in range(count)
        ]
