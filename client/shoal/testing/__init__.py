"""Lets applications test themselves: a fake cluster in memory, a real one on this machine, fixtures of pytest for both.

In a test, or in any program:

    async with FakeCluster().connect() as broker:
        await broker.declare("inbox-anna")

With pytest, in conftest.py: `pytest_plugins = ["shoal.testing.fixtures"]`, which needs `pip install 'shoal[testing]'`.

Belongs here: what stands in for a cluster, and what starts one. The library itself imports nothing of it.
"""

from shoal.testing.fake_cluster import FakeCluster, FakeRedirector
from shoal.testing.fake_slice import FakeSlice
from shoal.testing.local_cluster import LocalCluster

__all__ = ["FakeCluster", "FakeRedirector", "FakeSlice", "LocalCluster"]
