"""Messages that no program was handed: an inbox gives them back, and their delivery does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import shoal
from shoal import Broker, QueueOptions
from shoal.gaps import GapNews
from shoal.inbox_buffer import InboxBuffer
from shoal.long_waits import LongWaits
from shoal.messages import Delivery
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk

from .calls import fresh, take, until, worked_off
from .fake_cluster import FakeCluster

WAIT_S = 30
TWICE = QueueOptions(max_deliveries=2)
SMALL_BYTES = 4096


async def with_jobs(broker: Broker, count: int, at_once: bool = False, options: QueueOptions = TWICE) -> str:
    queue = fresh("queue")
    await broker.declare(queue, options)
    jobs = [b"%d" % number for number in range(count)]
    if at_once:
        await broker.publish_many("@" + queue, jobs)
    else:
        for job in jobs:
            await broker.publish_soon("@" + queue, job)
        await broker.flush()
    return queue


async def left(broker: Broker, queue: str) -> list[tuple[bytes, int]]:
    """Body and `redelivered` of all that a new consumer gets."""
    count = (await broker.describe(queue)).messages
    async with broker.consume(queue) as inbox:
        return [(message.body, message.redelivered) for message in await take(inbox, count)]


def unseen(*numbers: int) -> list[tuple[bytes, int]]:
    return [(b"%d" % number, 0) for number in numbers]


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_worker_that_takes_one_and_closes_costs_the_others_no_delivery(broker: Broker, at_once: bool) -> None:
    queue = await with_jobs(broker, 20, at_once)
    for turn in range(4):
        async with broker.consume(queue) as inbox:
            (message,) = await take(inbox, 1)
            assert (message.body, message.redelivered) == (b"%d" % turn, 0)
            await message.ack()
    assert await left(broker, queue) == unseen(*range(4, 20))


async def test_what_was_handed_out_and_not_acked_counts(broker: Broker) -> None:
    queue = await with_jobs(broker, 5)
    async with broker.consume(queue) as inbox:
        await take(inbox, 2)
    async with broker.consume(queue) as inbox:
        found = [(message.body, message.redelivered) for message in await take(inbox, 5)]
        assert sorted(found) == [(b"0", 1), (b"1", 1), *unseen(2, 3, 4)]


async def test_a_drain_gives_back_what_it_does_not_hand_out(broker: Broker) -> None:
    queue = await with_jobs(broker, 20)
    for turn in range(3):
        async with broker.consume(queue) as inbox:
            (message,) = await take(inbox, 1)
            await message.ack()
            with pytest.raises(shoal.DeadlineExceeded):
                await inbox.drain(deadline_s=0.1)
        assert (await broker.describe(queue)).messages == 19 - turn
    assert await left(broker, queue) == unseen(*range(3, 20))


@pytest.mark.parametrize("at_once", [False, True])
async def test_a_detached_queue_is_given_back_and_the_others_go_on(broker: Broker, at_once: bool) -> None:
    queue, other = await with_jobs(broker, 5, at_once), await with_jobs(broker, 3)
    async with asyncio.timeout(WAIT_S), broker.consume([queue, other]) as inbox:
        bodies: list[tuple[object, bytes]] = []
        while not bodies or bodies[-1][0] != queue:
            message = await inbox.get()
            bodies.append((message.queue, message.body))
        await inbox.detach(queue)
        # The message that was handed out rests until a record has its count: it may come behind the others.
        assert sorted(await left(broker, queue)) == [(b"0", 1), *unseen(1, 2, 3, 4)]
        while len(bodies) < 4:
            message = await inbox.get()
            bodies.append((message.queue, message.body))
        assert sorted(bodies) == sorted([(queue, b"0"), *((other, b"%d" % number) for number in range(3))])


async def send_large(broker: Broker, queue: str, count: int) -> None:
    """Sends messages of which an inbox of SMALL_BYTES has room for a few."""
    for number in range(count):
        await broker.send(queue, b"%d" % number, headers={"padding": bytes(2000)})


@pytest.mark.parametrize("drop_repeats", [True, False])
async def test_what_waits_for_room_in_the_inbox_is_given_back_at_a_detach(broker: Broker, drop_repeats: bool) -> None:
    queue = await with_jobs(broker, 0)
    async with broker.consume(queue, buffer_bytes=SMALL_BYTES, drop_repeats=drop_repeats) as inbox:
        await send_large(broker, queue, 20)
        await until(lambda: bool(inbox._buffer._waiting))
        await inbox.detach(queue)
        with pytest.raises(shoal.DeadlineExceeded):
            await inbox.get(timeout=0.1)
        assert sorted(await left(broker, queue)) == sorted(unseen(*range(20)))


async def test_what_waits_for_room_is_given_back_where_another_session_takes_the_queue(
    cluster: FakeCluster, fake_broker: Broker
) -> None:
    queue = await with_jobs(fake_broker, 0)
    async with fake_broker.consume(queue, buffer_bytes=SMALL_BYTES) as inbox:
        await send_large(fake_broker, queue, 20)
        await until(lambda: bool(inbox._buffer._waiting))
        (handle,) = inbox._queues
        inbox._lose(handle)
        assert list(inbox._buffer._waiting[0].handles) == [], "it went with the others, before the detach"
        with pytest.raises(shoal.DeadlineExceeded):
            await inbox.get(timeout=0.1)
        assert not inbox._buffer


async def test_parts_that_come_behind_one_that_waited_are_given_back_too() -> None:
    given: list[tuple[int, Sequence[int]]] = []
    told: list[str] = []

    class Part(Delivery):
        def __init__(self, first: int, handles: Sequence[int]) -> None:
            acker: Any = SimpleNamespace(give_back=lambda delivery, first, end, handles: given.append((first, handles)))
            super().__init__(wire.Delivery(key=b"k"), first, first + 1, Chunk(bodies=[bytes(100)]), handles, acker)

    queues = {1: b"q", 2: b"p"}
    buffer = InboxBuffer(queues, 1, lambda gap: told.append(gap.queue))
    await buffer.put(Part(1, [1, 2]))
    waiting = asyncio.ensure_future(buffer.put(Part(2, [1, 2])))
    await asyncio.sleep(0)
    del queues[1]
    buffer.give_back_of({1})
    assert given == [(1, [1]), (2, [1])]
    with buffer.awaiting_answers():
        await waiting
        await buffer.put(Part(3, [1, 2]))
        await buffer.put(GapNews(wire.Gap(key=b"k", first=1, to=4), {1: b"q", 2: b"p"}))
    assert given == [(1, [1]), (2, [1]), (3, [1])] and told == ["q"]
    left = [buffer.take() for _ in range(4)]
    assert [list(one.handles) for one in left] == [[2]] * 4 and not buffer


async def test_an_open_that_fails_gives_back_what_came(broker: Broker) -> None:
    queue = await with_jobs(broker, 5)
    for _ in range(3):
        with pytest.raises(shoal.NoSuchQueue):
            async with broker.consume([queue, fresh("missing")]):
                pass
    assert await left(broker, queue) == unseen(*range(5))


async def test_messages_of_one_delivery_for_several_queues_are_given_back_each(broker: Broker) -> None:
    key, queues = fresh("key"), [fresh("queue") for _ in range(3)]
    for queue in queues:
        await broker.declare(queue, TWICE)
        await broker.bind(queue, key)
    await broker.publish_many(key, [b"0", b"1"])
    async with broker.consume(queues) as inbox:
        first, second = await take(inbox, 2)
        seen = {(one.queue, one.body) for one in (first, second)}
    for queue in queues:
        expected = [(body, int((queue, body) in seen)) for body in (b"0", b"1")]
        async with broker.consume(queue) as inbox:
            found = [(one.body, one.redelivered) for one in await take(inbox, 2)]
            assert sorted(found) == expected, "what counts comes once its count is kept, perhaps behind what does not"


async def test_messages_on_their_way_while_the_inbox_closes_are_given_back(
    cluster: FakeCluster, fake_broker: Broker
) -> None:
    queue = await with_jobs(fake_broker, 30)
    for _ in range(5):
        async with fake_broker.consume(queue, window_messages=30):
            pass  # The first messages may be anywhere between the slice and the inbox.
    assert await left(fake_broker, queue) == unseen(*range(30))
    frames = [frame for fake in cluster.slices.values() for frame in fake.frames if frame.HasField("nacks")]
    assert all(frame.nacks.unseen for frame in frames if frame.nacks.messages)


@pytest.mark.parametrize("at_once", [False, True])
async def test_jobs_that_wait_in_the_inbox_outlive_the_ack_timeout(broker: Broker, at_once: bool) -> None:
    dead, key = fresh("dead"), fresh("key")
    await broker.declare(dead)
    await broker.bind(dead, key)
    queue = await with_jobs(broker, 40, at_once, QueueOptions(ack_timeout_ms=2000, max_deliveries=2, dead_letter=key))
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        done = await worked_off(inbox, 40)
    assert done == list(range(40)), "what is behind goes back, too: it comes in its order"
    assert [(await broker.describe(name)).messages for name in (queue, dead)] == [0, 0]


async def test_jobs_that_were_given_back_are_handed_out_before_those_behind_them(broker: Broker) -> None:
    """More is on its way than the inbox holds: it got the room of what was given back, and came first."""
    queue = fresh("queue")
    await broker.declare(queue, QueueOptions(ack_timeout_ms=400))
    for number in range(40):
        await broker.publish("@" + queue, b"%d " % number + bytes(3000))
    offsets: list[int] = []
    async with asyncio.timeout(WAIT_S), broker.consume(queue, buffer_bytes=4 * SMALL_BYTES) as inbox:
        while len(set(offsets)) < 40:
            message = await inbox.get()
            if message.offset not in offsets:
                offsets.append(message.offset)
            await asyncio.sleep(0.03)
            await message.ack()
    assert offsets == sorted(offsets)


async def test_at_a_slice_that_does_not_tell_nacks_taken_a_full_inbox_goes_on(
    cluster: FakeCluster, fake_broker: Broker
) -> None:
    """One of an older version. The messages that came again were taken for copies of before."""
    queue = cluster.queue_with_home("s01")
    cluster.slices["s01"].tells_nacks_taken = False
    await fake_broker.declare(queue, QueueOptions(ack_timeout_ms=400))
    for number in range(40):
        await fake_broker.publish("@" + queue, b"%d " % number + bytes(3000))
    offsets: set[int] = set()
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue, buffer_bytes=4 * SMALL_BYTES) as inbox:
        while len(offsets) < 40:
            message = await inbox.get()
            offsets.add(message.offset)
            await asyncio.sleep(0.03)
            await message.ack()


async def test_an_ack_that_came_too_late_for_a_queue_that_is_consumed_on_fails_no_flush(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another queue of the inbox was stopped. The message comes again here, and is acked again."""
    monkeypatch.setattr("shoal.inbox_slice.LATE_ACKS_WAIT_S", WAIT_S)
    queue = await with_jobs(broker, 1, options=QueueOptions(ack_timeout_ms=200))
    stopped = await with_jobs(broker, 0)
    async with asyncio.timeout(WAIT_S), broker.consume([queue, stopped]) as inbox:
        (late,) = await take(inbox, 1)
        inbox.stop(stopped)
        async with broker.consume(queue) as other:
            await take(other, 1)
            await late.ack()
            await inbox.flush()
            assert (await broker.describe(queue)).messages == 0


