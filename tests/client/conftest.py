"""Fixtures: a fake cluster and a real one, and brokers connected to them.

`redirector` runs a test twice: against the fake, and against real processes, so that the fake stays what a slice is.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest

import shoal
from tests.client.fake_cluster import FakeCluster
from tests.client.real_cluster import RealCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Three fake slices: for tests of faults, and of what travels."""
    cluster = FakeCluster(["s01", "s02", "s03"])
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture(scope="session")
def real_redirector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """host:port of a redirector of three slice nodes, for all tests; or SHOAL_TEST_REDIRECTOR's."""
    given = os.environ.get("SHOAL_TEST_REDIRECTOR")
    if given:
        yield given
        return
    with RealCluster(tmp_path_factory.mktemp("real") / "data") as redirector:
        yield redirector


@pytest.fixture(params=["fake", "real"])
async def redirector(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """host:port of a redirector."""
    if request.param == "real":
        yield request.getfixturevalue("real_redirector")
        return
    cluster = FakeCluster(["s01", "s02", "s03"])
    await cluster.start()
    yield cluster.redirectors[0].address
    await cluster.stop()


@pytest.fixture
async def broker(redirector: str) -> AsyncIterator[shoal.Broker]:
    async with shoal.connect(redirector, deadline_s=30) as broker:
        yield broker


@pytest.fixture
async def fake_broker(cluster: FakeCluster) -> AsyncIterator[shoal.Broker]:
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as broker:
        yield broker
