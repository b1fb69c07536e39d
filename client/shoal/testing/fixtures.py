"""Offers fixtures of pytest: `pytest_plugins = ["shoal.testing.fixtures"]` in the conftest.py at the top of the tests.

| fixture | gives |
|---|---|
| `shoal_cluster` | a FakeCluster of three slices, new for each test |
| `shoal_broker` | a connection to `shoal_cluster` |
| `shoal_local_cluster` | a real LocalCluster of three slices, one for the whole run; needs `shoal[ops]` |
| `shoal_local_broker` | a connection to `shoal_local_cluster`, new for each test |

The real cluster keeps its queues from one test to the next: name them differently, or drop them. Under pytest-xdist
each worker starts one. Its data, 0.3 GB, is removed at the end, unless a test failed. Not here: what the fixtures give.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator

import pytest

from shoal.broker import Broker, connect
from shoal.testing.fake_cluster import FakeCluster
from shoal.testing.limits import LOCAL_DEADLINE_S
from shoal.testing.local_cluster import LocalCluster

try:
    import pytest_asyncio
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "shoal.testing.fixtures needs pytest-asyncio: pip install 'shoal[testing]'", name=error.name
    ) from None


@pytest.fixture
def shoal_cluster() -> FakeCluster:
    """Returns a fake cluster of three slices, for one test."""
    return FakeCluster()


@pytest_asyncio.fixture
async def shoal_broker(shoal_cluster: FakeCluster) -> AsyncIterator[Broker]:
    """Yields a connection to the fake cluster."""
    async with shoal_cluster.connect() as broker:
        yield broker


@pytest.fixture(scope="session")
def shoal_local_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """Yields a real cluster of three slices, for all tests. Raises ModuleNotFoundError where it cannot run."""
    folder = tmp_path_factory.mktemp("shoal")
    with LocalCluster(folder / "data") as cluster:
        yield cluster
    if not request.session.testsfailed:
        shutil.rmtree(folder, ignore_errors=True)


@pytest_asyncio.fixture
async def shoal_local_broker(shoal_local_cluster: LocalCluster) -> AsyncIterator[Broker]:
    """Yields a connection to the real cluster."""
    async with connect(shoal_local_cluster.address, deadline_s=LOCAL_DEADLINE_S) as broker:
        yield broker
