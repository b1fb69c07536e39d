"""Detach, stop, drain and close: what comes all the same goes to others, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import shoal
from shoal import Broker, QueueOptions
from shoal.core.returning import NackPlace
from shoal.eras import Era
from shoal.gaps import Gap, GapNews
from shoal.inbox_buffer import InboxBuffer
from shoal.inbox_delivery import InboxDelivery
from shoal.inbox_slice import InboxSlice
from shoal.testing import fake_slice
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk

from .calls import fresh, take, until
from .fake_cluster import FakeCluster
from .fake_slice import FakeSlice

WAIT_S = 30
DETACH_S = 5.0
TWICE = QueueOptions(max_deliveries=2)


async def with_jobs(broker: Broker, count: int, options: QueueOptions = TWICE, queue: str = "") -> str:
    queue = queue or fresh("queue")
    await broker.declare(queue, options)
    for number in range(count):
        await broker.publish_soon("@" + queue, b"%d" % number)
    await broker.flush()
    return queue


async def left(broker: Broker, queue: str) -> list[tuple[bytes, int]]:
    """Body and `redelivered` of all that a new consumer gets, sorted."""
    count = (await broker.describe(queue)).messages
    async with broker.consume(queue) as inbox:
        return sorted([(message.body, message.redelivered) for message in await take(inbox, count)])


async def test_a_detach_that_is_cancelled_at_once_detaches(broker: Broker) -> None:
    queue, other = await with_jobs(broker, 3), await with_jobs(broker, 0)
    async with asyncio.timeout(WAIT_S), broker.consume([queue, other], window_messages=10) as inbox:
        await inbox.get()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await inbox.detach(queue)
        assert sorted(await left(broker, queue)) == [(b"0", 1), (b"1", 0), (b"2", 0)]
        while (await broker.describe(queue)).attached_sessions:
            pass


async def test_a_detach_does_not_wait_for_the_nacks_of_other_queues(broker: Broker) -> None:
    queue, busy = await with_jobs(broker, 1), await with_jobs(broker, 50, QueueOptions())
    async with asyncio.timeout(WAIT_S), broker.consume([queue, busy]) as inbox:

        async def nack() -> None:
            async for message in inbox:
                message.nack_nowait()
                await asyncio.sleep(0)

        nacking = asyncio.create_task(nack())
        await until(lambda: inbox._buffer.taken_came_s > 0)
        await inbox.detach(queue, deadline_s=DETACH_S)
        nacking.cancel()
        await asyncio.wait([nacking])


async def connection_lost(cluster: FakeCluster, inbox: shoal.Inbox) -> None:
    """Cuts all streams, and waits until the next ones are there and all is attached on them."""
    numbers = {part: part.session.stream_number for part in inbox._slices.values()}
    for fake in cluster.slices.values():
        fake.cut()
    await until(
        lambda: all(part.session.stream_number > was and part.attachments.complete for part, was in numbers.items())
    )


async def with_news_meanwhile(home: FakeSlice, part: InboxSlice, queue: str, meanwhile: Callable[[], None]) -> None:
    """Lets a queue's home go away and come back. It has a new message then, which it gives before it hears of stops."""
    home.go_away()
    await until(lambda: not part.session.streaming)
    meanwhile()
    news = wire.PublishRequest(key=b"@" + queue.encode(), chunk=Chunk(bodies=[b"new"]))
    await fake_slice.FakeSlice.Publish(home, news, None)
    home.come_back()
    await until(lambda: part.attachments.complete and not part.session._ledger)


@pytest.mark.parametrize("way", ["drain", "drain meanwhile", "stop", "stop meanwhile"])
async def test_what_is_stopped_stays_so_after_a_lost_connection(
    cluster: FakeCluster, fake_broker: Broker, way: str
) -> None:
    home = cluster.slices["s01"]
    queue = await with_jobs(fake_broker, 1, queue=cluster.queue_with_home("s01"))
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue) as inbox:
        (message,) = await take(inbox, 1)
        drains: list[asyncio.Task[None]] = []

        def stop() -> None:
            if way.startswith("drain"):
                drains.append(asyncio.create_task(inbox.drain(deadline_s=WAIT_S)))
            else:
                inbox.stop(queue)

        if not way.endswith("meanwhile"):
            stop()
            await asyncio.sleep(0)
        await with_news_meanwhile(
            home, inbox._slices["s01"], queue, stop if way.endswith("meanwhile") else lambda: None
        )
        async with fake_broker.consume(queue) as other:
            (new,) = await take(other, 1)
            assert (new.body, new.redelivered) == (b"new", 0)
            await new.ack()
        await message.ack()
        await inbox.flush()
        for drain in drains:
            await drain
    assert (await fake_broker.describe(queue)).messages == 0


async def test_a_stop_outlives_an_attach_that_is_asked_again(cluster: FakeCluster, fake_broker: Broker) -> None:
    home = cluster.slices["s01"]
    queue = await with_jobs(fake_broker, 0, queue=cluster.queue_with_home("s01"))
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue) as inbox:
        part = inbox._slices["s01"]
        home.refuse_attaches = [shoal.ResourceExhausted("no room")]
        home.cut()
        await until(lambda: not home.refuse_attaches)
        inbox.stop(queue)
        await until(lambda: part.attachments.complete)
        await part.nacks.flush()  # What comes before the answer to the stop is still handed out.
        await fake_broker.send(queue, b"new")
        with pytest.raises(shoal.DeadlineExceeded):
            await inbox.get(timeout=0.1)
    assert await left(fake_broker, queue) == [(b"new", 0)]


