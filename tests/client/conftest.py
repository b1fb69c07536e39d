"""Fixtures: a fake cluster, and brokers connected to it. `redirector` may be pointed at a real cluster instead."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest

import shoal
from tests.client.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Three fake slices: for tests of faults, and of what travels."""
    cluster = FakeCluster(["s01", "s02", "s03"])
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
async def redirector() -> AsyncIterator[str]:
    """host:port of a redirector: a fake cluster's, or SHOAL_TEST_REDIRECTOR's."""
    real = os.environ.get("SHOAL_TEST_REDIRECTOR")
    if real:
        yield real
        return
    cluster = FakeCluster(["s01", "s02", "s03"])
    await cluster.start()
    yield cluster.redirectors[0].address
    await cluster.stop()


@pytest.fixture
async def broker(redirector: str) -> AsyncIterator[shoal.Broker]:
    async with shoal.connect(redirector, deadline_s=10) as broker:
        yield broker


@pytest.fixture
async def fake_broker(cluster: FakeCluster) -> AsyncIterator[shoal.Broker]:
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as broker:
        yield broker
