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
    monkeypatch.setattr("shoal.inbox_slice.LATE_ACKS_WAIT_S", WAIT_S)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush hardly waits."""
    monkeypatch.setattr("shoal.inbox_slice.LATE_ACKS_WAIT_S", BRIEF_S)


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
    await until(lambda: any(at.repeats is not None and bool(at.repeats.late) for at in inbox._slices.values()))
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


async def test_a_flush_ends_though_the_program_goes_on_acking_late(
    cluster: FakeCluster, fake_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each late ack that came while it waited made it wait anew: 27 s were seen, where it promises 1 s."""
    monkeypatch.setattr("shoal.inbox_slice.LATE_ACKS_WAIT_S", 5 * BRIEF_S)
    queue = await timed(fake_broker)
    await fake_broker.publish_many("@" + queue, [b"job"] * 799)
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue) as inbox, fake_broker.consume(queue) as other:
        late = await take(inbox, 800)
        for again in await take(other, 800):
            await again.nack(delay_s=LONG_S)
        await other.flush()

        async def ack_on() -> None:
            for message in late:
                await message.ack()
                await asyncio.sleep(BRIEF_S / 10)

        acking = asyncio.create_task(ack_on())
        with pytest.raises(shoal.Unavailable, match=r"up to \d+ acks? had no effect"):
            await inbox.flush()
        assert not acking.done(), "the flush waited for all that the program acked late"
        await acking
        with pytest.raises(shoal.Unavailable, match=r"up to \d+ acks? had no effect"):
            await inbox.flush()
        assert (await fake_broker.describe(queue)).messages == 800


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("asked_long_ago", ["before a later one", "before a flush"])
async def test_late_acks_that_others_have_acked_are_asked_for_though_older_ones_wait(
    cluster: FakeCluster, fake_broker: Broker, asked_long_ago: str
) -> None:
    """The pause between questions had grown to 30 s with the older ones, and the flush said that none had an effect."""
    older, queue = (cluster.queue_with_home("s01", name) for name in ("older", "later"))
    for name in (older, queue):
        await fake_broker.declare(name, QueueOptions(ack_timeout_ms=200))
        await fake_broker.publish("@" + name, b"job")
    async with asyncio.timeout(WAIT_S / 2), fake_broker.consume([older, queue]) as inbox:
        late = {message.queue: message for message in await take(inbox, 2)}
        async with fake_broker.consume(older) as elsewhere, fake_broker.consume(queue) as other:
            (long_job,) = await take(elsewhere, 1)
            await long_job.nack(delay_s=LONG_S)
            await elsewhere.flush()
            (again,) = await take(other, 1)
            await late[older].ack()
            asking, repeats = inbox._slices["s01"]._late, inbox._slices["s01"].repeats
            assert asking is not None and repeats is not None
            await until(lambda: bool(repeats.late))
            repeats.late.take_untold()
            if asked_long_ago == "before a flush":
                await late[queue].ack()
                await until(lambda: repeats.late.waits)
            asking.asking.rest()
            asking.asking._later(LONG_S)
            if asked_long_ago != "before a flush":
                await late[queue].ack()
            await again.ack()
            await inbox.flush()


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("acked", ["late", "on a lost stream", "on a lost stream, no flush"])
async def test_what_a_new_bind_brings_is_handed_out_though_it_was_acked_in_the_binding_before(
    broker: Broker, acked: str
) -> None:
    """A late ack that still waits, or one that was asked for after its stream was lost, says nothing of it."""
    queue, key = fresh("queue"), fresh("key")
    await broker.configure(key, shoal.KeyOptions(history_messages=9))  # Its message outlives the first binding.
    await broker.declare(queue, QueueOptions(ack_timeout_ms=200))
    await broker.bind(queue, [key])
    await broker.publish(key, b"job")
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        (first,) = await take(inbox, 1)
        if acked != "late":
            await first.ack()
            for at_slice in inbox._slices.values():
                assert at_slice.session._stream is not None
                at_slice.session._stream.cancel()
            if acked == "on a lost stream":
                await inbox.flush()
            await until(lambda: all(at_slice.flushed for at_slice in inbox._slices.values()))
        else:
            async with broker.consume(queue) as other:
                await (await take(other, 1))[0].nack(delay_s=LONG_S)
                await other.flush()
            await first.ack()
            with pytest.raises(shoal.Unavailable):
                await inbox.flush()
        await broker.unbind(queue, [key], discard=True)
        await broker.bind(queue, [key], start=shoal.EARLIEST)
        (again,) = await take(inbox, 1)
        assert (again.key, again.offset, again.redelivered) == (first.key, first.offset, 0)
        await again.ack()
        await inbox.flush()
        assert (await broker.describe(queue)).messages == 0
