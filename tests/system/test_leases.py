"""Pull and ack without a session, on a real cluster: leases, acks from another process's connection, backlogs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import shoal
from shoal_local.cluster import LocalCluster

LEASE_MS = 60_000


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(tmp_path / "data", slices=2) as cluster:
        yield cluster


async def offsets(leases: shoal.Leases, queue: str, messages: int = 100, lease_ms: int = LEASE_MS) -> list[int]:
    return [message.offset for message in await leases.pull(queue, messages, lease_ms=lease_ms)]


async def test_what_is_leased_is_acked_by_anyone_and_given_again_otherwise(cluster: LocalCluster) -> None:
    async with (
        shoal.connect(cluster.redirector) as broker,
        shoal.connect(cluster.redirector) as other,
    ):
        leases, others = shoal.Leases(broker), shoal.Leases(other)
        with pytest.raises(shoal.NoSuchQueue):
            await leases.pull("anna", 1, lease_ms=LEASE_MS)
        await broker.declare(["anna", "ben"])
        keys = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
        await broker.bind("anna", keys)
        for key in keys:
            await broker.publish_many(key, [b"one", b"two"])
        before, missing = await leases.backlogs(["anna", "nobody"])
        assert (before.messages, missing.exists) == (16, False)
        assert len(before.slices) == 2, "the keys lie on both slices"

        pulled = await leases.pull("anna", 100, lease_ms=LEASE_MS)
        assert len(pulled) == 16
        assert await offsets(others, "anna") == [], "what is leased is nobody else's"
        await others.ack("anna", [shoal.Done(key, 1, 3) for key in keys])
        assert (await leases.backlogs(["anna"]))[0].messages == 0

        await broker.publish("beta", b"three")
        assert await offsets(leases, "anna", lease_ms=1) == [3]
        again: list[shoal.Message] = []
        while not again:
            again = await others.pull("anna", 1, lease_ms=LEASE_MS)
        assert (again[0].offset, again[0].redelivered) == (3, 1)


async def test_an_ack_by_name_counts_for_an_attached_session(cluster: LocalCluster) -> None:
    async with shoal.connect(cluster.redirector) as broker:
        leases = shoal.Leases(broker)
        await broker.declare("anna")
        await broker.bind("anna", "room")
        async with broker.consume("anna", window_messages=1) as inbox:
            await broker.publish("room", b"one")
            await broker.publish("room", b"two")
            first = await anext(inbox)
            await leases.ack("anna", [shoal.Done("room", first.offset, first.offset + 1)])
            assert (await anext(inbox)).body == b"two", "the ack opened the window"
        assert await offsets(leases, "anna") == [2]
