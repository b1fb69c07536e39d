"""What a pull took and could not return is given back at once: any consumer gets it, and it counts no delivery."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

import shoal
from shoal.limits import PULL_AGAIN_MAX
from tests.client.calls import bound, until
from tests.client.fake_cluster import FakeCluster
from tests.client.fake_slice import FakeSlice

ACK_TIMEOUT_MS = 300


@pytest.fixture
async def other(cluster: FakeCluster) -> AsyncIterator[shoal.Broker]:
    """Another consumer of the same queues, on a connection of its own."""
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as broker:
        yield broker


def pulls(slice_: FakeSlice) -> int:
    return sum(frame.HasField("pull") for frame in slice_.frames)


def given(messages: list[shoal.Message]) -> list[tuple[bytes, int]]:
    return sorted((message.body, message.redelivered) for message in messages)


@pytest.fixture
def from_s01(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has pulls begin with the first slice."""
    monkeypatch.setattr("shoal.pulling.random", lambda: 0.0)


async def one(broker: shoal.Broker, cluster: FakeCluster) -> tuple[str, str, FakeSlice]:
    """A queue with one message, at s01."""
    queue, key = await bound(broker, cluster)
    await broker.publish(key, b"job")
    return queue, key, cluster.slices["s01"]


async def cancelled_pull(
    broker: shoal.Broker, queue: str, slice_: FakeSlice, *, messages: int = 9, lease_ms: int = 0
) -> None:
    """Pulls, and leaves before the answer of the slice comes."""
    before = pulls(slice_)
    slice_.answering.clear()
    pulling = asyncio.create_task(broker.pull(queue, messages, lease_ms=lease_ms))
    await until(lambda: pulls(slice_) > before)
    pulling.cancel()
    await asyncio.wait([pulling])


async def settled(broker: shoal.Broker, queue: str, *keys: str) -> None:
    """Waits until the slices of these keys have answered all that was asked before, and what is given back is there."""
    await broker.bind(queue, keys)
    await broker.flush()


@pytest.mark.parametrize("lease_ms", [0, 3_600_000])
async def test_another_consumer_gets_what_a_cancelled_pull_took(
    lease_ms: int, cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker
) -> None:
    queue, key, slice_ = await one(fake_broker, cluster)
    await cancelled_pull(fake_broker, queue, slice_, lease_ms=lease_ms)
    slice_.answering.set()
    await settled(fake_broker, queue, key)
    assert given(await other.pull(queue, 9)) == [(b"job", 0)]
    assert await fake_broker.pull(queue, 9) == [], "it is the other consumer's"