@pytest.mark.parametrize("ends", ["stop", "drain", "detach"])
async def test_an_ack_that_came_too_late_for_a_queue_that_was_stopped_is_told(broker: Broker, ends: str) -> None:
    """The slice had taken the message back. It could not come again here, and be acked again."""
    queue = await with_jobs(broker, 2, options=QueueOptions(ack_timeout_ms=200))
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        late, prompt = await take(inbox, 2)
        ending: asyncio.Future[None] | None = None
        if ends == "drain":
            ending = asyncio.ensure_future(inbox.drain())
        elif ends == "stop":
            inbox.stop(queue)
        await prompt.ack()
        async with broker.consume(queue) as other:
            assert [message.body for message in await take(other, 1)] == [late.body]
            await late.ack()
            if ends == "detach":
                await inbox.detach(queue)
            with pytest.raises(shoal.Unavailable, match="up to 1 ack had no effect at slice"):
                await (ending or inbox.flush())
    assert (await broker.describe(queue)).messages == 1


async def test_what_was_handed_out_is_not_given_back_before_its_ack_timeout(broker: Broker) -> None:
    queue = await with_jobs(broker, 3, options=QueueOptions(ack_timeout_ms=4000, max_deliveries=1))
    async with broker.consume(queue) as inbox:
        (message,) = await take(inbox, 1)
        buffer = inbox._buffer
        came_s = buffer.taken_came_s
        # Those behind it are given back meanwhile, and come again.
        await until(lambda: bool(buffer) and all(held[2] > came_s + 1 for held in buffer._deliveries))
        await message.ack()
        for other in await take(inbox, 2):
            assert other.redelivered == 0
            await other.ack()
        await inbox.flush()
    assert (await broker.describe(queue)).messages == 0


