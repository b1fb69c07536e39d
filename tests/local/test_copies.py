"""A copy of a cluster's folder that runs beside its original: nothing that is told the copy reaches the original."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal_contract.errors import OutcomeUnknown, Unavailable
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_watch import first_view
from shoal_coordination.entries import Transaction
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.records import NodeRecord, encode_record
from shoal_local.cluster import LocalCluster
from shoal_local.commands import CLUSTER
from shoal_local.etcd import LocalEtcd
from shoal_local.former_leaders import forget_addresses
from shoal_local.ports import free_port
from shoal_local.record import ETCD, ETCD_PEERS, read_record
from tests.local.said import WAIT_S, Said

QUEUE = "inbox"
KEYS = [f"key-{number}" for number in range(32)]
"""So many that both slices have some."""


@pytest.fixture
async def copied(tmp_path: Path) -> tuple[Path, Path]:
    """The folder of a stopped cluster of two slices, with a queue that has every key; and a copy of it."""
    original = tmp_path / "original"
    async with LocalCluster(original, slices=2) as cluster, shoal.connect(cluster.redirector) as broker:
        await broker.declare(QUEUE)
        await broker.bind(QUEUE, KEYS)
    return original, Path(shutil.copytree(original, tmp_path / "copy"))


async def test_what_is_published_while_the_copy_starts_is_in_the_copy(copied: tuple[Path, Path]) -> None:
    original, copy = copied
    at = f"127.0.0.1:{free_port()}"

    async def publish() -> None:
        async with shoal.connect(at, deadline_s=WAIT_S) as broker:
            await asyncio.gather(*(broker.publish(key, b"for the copy") for key in KEYS))

    async with LocalCluster(original) as first, shoal.connect(first.redirector) as broker:
        publishing = asyncio.ensure_future(publish())
        async with LocalCluster(copy, listen=at), shoal.connect(at) as copy_broker:
            await publishing
            assert (await copy_broker.describe(QUEUE)).messages == len(KEYS)
        assert (await broker.describe(QUEUE)).messages == 0


async def test_clients_that_wait_for_the_original_do_not_reach_the_copy(copied: tuple[Path, Path]) -> None:
    """They know the addresses of its slices, and try them again while it is down."""
    original, copy = copied
    said = Said()
    async with AsyncExitStack() as waiting:
        async with LocalCluster(original) as first:
            addresses = first.addresses
            broker = await waiting.enter_async_context(shoal.connect(first.redirector))
            await asyncio.gather(*(broker.publish(key, b"before") for key in KEYS))
        second = await waiting.enter_async_context(LocalCluster(copy, on_line=said))
        copy_broker = await waiting.enter_async_context(shoal.connect(second.redirector))
        assert not {*second.addresses.values()} & {*addresses.values()}
        assert said.has(f"this folder is a copy of {original}, or was moved from there: its slices and etcd are at")
        told = await asyncio.gather(*(broker.publish(key, b"x", deadline_s=2) for key in KEYS), return_exceptions=True)
        assert all(isinstance(answer, OutcomeUnknown) for answer in told)
        assert (await copy_broker.describe(QUEUE)).messages == 0


async def test_a_folder_that_was_moved_or_put_back_keeps_its_ports(copied: tuple[Path, Path]) -> None:
    original, copy = copied
    ports = read_record(original).ports
    moved = original.rename(original.with_name("moved"))
    shutil.copytree(copy, original)
    for folder in (moved, original):
        async with LocalCluster(folder):
            assert read_record(folder).ports == ports


@asynccontextmanager
async def etcd_of(folder: Path) -> AsyncIterator[EtcdClient]:
    """Runs the etcd of a stopped cluster, alone."""
    ports = read_record(folder).ports
    etcd = LocalEtcd(folder / ETCD, port=ports[ETCD], peer_port=ports[ETCD_PEERS])
    await etcd.start()
    try:
        async with EtcdClient(etcd.options()) as client:
            yield client
    finally:
        await etcd.stop()


async def test_only_the_addresses_of_former_leaders_are_forgotten(copied: tuple[Path, Path]) -> None:
    async with etcd_of(copied[0]) as client:
        before = (await first_view(client, CLUSTER)).slices
        assert all(one.leader_address and one.epoch and one.lsn and one.incarnation for one in before.values())
        for _ in range(2):
            await forget_addresses(client)
            assert (await first_view(client, CLUSTER)).slices == {
                name: replace(one, leader_address="", leader_admin_address="") for name, one in before.items()
            }


@pytest.mark.parametrize("times", [1, 1_000])
async def test_a_record_that_changes_while_addresses_are_forgotten_is_not_overwritten(
    copied: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """A node of a former start claims its slice meanwhile, once, or again and again."""
    transact = EtcdClient.transact
    claims = count(2)

    async def claimed_before(client: EtcdClient, compare: Any, puts: Any, otherwise: Any = ()) -> Transaction:
        epoch = next(claims)
        if epoch < 2 + times:
            record = replace(
                (await first_view(client, CLUSTER)).slices["s01"], epoch=epoch, leader_address=f"h:{epoch}"
            )
            await client.put(ClusterKeys(CLUSTER).slice("s01"), encode_record(record))
        return await transact(client, compare, puts, otherwise)

    async with etcd_of(copied[0]) as client:
        monkeypatch.setattr(EtcdClient, "transact", claimed_before)
        if times > 1:
            with pytest.raises(Unavailable, match="a node of a former start still runs and leads"):
                await forget_addresses(client)
        else:
            await forget_addresses(client)
        slices = (await first_view(client, CLUSTER)).slices
        last = next(claims) - 1
        told = ("", 2) if times == 1 else (f"h:{last}", last)
        assert (slices["s01"].leader_address, slices["s01"].epoch) == told
        assert bool(slices["s02"].leader_address) is (times > 1), "all of them, or none"


async def test_a_copy_of_killed_nodes_names_none_of_the_addresses_that_they_had(copied: tuple[Path, Path]) -> None:
    """Its etcd has their registrations, which nothing ended: leases outlive a kill, and the copy."""
    original, copy = copied
    async with etcd_of(copy) as client:
        for name, one in (await first_view(client, CLUSTER)).slices.items():
            node = NodeRecord(one.leader, one.leader_address, name, one.leader_admin_address)
            await client.put(ClusterKeys(CLUSTER).node(node.node), encode_record(node), await client.grant_lease(3_600))
        view = await first_view(client, CLUSTER)
        assert all(view.leads(name) for name in view.slices)
    shutil.rmtree(copy / "s02")
    async with (
        LocalCluster(original),
        LocalCluster(copy, partly=True) as second,
        shoal.connect(second.redirector) as broker,
    ):
        slices = (await shoal.Admin(broker).cluster()).slices
        assert [(one.slice, bool(one.address)) for one in slices] == [("s01", True), ("s02", False)]


async def test_a_slice_of_the_copy_that_does_not_start_has_no_address(copied: tuple[Path, Path]) -> None:
    original, copy = copied
    shutil.rmtree(copy / "s02")
    async with (
        LocalCluster(original) as first,
        LocalCluster(copy, partly=True) as second,
        shoal.connect(first.redirector) as broker,
        shoal.connect(second.redirector, deadline_s=2) as copy_broker,
    ):
        assert list(second.missing) == ["s02"]
        slices = (await shoal.Admin(copy_broker).cluster()).slices
        assert [(one.slice, bool(one.address), one.epoch) for one in slices] == [("s01", True, 2), ("s02", False, 1)]
        told = await asyncio.gather(*(copy_broker.publish(key, b"x") for key in KEYS), return_exceptions=True)
        refused = [key for key, answer in zip(KEYS, told, strict=True) if isinstance(answer, OutcomeUnknown)]
        assert 0 < len(refused) < len(KEYS)
        assert (await broker.describe(QUEUE)).messages == 0
        with pytest.raises(shoal.Unavailable, match="slice s02 has no leader"):
            await shoal.Admin(copy_broker).figures("s02")