async def test_another_consumer_gets_what_a_silent_slice_gave_too_late(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.pulling.PULL_PATIENCE_S", 0.05)
    queue, key, slice_ = await one(fake_broker, cluster)
    there = cluster.key_of("s02", "there")
    await fake_broker.bind(queue, there)
    await fake_broker.publish(there, b"job of s02")
    slice_.answering.clear()
    assert given(await fake_broker.pull(queue, 9)) == [(b"job of s02", 0)]
    slice_.answering.set()
    await settled(fake_broker, queue, key)
    assert given(await other.pull(queue, 9)) == [(b"job", 0)]


async def test_what_another_consumer_has_done_since_is_not_handed_out(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker
) -> None:
    queue, key, slice_ = await one(fake_broker, cluster)
    await cancelled_pull(fake_broker, queue, slice_)
    slice_.answering.set()
    await settled(fake_broker, queue, key)
    (message,) = await other.pull(queue, 9)
    await message.ack()
    await other.flush()
    assert await fake_broker.pull(queue, 9) == []


@pytest.mark.parametrize("anew", [False, True])
async def test_of_a_queue_that_was_dropped_nothing_late_is_handed_out(
    anew: bool, cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key, slice_ = await one(fake_broker, cluster)
    await cancelled_pull(fake_broker, queue, slice_)
    slice_.answering.set()
    await fake_broker.drop(queue)
    if not anew:
        with pytest.raises(shoal.NoSuchQueue):
            await fake_broker.pull(queue, 9)
        return
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"of the new life")
    assert given(await fake_broker.pull(queue, 9)) == [(b"of the new life", 0)]


@pytest.mark.parametrize("again", [False, True])
async def test_what_comes_in_time_and_was_given_back_before_is_given_to_one_consumer(
    again: bool, cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker
) -> None:
    """The ack timeout ends while the slice is silent, so that two answers bring the same message. The first one comes
    too late: the nack of it means what the second one brought, too."""
    queue, key, slice_ = cluster.queue_with_home("s01"), cluster.key_of("s01"), cluster.slices["s01"]
    await fake_broker.declare(queue, shoal.QueueOptions(ack_timeout_ms=ACK_TIMEOUT_MS))
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"job")
    for _ in range(2 if again else 1):
        await cancelled_pull(fake_broker, queue, slice_)
        await asyncio.sleep(ACK_TIMEOUT_MS / 1000 + 0.1)
    before = pulls(slice_)
    second = asyncio.create_task(fake_broker.pull(queue, 9))
    await until(lambda: pulls(slice_) > before)
    slice_.answering.set()
    mine = await second
    await fake_broker.flush()
    theirs = await other.pull(queue, 9)
    assert [message.body for message in mine + theirs] == [b"job"]
    assert mine, "it asks again"


