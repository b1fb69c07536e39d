"""A server ends connections that have no calls for a while. The library comes back by itself, and its user sees no
error. Streams are calls: a session that only consumes, or a watch of the map, is not idle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import shoal
from shoal_runtime import grpc_server
from shoal_runtime.connections import Connections
from tests.client.calls import bound, until
from tests.client.fake_cluster import FakeCluster

IDLE_MS = 400
WAIT_S = 60


@pytest.fixture
async def impatient(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeCluster]:
    """A cluster whose servers end connections without calls soon."""
    options = dict(grpc_server.OPTIONS) | {"grpc.max_connection_idle_ms": IDLE_MS}
    monkeypatch.setattr(grpc_server, "OPTIONS", tuple(options.items()))
    cluster = FakeCluster(["s01", "s02", "s03"])
    await cluster.start()
    yield cluster
    await cluster.stop()


def connections(address: str) -> int:
    return len(list(Connections().look((int(address.rpartition(":")[2]),))))


async def test_calls_publishes_messages_and_the_map_go_on_after_an_idle_time(impatient: FakeCluster) -> None:
    home, redirector = impatient.slices["s01"].address, impatient.redirectors[0]
    async with (
        asyncio.timeout(WAIT_S),
        shoal.connect(redirector.address, deadline_s=10) as broker,
        broker.consume(()) as inbox,
    ):
        queue, key = await bound(broker, impatient)
        await inbox.attach(queue)
        opened, watches = len(impatient.slices["s01"].opens), redirector.watches
        streams = connections(home)
        for number in range(3):
            assert (await shoal.Admin(broker).queues()).items == (queue,), "a call, on the connection of calls"
            assert connections(home) == streams + 1
            await broker.publish(key, b"%d" % number)
            message = await anext(inbox)
            assert message.body == b"%d" % number
            await message.ack()
            await inbox.flush()
            await until(lambda: connections(home) == streams)
        assert len(impatient.slices["s01"].opens) == opened, "sessions are streams: none of them ended"
        assert redirector.watches == watches, "nor did the watch of the map"
