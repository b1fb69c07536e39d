"""A local cluster whose processes are killed with SIGKILL, each alone and two at once: it serves again by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

import shoal
from shoal_local.cluster import LocalCluster
from tests.folders import NewFolder
from tests.local.said import WAIT_S, Said

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]


class Running:
    """A cluster of two slices with its gateway, a client of it, and what it said."""

    def __init__(self, cluster: LocalCluster, said: Said, broker: shoal.Broker) -> None:
        self.cluster = cluster
        self.said = said
        self.broker = broker

    async def serves(self) -> None:
        """Every slice takes a message, a new client finds its way, and the gateway answers."""
        for key in ("a", "b", "c", "d", "e", "f"):
            await self.broker.publish(key, b"x")
        async with shoal.connect(self.cluster.redirector, deadline_s=WAIT_S) as other:
            await other.publish("a", b"y")
        async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as http:
            answer = await http.post(f"http://{self.cluster.admin}/v1/keys/a/messages", json={"body": "z"})
            assert answer.status_code in (200, 201), answer.text

    def kill(self, *names: str) -> None:
        self.said.clear()
        for name in names:
            os.kill(self.cluster.pid(name), signal.SIGKILL)

    async def back(self, *names: str) -> None:
        for name in names:
            await self.said.until(f"{name} ended by signal 9; starting it again in")
            await self.said.until(f"{name} is ready again")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def running(module_folder: NewFolder) -> AsyncIterator[Running]:
    folder: Path = module_folder("killed") / "data"
    said = Said()
    async with (
        LocalCluster(folder, slices=2, admin="127.0.0.1:0", on_line=said) as cluster,
        shoal.connect(cluster.redirector, deadline_s=WAIT_S) as broker,
    ):
        yield Running(cluster, said, broker)


@pytest.mark.parametrize(
    "names",
    [("etcd",), ("redirector",), ("s01",), ("admin",), ("etcd", "redirector"), ("etcd", "s01"), ("s01", "s02")],
    ids="+".join,
)
async def test_what_is_killed_comes_back_and_the_cluster_serves(running: Running, names: tuple[str, ...]) -> None:
    addresses = (running.cluster.redirector, running.cluster.admin, running.cluster.addresses)
    running.kill(*names)
    await running.back(*names)
    await running.serves()
    assert (running.cluster.redirector, running.cluster.admin, running.cluster.addresses) == addresses


async def test_slices_keep_their_leases_when_etcd_comes_back_at_once(running: Running) -> None:
    before = {name: running.cluster.pid(name) for name in running.cluster.slices}
    running.kill("etcd")
    await running.back("etcd")
    await running.serves()
    assert {name: running.cluster.pid(name) for name in running.cluster.slices} == before
    assert not any(running.said.has(f"{name} ended") for name in before)


async def test_etcd_killed_while_the_redirector_is_down(running: Running) -> None:
    await running.cluster.kill("redirector")
    running.kill("etcd")
    await running.back("etcd")
    await running.cluster.restart("redirector")
    await running.serves()


async def test_slices_that_lost_their_leases_lead_again_once_etcd_is_back(running: Running) -> None:
    """As after an outage longer than a lease: etcd stays down until every slice has stepped down. No process ends."""
    slices = running.cluster.slices
    before = {name: running.cluster.pid(name) for name in slices}
    running.said.clear()
    await running.cluster.kill("etcd")
    for name in slices:
        await running.said.until(
            f"slice {name} WARNING shoal_slice_node.adapters.roles: this node leads its slice no longer"
        )
    await running.cluster.restart("etcd")
    for name in slices:
        await running.said.until(
            f"slice {name} INFO shoal_slice_node.adapters.roles: this node leads its slice in epoch"
        )
    await running.serves()
    assert {name: running.cluster.pid(name) for name in slices} == before
    assert not any(running.said.has(f"{name} ended") for name in slices)
