"""A fake cluster does what options of queues and keys say, and a refused transaction leaves no trace in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

import shoal
from shoal.testing import FakeCluster
from tests.client.calls import take

WAIT_S = 60


@pytest.fixture
async def memory() -> AsyncIterator[tuple[FakeCluster, shoal.Broker]]:
    cluster = FakeCluster()
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        yield cluster, broker


Memory = tuple[FakeCluster, shoal.Broker]


async def test_poison_goes_to_the_dead_letter_key_of_whichever_slice_once(memory: Memory) -> None:
    cluster, broker = memory
    for dead_letter in [cluster.key_of(name, "dead") for name in cluster.slices]:
        jobs, failed, key = f"jobs-{dead_letter}", f"failed-{dead_letter}", f"key-{dead_letter}"
        await broker.declare(failed)
        await broker.bind(failed, dead_letter)
        await broker.declare(jobs, shoal.QueueOptions(max_deliveries=3, dead_letter=dead_letter))
        await broker.bind(jobs, key)
        await broker.publish_many(key, [b"poison", b"good"], headers=[{"of": b"test"}, None])
        async with broker.consume(jobs) as inbox, broker.consume(failed) as dead:
            for times in range(3):
                for message in await take(inbox, 1 if times else 2):
                    if message.body == b"good":
                        await message.ack()
                    else:
                        assert message.redelivered == times
                        await message.nack()
            (letter,) = await take(dead, 1)
            assert (letter.key, letter.body, letter.headers) == (
                dead_letter,
                b"poison",
                {
                    "of": b"test",
                    "shoal-reason": b"nack",
                    "shoal-key": key.encode(),
                    "shoal-offset": b"1",
                    "shoal-queue": jobs.encode(),
                    "shoal-deliveries": b"3",
                    "shoal-hops": b"1",
                    "shoal-origin-key": key.encode(),
                    "shoal-origin-offset": b"1",
                },
            )
            await inbox.flush()
            assert (await broker.describe(jobs)).messages == 0
            assert (await broker.describe(failed)).messages == 1


async def test_without_a_dead_letter_key_and_after_sessions_that_end_it_is_dropped(memory: Memory) -> None:
    cluster, broker = memory
    await broker.declare("jobs", shoal.QueueOptions(max_deliveries=2))
    await broker.send("jobs", b"poison")
    for times in range(2):
        async with cluster.connect() as other, other.consume("jobs") as inbox:
            assert [message.redelivered for message in await take(inbox, 1)] == [times]
    async with asyncio.timeout(WAIT_S):
        while (await broker.describe("jobs")).messages:  # noqa: ASYNC110 - the slice sees the end a moment later
            await asyncio.sleep(0)


async def test_a_lease_that_ends_counts_as_a_delivery(memory: Memory) -> None:
    _, broker = memory
    await broker.declare("failed")
    await broker.bind("failed", "dead")
    await broker.declare("jobs", shoal.QueueOptions(max_deliveries=1, dead_letter="dead"))
    await broker.send("jobs", b"poison")
    assert len(await shoal.Leases(broker).pull("jobs", 1, lease_ms=50)) == 1
    async with broker.consume("failed") as inbox:
        (letter,) = await take(inbox, 1)
    assert (letter.body, letter.headers["shoal-reason"]) == (b"poison", b"timeout")


async def test_a_message_comes_to_two_dead_letter_keys_at_most(memory: Memory) -> None:
    _, broker = memory
    for number in range(4):
        await broker.declare(f"q{number}", shoal.QueueOptions(max_deliveries=1, dead_letter=f"dead{number + 1}"))
        await broker.bind(f"q{number}", f"dead{number}")
    await broker.publish("dead0", b"poison")
    async with broker.consume([f"q{number}" for number in range(4)]) as inbox:
        for number in range(3):
            (message,) = await take(inbox, 1)
            assert (message.key, message.headers.get("shoal-origin-key", b"dead0")) == (f"dead{number}", b"dead0")
            await message.nack()
        await inbox.flush()
        assert [(await broker.describe(f"q{number}")).messages for number in range(4)] == [0, 0, 0, 0]


async def test_a_message_dies_once_where_dead_letters_go_in_a_circle(memory: Memory) -> None:
    _, broker = memory
    for queue, other in (("a", "b"), ("b", "a")):
        await broker.declare(queue, shoal.QueueOptions(max_deliveries=1, dead_letter=f"to-{other}"))
        await broker.bind(queue, f"to-{queue}")
    await broker.publish("to-a", b"round")
    async with broker.consume(["a", "b"]) as inbox:
        hops = []
        for _ in range(2):
            (message,) = await take(inbox, 1)
            hops.append(int(message.headers.get("shoal-hops", b"0")))
            await message.nack()
        assert hops == [0, 1]
        await inbox.flush()
        assert [(await broker.describe(queue)).messages for queue in "ab"] == [0, 0]


async def test_what_is_not_acked_in_time_goes_to_another_consumer(memory: Memory) -> None:
    cluster, broker = memory
    await broker.declare("jobs", shoal.QueueOptions(ack_timeout_ms=200))
    async with broker.consume("jobs", window_messages=1) as stuck, cluster.connect() as second:
        began = time.monotonic()
        await broker.send("jobs", b"a")
        (message,) = await take(stuck, 1)
        async with second.consume("jobs") as other:
            (again,) = await take(other, 1)
            assert time.monotonic() - began >= 0.2
            assert (again.offset, again.redelivered) == (message.offset, 1)
            await again.ack()
            await other.flush()
    assert (await broker.describe("jobs")).messages == 0


async def test_a_refused_transaction_leaves_no_trace(memory: Memory) -> None:
    cluster, broker = memory
    await broker.configure("{r}key", shoal.KeyOptions(history_messages=5))
    assert (await broker.publish("{r}key", b"1")).offset == 1
    with pytest.raises(shoal.Unroutable):
        async with broker.transaction() as tx:
            tx.publish("{r}key", b"later", not_before=1e9)
            tx.publish("{r}none", b"x", mandatory=True)
    assert (await broker.publish("{r}key", b"2")).offset == 2
    await broker.declare("reader")
    await broker.bind("reader", "{r}key", start=shoal.EARLIEST)
    cluster.publish_due()
    assert [message.body for message in await broker.pull("reader", 9)] == [b"1", b"2"]


async def test_delayed_publishes_come_when_the_test_says_so(memory: Memory) -> None:
    cluster, broker = memory
    keys = [cluster.key_of(name) for name in cluster.slices]
    await broker.declare("queue")
    await broker.bind("queue", keys)
    for key in keys:
        for body, time_s in ((b"last", 4e9), (b"z", 3e9), (b"a", 3e9)):
            assert (await broker.publish(key, body, not_before=time_s)).delayed
    assert (await broker.describe("queue")).messages == 0
    async with broker.consume("queue") as inbox:
        cluster.publish_due()
        found = await take(inbox, 9)
    for key in keys:
        assert [message.body for message in found if message.key == key] == [b"z", b"a", b"last"]
    cluster.publish_due()
    assert (await broker.describe("queue")).messages == 9


async def test_a_capacity_counts_what_is_kept(memory: Memory) -> None:
    _, broker = memory
    await broker.configure("few", shoal.KeyOptions(capacity_messages=2))
    await broker.configure("small", shoal.KeyOptions(capacity_bytes=4))
    await broker.declare("queue")
    await broker.bind("queue", ["few", "small"])
    for key, sizes in (("few", (9, 9)), ("small", (1, 3))):
        for size in sizes:
            await broker.publish(key, b"x" * size)
        with pytest.raises(shoal.ResourceExhausted, match=key):
            await broker.publish(key, b"x")
    await broker.purge("queue")
    for key in ("few", "small"):
        assert (await broker.publish(key, b"x")).offset == 3


async def test_keys_are_configured_each_by_itself(memory: Memory) -> None:
    cluster, broker = memory
    keys = [cluster.key_of(name) for name in ("s01", "s02", "s03")]
    cluster.slices["s02"].go_away()
    with pytest.raises(shoal.OutcomeUnknown, match="1 of 3 keys were not configured") as raised:
        await broker.configure(keys, shoal.KeyOptions(history_messages=5), deadline_s=1)
    assert list(raised.value.failed) == [keys[1]] and list(raised.value.done) == [keys[0], keys[2]]
    assert [(await broker.publish(key, b"kept")).offset for key in (keys[0], keys[2])] == [1, 1]