@pytest.mark.parametrize("late", ["cancelled", "too late"])
async def test_a_key_is_handed_out_in_order_though_a_late_pull_took_what_comes_first(
    late: str, cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pull behind it has what comes next already. That was handed out, and then what the late one had taken."""
    monkeypatch.setattr("shoal.pulling.PULL_PATIENCE_S", 0.05)
    queue, key, slice_ = await one(fake_broker, cluster)
    there = cluster.key_of("s02", "there")
    await fake_broker.bind(queue, there)
    for number in range(3):
        await fake_broker.publish(key, b"%d" % number)
    if late == "cancelled":
        await cancelled_pull(fake_broker, queue, slice_, messages=2)
    else:
        await fake_broker.publish(there, b"job of s02")
        slice_.answering.clear()
        assert given(await fake_broker.pull(queue, 2)) == [(b"job of s02", 0)]
    before = pulls(slice_)
    pulling = asyncio.create_task(fake_broker.pull(queue, 2))
    await until(lambda: pulls(slice_) > before)
    slice_.answering.set()
    found = [*await pulling, *await fake_broker.pull(queue, 9)]
    assert [(message.body, message.redelivered) for message in found] == [(b"job", 0), (b"0", 0), (b"1", 0), (b"2", 0)]


async def test_a_pull_ends_though_a_nack_of_what_it_brings_has_no_room(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked on without a pause, thousands of times a second, and what is behind it in its key was never given."""
    monkeypatch.setattr("shoal.nack_sender.ACK_AGAIN_S", 3_600)
    queue, key, slice_ = await one(fake_broker, cluster)
    await fake_broker.publish(key, b"next")
    (job,) = await fake_broker.pull(queue, 1, lease_ms=ACK_TIMEOUT_MS)
    slice_.refuse_frames = [shoal.ResourceExhausted("no room", subject="resting messages")]
    await job.nack(delay_s=60)
    await until(lambda: not slice_.refuse_frames)
    await asyncio.sleep(ACK_TIMEOUT_MS / 1000 + 0.1)
    before = pulls(slice_)
    found = [await fake_broker.pull(queue, 1), await fake_broker.pull(queue, 9)]
    assert sum(map(len, found)) == 1 and given([*found[0], *found[1]]) == [(b"next", 0)]
    assert pulls(slice_) - before < 20


async def test_a_pull_asks_a_few_times_where_all_that_it_gives_back_comes_again(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue has nothing else: the bound alone ends the pull."""
    monkeypatch.setattr("shoal.nack_sender.ACK_AGAIN_S", 3_600)
    queue, key, slice_ = cluster.queue_with_home("s01"), cluster.key_of("s01"), cluster.slices["s01"]
    await fake_broker.declare(queue, shoal.QueueOptions(ack_timeout_ms=ACK_TIMEOUT_MS))
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"job")
    (job,) = await fake_broker.pull(queue, 1)
    slice_.refuse_frames = [shoal.ResourceExhausted("no room", subject="resting messages")]
    await job.nack(delay_s=60)
    await until(lambda: not slice_.refuse_frames)
    await asyncio.sleep(ACK_TIMEOUT_MS / 1000 + 0.1)
    before = pulls(slice_)
    assert await fake_broker.pull(queue, 1) == []
    assert pulls(slice_) - before == 1 + PULL_AGAIN_MAX


@pytest.mark.usefixtures("from_s01")
async def test_a_pull_behind_what_was_given_back_gets_it(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    """The nack goes before the question, also in the same turn of the loop."""
    queue, key, slice_ = await one(fake_broker, cluster)
    other_key = cluster.key_of("s02", "other")
    await fake_broker.bind(queue, other_key)
    silent = [cluster.slices["s02"], cluster.slices["s03"]]
    for silent_one in silent:
        silent_one.ignored = {"pull"}

    async def twice() -> list[shoal.Message]:
        with contextlib.suppress(asyncio.CancelledError):
            await fake_broker.pull(queue, 9)
        for silent_one in silent:
            silent_one.ignored = set()
        return await fake_broker.pull(queue, 9)

    pulling = asyncio.create_task(twice())
    await until(lambda: bool(slice_.state.keys[key.encode()].bindings[queue.encode()].given))
    await fake_broker.bind(queue, key)  # Answered after the pull.
    pulling.cancel()
    assert given(await pulling) == [(b"job", 0)]


async def test_a_pull_returns_no_more_than_was_asked_for(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices that answer late, and in the same moment, bring as many each."""
    monkeypatch.setattr("shoal.pulling.PULL_PATIENCE_S", 0.05)
    queue, key, _ = await one(fake_broker, cluster)
    there = cluster.key_of("s02", "there")
    await fake_broker.bind(queue, there)
    await fake_broker.publish(there, b"job of s02")
    slices = [cluster.slices["s01"], cluster.slices["s02"]]
    for slice_ in slices:
        slice_.answering.clear()
    pulling = asyncio.create_task(fake_broker.pull(queue, 1))
    await until(lambda: all(map(pulls, slices)))
    for slice_ in slices:
        slice_.answering.set()
    mine = await pulling
    await settled(fake_broker, queue, key, there)
    assert len(mine) == 1
    assert sorted([*given(mine), *given(await other.pull(queue, 9))]) == [(b"job", 0), (b"job of s02", 0)]


@pytest.mark.usefixtures("from_s01")
async def test_a_pull_that_a_close_ends_raises_its_own_error(cluster: FakeCluster) -> None:
    """What it has cannot be given back then: its slice gives it again."""
    silent = [cluster.slices["s02"], cluster.slices["s03"]]
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as broker:
        queue, key, slice_ = await one(broker, cluster)
        for silent_one in silent:
            silent_one.ignored = {"pull"}
        pulling = asyncio.create_task(broker.pull(queue, 9))
        await until(lambda: bool(slice_.state.keys[key.encode()].bindings[queue.encode()].given))
        await broker.bind(queue, key)  # Answered after the pull.
        broker._pulling.close()
        pulling.cancel()
        await asyncio.wait([pulling])
        assert pulling.cancelled()
    for silent_one in silent:
        silent_one.ignored = set()
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as other:
        assert [message.body for message in await other.pull(queue, 9)] == [b"job"]
