"""`shoal.Admin` and purge on a real cluster of two slices: lists over slices in pages, figures, what a purge leaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

import shoal
from shoal_local.cluster import LocalCluster
from tests.folders import NewFolder
from tests.local.node_http import node_http

pytestmark = pytest.mark.asyncio(loop_scope="module")
WAIT_S = 60


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(module_folder: NewFolder) -> AsyncIterator[LocalCluster]:
    folder: Path = module_folder("admin") / "data"
    async with LocalCluster(folder, slices=2) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="module")
async def broker(cluster: LocalCluster) -> AsyncIterator[shoal.Broker]:
    async with shoal.connect(cluster.redirector, deadline_s=WAIT_S) as broker:
        yield broker


async def all_queues(admin: shoal.Admin, prefix: str | bytes, limit: int) -> list[str | bytes]:
    found: list[str | bytes] = []
    after = ""
    while True:
        page = await admin.queues(prefix, after, limit)
        assert len(page.items) <= limit
        found += page.items
        after = page.next
        if not after:
            return found


async def all_keys(admin: shoal.Admin, prefix: str, limit: int) -> dict[str | bytes, int]:
    found: dict[str | bytes, int] = {}
    after = ""
    while True:
        page = await admin.keys(prefix, after, limit)
        found |= {entry.key: entry.queues for entry in page.items}
        after = page.next
        if not after:
            return found


async def test_the_cluster_tells_which_slice_owns_each_partition(broker: shoal.Broker, cluster: LocalCluster) -> None:
    admin = shoal.Admin(broker)
    found = await admin.cluster()
    assert (found.map_version, found.partitions, found.age_ms) == (1, 4096, 0)
    assert {one.slice: one.address for one in found.slices} == cluster.addresses
    assert [one.partitions for one in found.slices] == [2048, 2048]
    owners = await admin.partitions()
    assert len(owners) == 4096 and set(owners) == set(cluster.slices)


async def test_figures_count_and_stay_right_over_a_crash(broker: shoal.Broker, cluster: LocalCluster) -> None:
    admin = shoal.Admin(broker)
    before = [await admin.figures(name) for name in cluster.slices]
    await broker.declare("counted")
    await broker.bind("counted", ["left", "right", "other"])
    await broker.publish_many("left", [b"12", b"345"])
    assert len(await broker.pull("counted", 10)) == 2
    after = [await fresh_figures(admin, name) for name in cluster.slices]

    def grown(value: Callable[[shoal.SliceFigures], int]) -> int:
        return sum(map(value, after)) - sum(map(value, before))

    assert (grown(lambda one: one.keys), grown(lambda one: one.bindings)) == (3, 3)
    assert (grown(lambda one: one.messages), grown(lambda one: one.body_bytes)) == (2, 5)
    assert (grown(lambda one: one.counters.binds), grown(lambda one: one.counters.deliveries)) == (3, 2)
    assert (grown(lambda one: one.counters.publishes), grown(lambda one: one.counters.chunks)) == (2, 1)
    for one in after:
        assert one.memory.resident_bytes > 1 << 20 and one.memory.checkpointer_resident_bytes > 1 << 20
        assert one.disk_bytes > 1 << 20 and one.sessions >= 1 and one.partitions == 2048
        assert one.journal.lsn >= one.journal.applied_lsn >= one.checkpoint.lsn
        assert one.checkpoint.lag_records == one.journal.applied_lsn - one.checkpoint.lsn
    for name in cluster.slices:
        await cluster.kill(name)
        await cluster.restart(name)
    again = [await admin.figures(name) for name in cluster.slices]
    async with httpx.AsyncClient() as http:
        for name in cluster.slices:
            ready = (await http.get(f"http://{node_http(cluster)[name]}/readyz")).json()
            assert (ready["ready"], ready["slice"]) == (True, name)
    for old, new in zip(after, again, strict=True):
        for field in ("queues", "keys", "bindings", "messages", "body_bytes"):
            assert getattr(new, field) == getattr(old, field)
        assert new.counters.publishes == 0 and new.uptime_s < old.uptime_s + WAIT_S and new.epoch > old.epoch


async def fresh_figures(admin: shoal.Admin, name: str) -> shoal.SliceFigures:
    """Gathered from now on: those of the last moment may be given twice."""
    since_ms = time.time() * 1000
    while True:
        found = await admin.figures(name)
        if found.time_ms >= since_ms:
            return found
        await asyncio.sleep(0.02)


async def test_names_come_in_order_from_all_slices_each_once(broker: shoal.Broker) -> None:
    admin = shoal.Admin(broker)
    queues = [f"list-{number:02}" for number in range(30)]
    keys = [f"room {number}%" for number in range(25)]
    await broker.declare([*queues, b"list-\xff"])
    for queue in queues[:10]:
        await broker.bind(queue, keys)
    assert await all_queues(admin, "list-", 7) == [*queues, b"list-\xff"]
    assert await all_queues(admin, b"list-\xff", 1) == [b"list-\xff"]
    assert await all_queues(admin, "list-1", 1000) == queues[10:20]
    for limit in (1, 4, 1000):
        assert await all_keys(admin, "room ", limit) == dict.fromkeys(sorted(keys), 10)
    first = await admin.keys("room ", limit=2)
    assert [entry.key for entry in first.items] == sorted(keys)[:2] and "%25" in first.next
    members = await admin.members(keys[0], limit=6)
    rest = await admin.members(keys[0], members.next, limit=6)
    assert sorted([*members.items, *rest.items]) == queues[:10] and not rest.next
    assert (await admin.members("nobody here")).items == ()


async def test_bindings_of_a_queue_with_cursors_and_backlog(broker: shoal.Broker) -> None:
    admin = shoal.Admin(broker)
    keys = [f"topic-{number}" for number in range(9)]
    await broker.declare("reader")
    await broker.bind("reader", keys)
    await broker.publish_many("topic-1", [b"a", b"b", b"c"])
    await broker.publish("topic-2", b"d")
    await broker.unbind("reader", "topic-2")
    await broker.ack(*(await broker.pull("reader", 1)))
    await broker.flush()
    found: list[shoal.BindingEntry] = []
    after = ""
    while True:
        page = await admin.bindings("reader", after, 2)
        found += page.items
        after = page.next
        if not after:
            break
    assert sorted(entry.key for entry in found) == sorted(keys)
    assert {entry.slice for entry in found} == {"s01", "s02"}
    assert sum(entry.messages for entry in found) == 3
    by_key = {entry.key: entry for entry in found}
    assert by_key["topic-1"].head == by_key["topic-1"].start + 3
    with pytest.raises(shoal.NoSuchQueue):
        await admin.bindings("nobody")


async def test_a_purge_drops_the_backlog_of_all_slices_and_keeps_the_bindings(broker: shoal.Broker) -> None:
    keys = [f"flood-{number}" for number in range(20)]
    await broker.declare(["purged", "beside"])
    await broker.bind("purged", keys)
    await broker.bind("beside", keys)
    for key in keys:
        await broker.publish_many(key, [b"old", b"older"])
    await broker.unbind("purged", keys[0])
    await broker.send("purged", b"direct")
    held = await broker.pull("purged", 3)
    assert await broker.purge("purged") == 41
    await broker.ack(*held)
    await broker.flush()
    assert (await broker.describe("purged")).messages == 0
    assert (await broker.describe("beside")).messages == 40
    assert await broker.purge("purged") == 0
    async with broker.consume("purged") as inbox:
        await broker.publish(keys[5], b"new")
        await broker.send("purged", b"direct again")
        async with asyncio.timeout(WAIT_S):
            assert {(await anext(inbox)).body for _ in range(2)} == {b"new", b"direct again"}
    with pytest.raises(shoal.NoSuchQueue):
        await broker.purge("nobody")


async def test_a_purge_of_many_bindings_goes_on_until_all_are_done(broker: shoal.Broker) -> None:
    keys = [f"wide-{number}" for number in range(12_000)]
    await broker.declare("wide")
    for begin in range(0, len(keys), 1500):
        await broker.bind("wide", keys[begin : begin + 1500])
    receipts = await asyncio.gather(*(broker.publish(key, b"x") for key in keys[::3]))
    assert {receipt.queues for receipt in receipts} == {1}
    assert await broker.purge("wide") == 4000
    assert (await broker.describe("wide")).messages == 0
    await broker.drop("wide")


async def test_bad_questions_are_refused_by_name_and_limit(broker: shoal.Broker) -> None:
    admin = shoal.Admin(broker)
    with pytest.raises(shoal.OutOfRange, match="limit is 0; it needs 1 to 1000"):
        await admin.queues(limit=0)
    with pytest.raises(shoal.OutOfRange, match="limit is 1001; it needs 1 to 1000"):
        await admin.keys(limit=1001)
    with pytest.raises(shoal.OutOfRange, match="there is no slice s09; the cluster has s01, s02"):
        await admin.figures("s09")
    with pytest.raises(shoal.Malformed, match="not of this list"):
        await admin.members("room", "zz")
    with pytest.raises(shoal.Malformed, match="not of this list"):
        await admin.bindings("reader", "s07.00")
    with pytest.raises(shoal.InvalidName, match="prefix is 300 bytes; the limit is 255"):
        await admin.queues("p" * 300)
