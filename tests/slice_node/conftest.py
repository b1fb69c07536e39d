"""An etcd of its own for tests of nodes in a cluster."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shoal_coordination.client import EtcdClient
from shoal_local.etcd import LocalEtcd
from tests.folders import NewFolder


@pytest.fixture
async def client(test_folder: NewFolder) -> AsyncIterator[EtcdClient]:
    folder: Path = test_folder("etcd")
    etcd = LocalEtcd(folder / "etcd")
    await etcd.start()
    async with EtcdClient(etcd.options()) as client:
        yield client
    await etcd.stop()


@pytest.fixture
def cluster() -> str:
    return f"c{uuid.uuid4().hex}"
