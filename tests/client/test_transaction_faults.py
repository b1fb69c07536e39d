"""Transactions where streams are lost, partitions move, slices are old, and answers stay away. On the fake."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from shoal_contract.options import DURABLE
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import bound, until
from tests.client.fake_cluster import PARTITIONS, FakeCluster


def changes(cluster: FakeCluster, slice_name: str) -> list[wire.Change]:
    frames = cluster.slices[slice_name].frames
    return [wire.Change.FromString(frame.change) for frame in frames if frame.HasField("change")]


async def test_a_transaction_whose_answer_is_lost_is_done_once(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    slice_.answering.clear()

    async def transact() -> int:
        async with fake_broker.transaction() as tx:
            receipt = tx.publish(key, b"x")
            tx.ack_done(queue, [shoal.Done(key, 1, 2)])
        return receipt.value.offset

    await fake_broker.publish_soon(key, b"1")
    task = asyncio.create_task(transact())
    await until(lambda: slice_.state.keys[key.encode()].head == 3)
    slice_.cut()
    slice_.answering.set()
    assert await task == 2
    assert slice_.state.keys[key.encode()].head == 3
    assert (await fake_broker.describe(queue)).messages == 1


async def test_a_refusal_whose_answer_is_lost_stays_a_refusal(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    _, key = await bound(fake_broker, cluster)
    missing = cluster.queue_with_home("s01", "missing")
    slice_ = cluster.slices["s01"]
    applied = slice_.state.applied
    slice_.answering.clear()

    async def transact() -> None:
        async with fake_broker.transaction() as tx:
            tx.publish(key, b"x")
            tx.bind(missing, key)

    task = asyncio.create_task(transact())
    await until(lambda: slice_.state.applied > applied)
    slice_.state.queues.declare(missing.encode(), DURABLE, 0)
    slice_.cut()
    slice_.answering.set()
    with pytest.raises(shoal.NoSuchQueue):
        await task
    assert slice_.state.keys[key.encode()].head == 1


async def test_a_transaction_follows_its_partition(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster, "s01")
    cluster.slices["s02"].state.keys[key.encode()] = cluster.slices["s01"].state.keys.pop(key.encode())
    cluster.move({partition_of(key.encode(), PARTITIONS): "s02"}, tell=False)

    async def transact() -> shoal.Receipt:
        async with fake_broker.transaction() as tx:
            tx.bind(queue, key)
            receipt = tx.publish(key, b"x")
        return receipt.value

    task = asyncio.create_task(transact())
    await until(lambda: any(change.atomic for change in changes(cluster, "s01")))
    await asyncio.sleep(0.02)
    assert not task.done()
    cluster.announce()
    assert (await task).offset == 1
    assert [change.atomic for change in changes(cluster, "s02")] == [True]


async def test_keys_that_a_move_parts_are_cross_slice(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    await bound(fake_broker, cluster, "s01")
    stays = cluster.key_of("s01", "stays")
    goes = next(
        name
        for name in (f"goes-{number}" for number in range(1000))
        if cluster.owner_of(name).name == "s01"
        and partition_of(name.encode(), PARTITIONS) != partition_of(stays.encode(), PARTITIONS)
    )
    with pytest.raises(shoal.CrossSlice, match="goes"):
        async with fake_broker.transaction() as tx:
            tx.publish(stays, b"x")
            tx.publish(goes, b"y")
            version = fake_broker.map_version
            cluster.move({partition_of(goes.encode(), PARTITIONS): "s02"})
            await until(lambda: fake_broker.map_version > version)
    assert not any(change.atomic for name in cluster.slices for change in changes(cluster, name))


async def test_one_that_is_not_answered_ends_at_its_deadline(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    _, key = await bound(fake_broker, cluster)
    cluster.slices["s01"].answering.clear()
    with pytest.raises(shoal.DeadlineExceeded, match="s01"):
        async with fake_broker.transaction(deadline_s=0.2) as tx:
            receipt = tx.publish(key, b"x")
    with pytest.raises(RuntimeError):
        _ = receipt.value
    cluster.slices["s01"].answering.set()
    assert (await fake_broker.publish(key, b"y")).offset == 2


async def test_a_slice_that_does_not_know_transactions_is_told_of(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = await bound(fake_broker, cluster)
    monkeypatch.setattr("shoal.testing.fake_slice.refused_first", lambda outcome: None)
    with pytest.raises(shoal.Malformed, match="did a part of a transaction"):
        async with fake_broker.transaction() as tx:
            tx.publish(key, b"x")
            tx.bind(cluster.queue_with_home("s01", "missing"), key)
    assert (await fake_broker.publish(key, b"y")).queues == 1


async def test_a_part_made_for_a_queue_that_was_dropped_meanwhile_is_dropped(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = cluster.queue_with_home("s02"), cluster.key_of("s01")
    await fake_broker.declare(queue)
    slice_ = cluster.slices["s01"]
    slice_.answering.clear()

    async def transact() -> int:
        async with fake_broker.transaction() as tx:
            bound_from = tx.bind(queue, key)
        return bound_from.value

    task = asyncio.create_task(transact())
    await until(lambda: queue.encode() in slice_.state.queues)
    cluster.slices["s02"].state.queues.drop(queue.encode(), 0)
    slice_.answering.set()
    assert await task == 1, "it was committed before the queue was dropped"
    await until(lambda: queue.encode() not in slice_.state.queues)