async def test_an_attach_of_a_queue_that_leaves_meanwhile_ends(cluster: FakeCluster, fake_broker: Broker) -> None:
    home = cluster.slices["s01"]
    queue = await with_jobs(fake_broker, 0, queue=cluster.queue_with_home("s01"))
    other = await with_jobs(fake_broker, 0, queue=cluster.queue_with_home("s01"))
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue) as inbox:
        home.go_away()
        await until(lambda: not inbox._slices["s01"].session.streaming)
        attaching = asyncio.create_task(inbox.attach(other, deadline_s=WAIT_S))
        await asyncio.sleep(0)
        await inbox.detach(other)
        await asyncio.wait_for(attaching, 5)
        home.come_back()


async def test_what_waits_for_room_in_the_buffer_is_as_old_as_when_it_came() -> None:
    given_back: list[int] = []

    class Part:
        def give_back_numbered(
            self, _: Era, key: bytes, first: int, end: int, handle: int
        ) -> list[tuple[int, int, NackPlace]]:
            given_back.append(first)
            return [(first, end, (1, 1))]

    era = Era(Part(), 1, 1)  # type: ignore[arg-type] # Nothing else of it is called.
    both = [wire.Delivery(key=b"k", first=offset, low=offset, to=offset + 1) for offset in (1, 2)]
    first, second = (InboxDelivery(one, one.low, one.to, Chunk(bodies=[b"x"]), [1], era) for one in both)
    buffer = InboxBuffer({}, first.size_bytes)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await buffer.put(first)
    waiting = asyncio.create_task(buffer.put(second))
    await until(lambda: loop.time() >= began_s + 0.05)
    assert buffer.take() is first
    await waiting
    buffer.give_back_old({1: 0.05}, 0.05, began_s + 0.075)
    assert given_back == [2] and not buffer


async def test_an_ack_timeout_is_learned_when_a_queue_is_declared_anew(broker: Broker) -> None:
    queue, other = await with_jobs(broker, 0), await with_jobs(broker, 0)
    async with asyncio.timeout(WAIT_S), broker.consume([queue, other]) as inbox:
        await broker.drop(queue)
        await broker.declare(queue, QueueOptions(ack_timeout_ms=1000, max_deliveries=1))
        await until(lambda: bool(inbox._waits._waits_s))
        for number in range(16):
            await broker.publish_soon("@" + queue, b"%d" % number)
        await broker.flush()
        done: list[int] = []
        while len(done) < 16:
            message = await inbox.get(timeout=5)
            assert message.redelivered == 0
            await asyncio.sleep(0.09)  # The work
            done.append(int(message.body))
            await message.ack()
        await inbox.flush()
    assert done == list(range(16)) and (await broker.describe(queue)).messages == 0


async def test_an_ack_timeout_is_forgotten_when_a_queue_is_declared_anew_without_one(broker: Broker) -> None:
    """A drain passed over work under way, as the slice would have taken it back in the queue's life before."""
    queue, other = await with_jobs(broker, 0, QueueOptions(ack_timeout_ms=200)), await with_jobs(broker, 0)
    async with asyncio.timeout(WAIT_S), broker.consume([queue, other], drop_repeats=False) as inbox:
        await broker.drop(queue)
        await broker.declare(queue)
        await broker.send(queue, b"long")
        message = await inbox.get()
        drained = asyncio.ensure_future(inbox.drain())
        assert not (await asyncio.wait([drained], timeout=0.6))[0]
        await message.ack()
        await drained
    assert (await broker.describe(queue)).messages == 0


async def test_gaps_that_were_not_taken_are_told_at_a_close(broker: Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.configure(key, shoal.KeyOptions(capacity_messages=2, policy="drop_oldest"))
    await broker.declare(queue)
    await broker.bind(queue, key)
    for number in range(4):
        await broker.publish(key, b"%d" % number)
    gaps: list[tuple[int, int]] = []

    def told(gap: Gap) -> None:
        gaps.append((gap.first, gap.end))

    async with asyncio.timeout(WAIT_S), broker.consume(queue, on_gap=told) as inbox:
        await until(lambda: bool(inbox._buffer))
    assert gaps == [(1, 3)]


async def test_a_gap_that_comes_while_an_inbox_drains_is_told() -> None:
    told: list[tuple[str, int]] = []
    buffer = InboxBuffer({}, 1 << 20, lambda gap: told.append((gap.queue, gap.first)))
    gap = wire.Gap(key=b"k", first=1, to=4, why=wire.GAP_REASON_EXPIRED)
    await buffer.put(GapNews(gap, {1: b"p", 2: b"q"}))
    buffer.give_back_of({2})
    assert told == [("q", 1)]
    await buffer.give_all_back()
    buffer.close()
    await buffer.put(GapNews(gap, {3: b"r"}))
    assert told == [("q", 1), ("p", 1), ("r", 1)] and buffer.bytes == 0


async def test_what_was_acked_is_not_given_back_where_repeats_are_handed_out(
    cluster: FakeCluster, fake_broker: Broker
) -> None:
    queue = await with_jobs(fake_broker, 2, queue=cluster.queue_with_home("s01"))
    inbox: Any
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue, drop_repeats=False) as inbox:
        first, second = await take(inbox, 2)
        await connection_lost(cluster, inbox)
        await until(lambda: sum(len(held[0]) for held in inbox._buffer._deliveries) == 2)
        await first.ack()
        await second.ack()
    assert (await fake_broker.describe(queue)).messages == 0


async def test_acks_before_a_detach_that_is_cancelled_count(broker: Broker) -> None:
    queue = await with_jobs(broker, 20, QueueOptions())
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        inbox.ack(*await take(inbox, 20))
        detaching = asyncio.ensure_future(inbox.detach(queue))
        await asyncio.sleep(0)
        detaching.cancel()
        await asyncio.wait([detaching])
        await inbox.flush()
        assert (await broker.describe(queue)).messages == 0
