"""Brokers inside the test's own loop, and real gRPC in front of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc

from shoal_contract.data_folder import STORE_FOLDER
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_slice_node.adapters.broker import Broker, BrokerOptions
from shoal_slice_node.adapters.figures import Figures
from shoal_slice_node.adapters.lead import Lead
from shoal_slice_node.adapters.node_data import DataOptions, NodeData
from shoal_slice_node.adapters.recovery import recover
from shoal_slice_node.adapters.servers import Servers
from shoal_slice_node.core.memory import plan_memory

WAIT_S = 60
OPTIONS = BrokerOptions(plan_memory(512), own_bytes=lambda: 0)
"""What the tests hold in this process is not the broker's."""


@asynccontextmanager
async def running(
    folder: Path,
    epoch: int = 1,
    options: BrokerOptions = OPTIONS,
    checkpoint: bool = False,
    archive: Path | None = None,
    archive_every_s: float = 0,
) -> AsyncIterator[Broker]:
    """A broker that owns every partition. `checkpoint`: it makes one when it stops. What failed inside is raised. No
    binding may have been silent: the watchman serves those that it finds, and so hides the fault."""
    failures: list[BaseException] = []

    def failed(_: str, error: BaseException) -> None:
        failures.append(error)

    data_options = DataOptions(options.memory.delta_bytes, archive, archive_every_s)
    data = NodeData(await recover(folder), data_options, failed)
    data.start()
    broker = Broker(data, Lead(epoch), failed, options)
    broker.start()
    try:
        await broker.set_owned(1, b"\x01" * PARTITIONS_DEFAULT)
        yield broker
        assert broker.watchman.silent == 0, "the watchman found silent bindings"
    finally:
        clean = checkpoint and not failures
        await broker.stop(WAIT_S if clean else 0)
        await data.close(clean)
    if failures:
        raise failures[0]


@asynccontextmanager
async def served(broker: Broker, folder: Path) -> AsyncIterator[str]:
    """Its address."""
    servers = Servers("127.0.0.1:0", "", "", "", OPTIONS.memory.budget_bytes, broker.watchman.unread)
    servers.serve(broker, Figures(broker, "s01", "n01"), folder / STORE_FOLDER)
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
