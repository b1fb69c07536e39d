"""Fixtures: a fake cluster and a real one, and brokers connected to them.

`connect` runs a test three times: against the fake over gRPC, against the fake in memory as `shoal.testing` gives it to
users, and against real processes. So the fake stays what a slice is, and every transport what the client needs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

import shoal
import shoal.testing
from tests.client.fake_cluster import FakeCluster

Connect = Callable[[], shoal.Broker]
DEADLINE_S = 30


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Three fake slices: for tests of faults, and of what travels."""
    cluster = FakeCluster(["s01", "s02", "s03"])
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture(params=["fake", "memory", "real"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Makes connections to a cluster of three slices: one cluster a test, except for the real one."""
    if request.param == "real":
        address = request.getfixturevalue("real_redirector")
        yield lambda: shoal.connect(address, deadline_s=DEADLINE_S)
        return
    if request.param == "memory":
        in_memory = shoal.testing.FakeCluster()
        yield lambda: in_memory.connect(deadline_s=DEADLINE_S)
        return
    cluster = FakeCluster(["s01", "s02", "s03"])
    await cluster.start()
    yield lambda: shoal.connect(cluster.redirectors[0].address, deadline_s=DEADLINE_S)
    await cluster.stop()


@pytest.fixture
async def broker(connect: Connect) -> AsyncIterator[shoal.Broker]:
    async with connect() as broker:
        yield broker


@pytest.fixture
async def fake_broker(cluster: FakeCluster) -> AsyncIterator[shoal.Broker]:
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as broker:
        yield broker