async def test_a_detach_beside_an_attach_that_is_not_written_breaks_nothing(broker: Broker) -> None:
    queue, other = await with_jobs(broker, 1), await with_jobs(broker, 1)
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        attaching = asyncio.ensure_future(inbox.attach(other))
        await asyncio.sleep(0)
        await inbox.detach(other)
        attaching.cancel()
        await asyncio.wait([attaching])
        assert (await inbox.get()).body == b"0"
        await broker.send(queue, b"1")
        assert (await inbox.get()).body == b"1"


def test_an_attach_that_was_given_up_breaks_nothing() -> None:
    """The slice tells the ack timeouts of queues that have left the inbox meanwhile."""
    waits = LongWaits(InboxBuffer({}, 1 << 20), lambda: None)
    waits.learn("s01", {})
    waits.close()


async def test_messages_wait_as_long_as_every_slice_of_their_queue_allows() -> None:
    """A queue was declared anew: its home tells the new ack timeout, and another slice the old one until it hears."""
    waits = LongWaits(InboxBuffer({}, 1 << 20), lambda: None)
    waits.learn("s01", {1: 400, 2: 600})
    waits.learn("s02", {1: 400})
    waits.learn("s01", {1: 4000})
    assert waits.timeouts_s("s01") == {1: 4.0, 2: 0.6} and waits._waits_s == {1: 0.2, 2: 0.3}
    waits.learn("s02", {1: 0, 3: 0})
    assert waits.timeouts_s("s02") == {} and waits._waits_s == {1: 2.0, 2: 0.3}
    waits.leave([1, 7])
    assert waits.timeouts_s("s01") == {2: 0.6} and waits._waits_s == {2: 0.3}
    waits.close()
