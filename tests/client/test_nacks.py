"""Nacks, ack timeouts and dead letters as applications see them: on fakes, and on a cluster of three slices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import shoal
from shoal import Broker
from shoal.core.acks import Acked
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeats import Repeats
from shoal_contract.arguments import check_delay_ms
from tests.client.calls import fresh, take

from .fake_cluster import FakeCluster

WAIT_S = 30


@pytest.fixture
async def real(real_redirector: str) -> AsyncIterator[Broker]:
    async with shoal.connect(real_redirector, deadline_s=WAIT_S) as broker:
        yield broker


async def bound(broker: Broker, options: shoal.QueueOptions | None = None) -> tuple[str, str]:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue, options or shoal.QueueOptions())
    await broker.bind(queue, key)
    return queue, key


async def test_a_nacked_message_comes_again_and_says_so(broker: Broker) -> None:
    queue, key = await bound(broker)
    await broker.publish(key, b"a")
    await broker.publish(key, b"b")
    async with broker.consume(queue) as inbox:
        one, other = await take(inbox, 2)
        await one.nack()
        await other.ack()
        (again,) = await take(inbox, 1)
        assert (again.body, again.offset, again.redelivered) == (b"a", one.offset, 1)
        await again.nack(delay_s=0.2)
        (last,) = await take(inbox, 1)
        assert (last.body, last.redelivered) == (b"a", 2)
        await last.ack()
        await inbox.flush()
    assert (await broker.describe(queue)).messages == 0


async def test_several_messages_and_whole_deliveries_are_nacked(broker: Broker) -> None:
    queue, key = await bound(broker)
    await broker.publish_many(key, [b"a", b"b", b"c"])
    async with broker.consume(queue) as inbox:
        messages = await take(inbox, 3)
        inbox.nack(*messages[1:])
        again = await take(inbox, 2)
        assert [message.body for message in again] == [b"b", b"c"]
        inbox.ack(messages[0], *again)
        await inbox.flush()
    await broker.publish_many(key, [b"d", b"e"])
    async with broker.consume(queue) as inbox:
        async with asyncio.timeout(WAIT_S):
            delivery = await anext(inbox.deliveries())
            await delivery.nack()
            found: list[bytes] = []
            while len(found) < 2:
                delivery = await anext(inbox.deliveries())
                found += delivery.bodies
                await delivery.ack()
        assert found == [b"d", b"e"]
        await inbox.flush()


async def test_a_nack_after_an_ack_changes_nothing(broker: Broker) -> None:
    queue, key = await bound(broker)
    await broker.publish(key, b"a")
    async with broker.consume(queue) as inbox:
        (message,) = await take(inbox, 1)
        await message.ack()
        await message.nack()
        await inbox.flush()
        await message.nack()
        await inbox.flush()
        await broker.publish(key, b"b")
        (message,) = await take(inbox, 1)
        assert message.body == b"b"
        await message.ack()
        await inbox.flush()
    assert (await broker.describe(queue)).messages == 0


async def test_pulled_messages_are_nacked(broker: Broker) -> None:
    queue, key = await bound(broker)
    await broker.publish(key, b"a")
    (message,) = await broker.pull(queue, 1)
    assert await broker.pull(queue, 1) == []
    await message.nack()
    again: list[shoal.Message] = []
    async with asyncio.timeout(WAIT_S):
        while not again:
            again = await broker.pull(queue, 1)
    assert (again[0].body, again[0].redelivered) == (b"a", 1)
    await again[0].ack()
    await broker.flush()


async def test_bad_arguments_are_refused_before_anything_is_sent(broker: Broker) -> None:
    queue, key = await bound(broker)
    await broker.publish(key, b"a")
    async with broker.consume(queue) as inbox:
        (message,) = await take(inbox, 1)
        for delay_s in (-1, 86_400.001, float("nan"), float("inf")):
            with pytest.raises(shoal.OutOfRange, match="delay_s"):
                await message.nack(delay_s=delay_s)
        wrong: Any = True
        with pytest.raises(TypeError, match="delay_s"):
            await message.nack(delay_s=wrong)
        wrong = "message"
        with pytest.raises(TypeError, match="nack takes messages"):
            inbox.nack(message, wrong)
        await message.ack()
        await inbox.flush()
    with pytest.raises(shoal.Unavailable):
        await message.nack()


def test_a_delay_is_never_cut_short() -> None:
    assert [check_delay_ms(delay) for delay in (0, 0.0001, 0.0011, 2, 86_400)] == [0, 1, 2, 2000, 86_400_000]


async def test_nacks_of_one_moment_travel_together(cluster: FakeCluster, fake_broker: Broker) -> None:
    queue, key = await bound(fake_broker)
    await fake_broker.publish_many(key, [b"x"] * 100)
    async with fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 100)
        for message in messages:
            await message.nack(delay_s=1.5 if message.offset % 2 else 0)
        await inbox.flush()
        frames = [frame.nacks for fake in cluster.slices.values() for frame in fake.frames if frame.HasField("nacks")]
        assert sorted(frame.delay_ms for frame in frames) == [0, 1500]
        assert sum(ack.to - ack.low for frame in frames for ack in frame.messages) == 100


async def test_nacks_that_a_slice_has_no_room_for_are_sent_again(cluster: FakeCluster, fake_broker: Broker) -> None:
    queue, key = await bound(fake_broker)
    await fake_broker.publish(key, b"a")
    async with fake_broker.consume(queue) as inbox:
        (message,) = await take(inbox, 1)
        for fake in cluster.slices.values():
            fake.refuse_frames.append(shoal.ResourceExhausted("no room for delays", subject="delayed messages"))
        await message.nack(delay_s=0.1)
        (again,) = await take(inbox, 1)
        assert again.redelivered == 1


def test_what_was_acked_and_not_answered_is_not_nacked() -> None:
    pending = [Acked(b"k", 3, 5, (1, 2)), Acked(b"k", 7, 8, (2,)), Acked(b"other", 1, 9, (1,))]
    acks = PendingAcks(lambda: pending)
    assert acks.outside(b"k", 1, 1, 9) == ((1, 3), (5, 9))
    assert acks.outside(b"k", 1, 3, 5) == ()


def test_what_is_nacked_is_new_when_it_comes_again() -> None:
    repeats = Repeats(PendingAcks(tuple))
    repeats.deliver(b"k", 1, 5, [7])
    assert repeats.nack(b"k", ((2, 4),), 7, now=True) == ((2, 4),)
    assert repeats.deliver(b"k", 1, 5, [7])[0] == [(2, 4, [7])]
    repeats.stream_ended(())
    repeats.deliver(b"k", 1, 3, [7])  # Two came again on the next stream, and are repeats.
    assert repeats.nack(b"k", ((1, 5),), 7, now=False) == ((1, 3),)
    assert repeats.deliver(b"k", 1, 5, [7])[0] == [(1, 5, [7])]


async def test_a_delay_is_kept_by_a_real_slice(real: Broker) -> None:
    queue, key = await bound(real)
    await real.publish(key, b"a")
    async with real.consume(queue) as inbox:
        (message,) = await take(inbox, 1)
        began = time.monotonic()
        await message.nack(delay_s=0.7)
        (again,) = await take(inbox, 1)
        assert time.monotonic() - began >= 0.7 and again.redelivered == 1
        await again.ack()
        await inbox.flush()


async def test_what_is_not_acked_in_time_goes_to_another_consumer(real: Broker) -> None:
    queue, key = await bound(real, shoal.QueueOptions(ack_timeout_ms=500))
    async with real.consume(queue, window_messages=1) as stuck:
        await real.publish(key, b"a")
        began = time.monotonic()
        (message,) = await take(stuck, 1)
        async with real.consume(queue) as other:
            (again,) = await take(other, 1)
            assert time.monotonic() - began >= 0.5
            assert (again.offset, again.body) == (message.offset, b"a") and again.redelivered >= 1
            await again.ack()
            await other.flush()
    assert (await real.describe(queue)).messages == 0


async def test_poison_goes_to_the_dead_letter_key_of_whichever_slice_once(real: Broker) -> None:
    """Keys and dead-letter keys lie on all three slices."""
    graveyard, keys = fresh("graveyard"), [fresh("key") for _ in range(6)]
    await real.declare(graveyard)
    queues: dict[str, str] = {}
    for key in keys:
        dead, queue = fresh("dead"), fresh("queue")
        await real.bind(graveyard, dead)
        await real.declare(queue, shoal.QueueOptions(max_deliveries=2, dead_letter=dead))
        assert (await real.describe(queue)).options.max_deliveries == 2
        await real.bind(queue, key)
        queues[key] = queue
        await real.publish(key, key.encode(), headers={"of": b"test"})
    async with real.consume(list(queues.values())) as inbox, real.consume(graveyard) as dead_letters:
        for times in (0, 1):
            for message in await take(inbox, len(keys)):
                assert message.redelivered == times
                await message.nack()
        found = await take(dead_letters, len(keys))
        assert sorted(message.body for message in found) == sorted(key.encode() for key in keys)
        for message in found:
            key = message.body.decode()
            headers = message.headers
            assert headers["of"] == b"test" and headers["shoal-key"] == message.body
            assert headers["shoal-queue"] == queues[key].encode() and headers["shoal-reason"] == b"nack"
            assert (headers["shoal-deliveries"], headers["shoal-hops"]) == (b"2", b"1")
            await message.ack()
        await dead_letters.flush()
        async with asyncio.timeout(WAIT_S):
            for queue in queues.values():
                while (await real.describe(queue)).messages:  # noqa: ASYNC110 - the slice marks it a moment later
                    await asyncio.sleep(0.02)
    assert (await real.describe(graveyard)).messages == 0


async def test_a_flush_that_waits_for_the_answer_to_a_nack_names_the_slice(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s01")
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"1")
    async with fake_broker.consume(queue) as inbox:
        message = await inbox.get(timeout=10)
        cluster.slices["s01"].ignored = {"nacks"}
        message.nack_nowait()
        with pytest.raises(shoal.DeadlineExceeded, match="acks or nacks at slice s01: no answer"):
            await inbox.flush(deadline_s=0.2)
        cluster.slices["s01"].ignored = set()
