"""Exclusive queues, on any cluster and on the fake: one inbox has all of a queue, and the other one is told."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

import shoal
from shoal import QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import fresh, take, until
from tests.client.fake_cluster import FakeCluster

Connect = Callable[[], shoal.Broker]


@pytest.fixture
async def other(connect: Connect) -> AsyncIterator[shoal.Broker]:
    """A second client."""
    async with connect() as broker:
        yield broker


async def spread(broker: shoal.Broker, exclusive: str) -> tuple[str, list[str]]:
    """An exclusive queue with keys on every slice."""
    queue, keys = fresh("queue"), [fresh("key") for _ in range(12)]
    await broker.declare(queue, QueueOptions(exclusive=exclusive))
    await broker.bind(queue, keys)
    return queue, keys


async def all_of(inbox: shoal.Inbox, keys: list[str]) -> None:
    """Messages of every key come here."""
    left = set(keys)
    async with asyncio.timeout(20):
        while left:
            message = await anext(inbox)
            left.discard(message.key)
            await message.ack()


async def test_the_newest_inbox_takes_over_all_slices(broker: shoal.Broker, other: shoal.Broker) -> None:
    queue, keys = await spread(broker, "newest")
    mine = fresh("mine")
    await broker.declare(mine)
    async with broker.consume([queue, mine]) as old, other.consume(queue) as new:
        with pytest.raises(shoal.Conflict, match="is exclusive") as caught:
            await old.get(20)
        assert caught.value.subject == queue
        for key in keys:
            await broker.publish(key, b"x")
        await all_of(new, keys)
        await broker.send(mine, b"goes on")
        assert (await old.get(20)).body == b"goes on"
        await old.attach(queue)
        with pytest.raises(shoal.Conflict):
            await new.get(20)
        with pytest.raises(shoal.Conflict):
            await new.get(20)
        for key in keys:
            await broker.publish(key, b"y")
        await all_of(old, keys)


async def test_the_oldest_inbox_stays(broker: shoal.Broker, other: shoal.Broker) -> None:
    queue, keys = await spread(broker, "oldest")
    mine = fresh("mine")
    await broker.declare(mine)
    async with broker.consume(queue) as old:
        with pytest.raises(shoal.Conflict, match="is exclusive"):
            async with other.consume(queue):
                pass
        async with other.consume(mine) as new:
            with pytest.raises(shoal.Conflict, match="is exclusive"):
                await new.attach(queue)
            for key in keys:
                await broker.publish(key, b"x")
            await all_of(old, keys)
            await old.detach(queue)
            await new.attach(queue)
            for key in keys:
                await broker.publish(key, b"y")
            await all_of(new, keys)


async def test_what_was_not_taken_yet_goes_to_the_newer_inbox(broker: shoal.Broker, other: shoal.Broker) -> None:
    queue, keys = await spread(broker, "newest")
    for key in keys:
        await broker.publish(key, b"x")
    async with broker.consume(queue) as old:
        (first,) = await take(old, 1)
        async with other.consume(queue) as new:
            await until(lambda: not old._queues)  # The word is on its way when the newer inbox is open.
            with pytest.raises(shoal.Conflict):
                async for message in old:
                    assert message.key == first.key
            await all_of(new, keys)
        await first.ack()
        await old.flush()


async def test_options_are_told_and_conflict(broker: shoal.Broker) -> None:
    queue, _ = await spread(broker, "newest")
    assert (await broker.describe(queue)).options == QueueOptions(exclusive="newest")
    with pytest.raises(shoal.Conflict, match="exists with"):
        await broker.declare(queue)
    with pytest.raises(TypeError, match="exclusive must be one of 'none', 'newest', 'oldest', not 'all'"):
        await broker.declare(queue, QueueOptions(exclusive="all"))


async def test_a_slice_that_is_not_the_home_does_not_decide(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue, QueueOptions(exclusive="newest"))
    await fake_broker.bind(queue, key)
    async with shoal.connect(cluster.redirectors[0].address) as other, fake_broker.consume(queue) as old:
        homes, others = cluster.slices["s01"], cluster.slices["s02"]
        homes.ignored.add("attach")
        opening = asyncio.create_task(take_part(other, queue))
        (before,) = [session for session in others._sessions if queue.encode() in session.queues.values()]
        await until(lambda: queue.encode() not in before.queues.values())
        await until(lambda: queue.encode() in before.queues.values())
        opening.cancel()
        await asyncio.wait([opening])
        await fake_broker.publish(key, b"x")
        assert (await old.get(10)).body == b"x"


async def test_a_drain_does_not_wait_for_what_another_session_took_at_a_slice(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """The slice has taken back what this inbox had of it there, and gives it again."""
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue, QueueOptions(exclusive="newest"))
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"x")
    async with (
        shoal.connect(cluster.redirectors[0].address) as other,
        fake_broker.consume(queue, drop_repeats=False) as old,
    ):
        assert (await old.get(10)).body == b"x" and sum(old._unacked()) == 1
        cluster.slices["s01"].ignored.add("attach")
        opening = asyncio.create_task(take_part(other, queue))
        await until(lambda: not old._slices["s02"].attachments.complete)
        left = sum(old._unacked())
        opening.cancel()
        await asyncio.wait([opening])
        assert left == 0


async def take_part(broker: shoal.Broker, queue: str) -> None:
    """An inbox that waits for a home that says nothing."""
    async with broker.consume(queue):
        raise AssertionError("its home did not answer")


async def test_a_queue_that_was_declared_anew_while_another_session_had_it_at_a_slice_begins_anew_there(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """Its next life was taken for the first one: its messages for repeats, and acks of before for acks of them."""
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.configure(key, shoal.KeyOptions(history_messages=9))
    await fake_broker.declare(queue, QueueOptions(exclusive="newest"))
    await fake_broker.bind(queue, key, start=shoal.EARLIEST)
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    other = shoal.connect(cluster.redirectors[0].address)
    async with asyncio.timeout(30), fake_broker.consume(queue) as old:
        first = await take(old, 3)
        cluster.slices["s01"].ignored = {"attach"}
        async with other:
            opening = asyncio.create_task(take_part(other, queue))
            await until(lambda: not old._slices["s02"].attachments.complete)
            opening.cancel()
            await asyncio.wait([opening])
        cluster.slices["s01"].ignored = set()  # Now that nobody asks it once more.
        await fake_broker.drop(queue)
        await fake_broker.declare(queue, QueueOptions(exclusive="newest"))
        await fake_broker.bind(queue, key, start=shoal.EARLIEST)
        again: list[shoal.Message] = []
        while len(again) < 3:
            with contextlib.suppress(shoal.NoSuchQueue):
                again.append(await old.get())
        assert [message.body for message in again] == [b"1", b"2", b"3"]
        old.ack(*first)
        await old.flush()
        assert (await fake_broker.describe(queue)).messages == 3
        old.ack(*again)
        await old.flush()
    assert (await fake_broker.describe(queue)).messages == 0


async def test_a_pull_is_refused_while_another_session_consumes_the_queue(
    broker: shoal.Broker, other: shoal.Broker
) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue, QueueOptions(exclusive="oldest"))
    await broker.bind(queue, key)
    await broker.publish(key, b"x")
    async with broker.consume(queue):
        with pytest.raises(shoal.Conflict, match="is exclusive: another session"):
            await other.pull(queue, 1)
        with pytest.raises(shoal.Conflict, match="is exclusive"):
            await shoal.Leases(other).pull(queue, 1, lease_ms=1000)


async def test_an_ack_counts_that_is_given_while_a_queue_that_was_taken_over_is_attached_again(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """It was lost: the message stayed with the inbox, unacked, for good."""
    queue, key, slice_ = cluster.queue_with_home("s01"), cluster.key_of("s02"), cluster.slices["s02"]
    await fake_broker.declare(queue, QueueOptions(exclusive="newest"))
    await fake_broker.bind(queue, key)
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with asyncio.timeout(20), fake_broker.consume(queue, window_messages=1) as inbox:
        part = inbox._slices["s02"]
        (first,) = await take(inbox, 1)
        slice_.cut()
        await until(lambda: part.attachments.complete and bool(part.rule.repeats and part.rule.repeats._again))
        (session,) = [one for one in slice_._sessions if queue.encode() in one.queues.values() and not one.cut]
        ((handle, name),) = session.queues.items()
        slice_.state.release(session, session.queues.pop(handle))
        error = shoal.Conflict("another session consumes it", subject=queue)
        session.outbox.put_nowait(wire.SessionResponse(ended=[wire.Ended(handle=handle, error=error.to_wire())]))
        await until(lambda: not part.attachments.has(handle))
        asked = len(slice_.frames)
        slice_.answering.clear()
        await until(lambda: any(frame.HasField("attach") for frame in slice_.frames[asked:]))
        assert name == queue.encode() and part.attachments.unconfirmed == {handle}
        inbox.ack(first)
        slice_.answering.set()
        assert [message.body for message in await take(inbox, 1)] == [b"2"]
        await inbox.flush()
        assert (await fake_broker.describe(queue)).messages == 1
