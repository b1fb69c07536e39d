"""Acks that come after the ack timeout, when the slice has taken the messages back: on fakes, and on a real cluster."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from shoal import Broker, QueueOptions
from tests.client.calls import bound, fresh, take, until
from tests.client.fake_cluster import FakeCluster

WAIT_S = 30
LONG_S = 3600
BRIEF_S = 0.05


async def timed(broker: Broker) -> str:
    """A queue with an ack timeout and one message."""
    queue = fresh("queue")
    await broker.declare(queue, QueueOptions(ack_timeout_ms=200))
    await broker.publish("@" + queue, b"job")
    return queue


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush waits as long as it may take on a busy machine."""
    monkeypatch.setattr("shoal.late_asking.LATE_ACKS_WAIT_S", WAIT_S)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush hardly waits."""
    monkeypatch.setattr("shoal.late_asking.LATE_ACKS_WAIT_S", BRIEF_S)


async def nothing_comes(inbox: shoal.Inbox) -> None:
    with pytest.raises(shoal.DeadlineExceeded):
        await inbox.get(timeout=BRIEF_S)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("flushes", [True, False])
async def test_what_comes_again_behind_the_answer_to_a_late_ack_is_not_handed_out(
    broker: Broker, flushes: bool
) -> None:
    queue = await timed(broker)
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        (late,) = await take(inbox, 1)
        async with broker.consume(queue) as other:
            (again,) = await take(other, 1)
            other.stop(queue)
            await again.nack(delay_s=0.5)
            await other.flush()
            await late.ack()
            if flushes:
                await inbox.flush()
                assert (await broker.describe(queue)).messages == 0
        while (await broker.describe(queue)).messages:
            await nothing_comes(inbox)
        await nothing_comes(inbox)


@pytest.mark.usefixtures("brief")
async def test_a_flush_tells_once_of_late_acks_without_effect(broker: Broker) -> None:
    """The other consumer keeps what it was given, and what it nacked rests for its time."""
    queue = await timed(broker)
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        (late,) = await take(inbox, 1)
        async with broker.consume(queue) as other:
            (again,) = await take(other, 1)
            await again.nack(delay_s=LONG_S)
            await other.flush()
            await late.ack()
            with pytest.raises(shoal.Unavailable, match=r"up to 1 ack had no effect at slice .* not handed out"):
                await inbox.flush()
            await inbox.flush()
            assert (await broker.describe(queue)).messages == 1


async def test_a_late_nack_is_no_ack(broker: Broker) -> None:
    queue = await timed(broker)
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        (late,) = await take(inbox, 1)
        async with broker.consume(queue) as other:
            await take(other, 1)
            await late.nack()
            await inbox.flush()
        (anew,) = await take(inbox, 1)
        assert anew.offset == late.offset
        await anew.ack()
        await inbox.flush()
        assert (await broker.describe(queue)).messages == 0


async def late_ack_elsewhere(inbox: shoal.Inbox, other: shoal.Inbox) -> shoal.Message:
    """Acks a message that another consumer has by then. Returns that one's."""
    (late,) = await take(inbox, 1)
    (again,) = await take(other, 1)
    await late.ack()
    await until(lambda: any(at.repeats is not None and at.repeats.late.any for at in inbox._slices.values()))
    return again


async def test_what_another_consumer_has_acked_is_forgotten_without_a_flush(
    cluster: FakeCluster, fake_broker: Broker
) -> None:
    queue = await timed(fake_broker)
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue) as inbox, fake_broker.consume(queue) as other:
        await (await late_ack_elsewhere(inbox, other)).ack()
        repeats = [at.repeats for at in inbox._slices.values() if at.repeats is not None]
        await until(lambda: not any(one.late or one.remembers_acks or one._keys for one in repeats))
        await inbox.flush()


async def test_a_late_ack_is_remembered_over_a_lost_stream(cluster: FakeCluster, fake_broker: Broker) -> None:
    """It is asked for as late, not as lost: so it takes the message from no other consumer."""
    queue = await timed(fake_broker)
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue) as inbox:
        async with fake_broker.consume(queue) as other:
            await late_ack_elsewhere(inbox, other)
            for slice_ in cluster.slices.values():
                slice_.cut()
        while (await fake_broker.describe(queue)).messages:
            await nothing_comes(inbox)
        asked = [frame.acks for slice_ in cluster.slices.values() for frame in slice_.frames if frame.acks.acks]
        assert asked and not any(acks.of_lost_stream for acks in asked)


async def test_only_acks_of_queues_with_an_ack_timeout_are_asked_for(cluster: FakeCluster, fake_broker: Broker) -> None:
    queue, _ = await bound(fake_broker, cluster)
    with_timeout = cluster.queue_with_home("s01", "timed")
    await fake_broker.declare(with_timeout, QueueOptions(ack_timeout_ms=60_000))
    async with fake_broker.consume([queue, with_timeout]) as inbox:
        for name in ("@" + queue, "@" + with_timeout):
            await fake_broker.publish(name, b"x")
            (message,) = await take(inbox, 1)
            await message.ack()
            await inbox.flush()
    frames = [frame.acks for slice_ in cluster.slices.values() for frame in slice_.frames if frame.acks.acks]
    assert [(list(acks.acks[0].handles), acks.tell_unacked) for acks in frames] == [([1], False), ([2], True)]
