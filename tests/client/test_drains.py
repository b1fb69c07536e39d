"""Drains of inboxes: the program does the work that it has, and no more is taken."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest

import shoal
from shoal.core.handed_out import HandedOut
from shoal.inbox_buffer import InboxBuffer
from shoal.long_waits import LongWaits
from shoal.testing import FakeCluster
from tests.client.calls import until
from tests.client.conftest import Connect

WAIT_S = 60
Named = Callable[[str], str]


@pytest.fixture
def named(request: pytest.FixtureRequest) -> Named:
    """Names of this test's own: the real cluster serves all of them."""
    return lambda name: f"{request.node.name}-{name}"


async def bound(broker: shoal.Broker, queue: str, key: str, *bodies: bytes) -> None:
    await broker.declare(queue)
    await broker.bind(queue, key)
    if bodies:
        await broker.publish_many(key, bodies)


async def pulled_one(broker: shoal.Broker, queue: str) -> shoal.Message:
    """The only message, as soon as its slice has noticed that the inbox which had it is closed."""
    async with asyncio.timeout(WAIT_S):
        while not (found := await broker.pull(queue, 5)):  # noqa: ASYNC110 - no one tells of it
            await asyncio.sleep(0.01)
    (message,) = found
    return message


@pytest.mark.parametrize("drop_repeats", [True, False])
async def test_a_drained_inbox_hands_out_what_it_has_and_closes(
    connect: Connect, named: Named, drop_repeats: bool
) -> None:
    queue, key = named("queue"), named("key")
    async with asyncio.timeout(WAIT_S), connect() as broker:
        await bound(broker, queue, key, *(b"%d" % number for number in range(20)))
        done: list[bytes] = []
        draining = asyncio.Event()

        async def work(inbox: shoal.Inbox) -> None:
            async for message in inbox:
                async with message.process():
                    await draining.wait()
                    await asyncio.sleep(0.005)
                    done.append(message.body)

        async with broker.consume(queue, drop_repeats=drop_repeats) as inbox:
            working = asyncio.ensure_future(work(inbox))
            await until(lambda: any(part.last_handle for part in inbox._slices.values()))
            drained = asyncio.ensure_future(inbox.drain())
            await until(lambda: inbox._draining)
            await broker.publish(key, b"too late")
            draining.set()
            await drained
            await working
            with pytest.raises(shoal.Unavailable):
                await inbox.get()
        assert done == [b"%d" % number for number in range(20)]
        assert (await pulled_one(broker, queue)).body == b"too late"


@pytest.mark.parametrize("drop_repeats", [True, False])
@pytest.mark.parametrize("way", ["iterate", "wait_for", "task", "anext", "helper", "deliveries", "stop and go"])
async def test_a_drain_waits_for_what_was_handed_out_however_it_was_taken(way: str, drop_repeats: bool) -> None:
    """`wait_for`, and waiting for a message or a stop, take it in a task that ends with it; an idle task asks all the
    time; a worker looks at its flag behind each message, and asks for no more."""
    async with asyncio.timeout(WAIT_S), FakeCluster().connect() as broker:
        await bound(broker, "queue", "key", b"1")
        async with broker.consume("queue", drop_repeats=drop_repeats) as inbox:
            may_end, took = asyncio.Event(), asyncio.Event()
            batches = inbox.deliveries()

            async def next_one() -> shoal.Message | shoal.Delivery:
                if way == "wait_for":
                    return await asyncio.wait_for(inbox.get(), 20)
                if way == "helper":
                    return await asyncio.wait_for(asked(), 20)
                if way == "deliveries":
                    return await asyncio.wait_for(anext(batches), 20)
                if way == "anext":
                    return await asyncio.ensure_future(inbox.__anext__())
                task = asyncio.create_task(inbox.get())
                await asyncio.wait([task])
                return task.result()

            async def asked() -> shoal.Message:
                return await inbox.get()

            async def work() -> None:
                if way == "iterate":
                    async for message in inbox:
                        took.set()
                        await may_end.wait()
                        await message.ack()
                    return
                with contextlib.suppress(shoal.Unavailable, StopAsyncIteration):
                    while way != "stop and go" or not took.is_set():
                        one = await next_one()
                        took.set()
                        await may_end.wait()
                        await one.ack()

            working = [asyncio.ensure_future(work()) for _ in range(1 if way == "deliveries" else 2)]
            await took.wait()
            drained = asyncio.ensure_future(inbox.drain())
            assert not (await asyncio.wait([drained], timeout=0.2))[0]
            may_end.set()
            await drained
            for one in working:
                one.cancel()
            await asyncio.wait(working)
        assert (await broker.describe("queue")).messages == 0


@pytest.mark.parametrize("drop_repeats", [True, False])
async def test_a_drain_hands_out_the_rest_of_a_delivery(drop_repeats: bool) -> None:
    """Between two messages of one delivery nothing is unacked, and nothing is in the buffer."""
    async with asyncio.timeout(WAIT_S), FakeCluster().connect() as broker:
        await bound(broker, "queue", "key", *(b"%d" % number for number in range(10)))
        async with broker.consume("queue", drop_repeats=drop_repeats) as inbox:
            got = [await inbox.get()]
            await got[0].ack()
            drained = asyncio.ensure_future(inbox.drain())
            with contextlib.suppress(shoal.Unavailable):
                while True:
                    await asyncio.sleep(0.05)
                    got.append(await inbox.get())
                    await got[-1].ack()
            await drained
        assert len(got) == 10


@pytest.mark.parametrize("settled", ["acked", "nacked", "given back", "left", "dropped", "lost", "away", "timed out"])
async def test_a_drain_does_not_wait_for_what_is_settled(settled: str) -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await bound(broker, "queue", "key", b"1")
        async with broker.consume("queue", drop_repeats=False) as inbox:
            message = await inbox.get()
            if settled == "acked":
                await message.ack()
            elif settled == "nacked":
                await message.nack(60)
            elif settled == "given back":
                inbox.stop("queue")
                message.give_back()
            elif settled == "left":
                await inbox.detach("queue")
            elif settled == "dropped":
                await broker.drop("queue")
            elif settled == "timed out":
                inbox._waits.learn(
                    cluster.owner_of("key").name, {inbox._last_handle: 100}
                )  # What its attach would have told.
                inbox.stop("queue")
            elif settled == "away":  # Others may get it meanwhile, and it may never come again here.
                cluster.owner_of("key").go_away()
                await until(lambda: not all(part.session.streaming for part in inbox._slices.values()))
                assert not any(inbox._unacked())
                return
            else:
                inbox.stop("queue")
                cluster.owner_of("key").cut()
                await until(lambda: not any(inbox._unacked()))
            await inbox.drain(deadline_s=5)


@pytest.mark.parametrize("drop_repeats", [True, False])
async def test_a_drain_ends_at_its_deadline_and_says_how_much_is_left(drop_repeats: bool) -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await bound(broker, "queue", "key", b"1", b"2", b"3")
        left = 2 if drop_repeats else 1  # With the one that was not taken, or without.
        async with broker.consume("queue", drop_repeats=drop_repeats) as inbox:
            await (await inbox.get()).ack()
            message = await inbox.get()
            with pytest.raises(shoal.DeadlineExceeded, match=f"drain of an inbox: {left} messages are unacked") as late:
                await inbox.drain(deadline_s=0.2)
            assert late.value.value == left
            with pytest.raises(shoal.Unavailable, match="the inbox is closed"):
                await message.ack()
        assert (await broker.describe("queue")).messages == 2


async def test_a_drain_waits_for_acks_that_a_lost_stream_left_unanswered() -> None:
    cluster = FakeCluster()
    slice_ = cluster.owner_of("key")
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await bound(broker, "queue", "key", b"1", b"2", b"3")
        async with broker.consume("queue") as inbox:
            messages = [await inbox.get() for _ in range(3)]
            slice_.ignored = {"acks"}
            inbox.ack(*messages)
            drained = asyncio.ensure_future(inbox.drain())
            await until(lambda: any(frame.HasField("acks") for frame in slice_.frames))
            slice_.cut()
            slice_.ignored = set()
            await broker.publish("key", b"meanwhile")
            await drained
        assert (await pulled_one(broker, "queue")).body == b"meanwhile"


async def test_a_drain_that_is_cancelled_closes_all_the_same() -> None:
    async with asyncio.timeout(WAIT_S), FakeCluster().connect() as broker:
        await bound(broker, "queue", "key", b"1")
        async with broker.consume("queue") as inbox:
            await inbox.get()
            drained = asyncio.ensure_future(inbox.drain())
            await until(lambda: inbox._draining)
            with pytest.raises(shoal.Unavailable, match="the inbox is draining"):
                await inbox.drain()
            with pytest.raises(shoal.Unavailable, match="the inbox is draining"):
                await inbox.attach("other")
            drained.cancel()
            await asyncio.wait([drained])
            with pytest.raises(shoal.Unavailable, match="the inbox is not open"):
                await inbox.drain()
        with pytest.raises(shoal.Unavailable, match="the inbox is not open"):
            await broker.consume("queue").drain()


async def test_a_drain_lets_in_what_waits_for_room() -> None:
    """A delivery that the full inbox has taken from its stream is handed out: its acks would be missed otherwise."""
    async with asyncio.timeout(WAIT_S), FakeCluster().connect() as broker:
        await bound(broker, "queue", "key")
        for number in range(10):
            await broker.publish("key", b"%d" % number)
        async with broker.consume("queue", buffer_bytes=1) as inbox:
            await until(lambda: bool(inbox._buffer))
            drained = asyncio.ensure_future(inbox.drain())
            got = [message.body async for message in _acking(inbox)]
            await drained
        left = [message.body for message in await broker.pull("queue", 99)]
        assert got + left == [b"%d" % number for number in range(10)] and got


async def _acking(inbox: shoal.Inbox):  # type: ignore[no-untyped-def]
    async for message in inbox:
        await message.ack()
        yield message


def test_what_an_inbox_knows_of_what_was_handed_out_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may let every second message time out: it is acked by another consumer, or dead."""
    monkeypatch.setattr("shoal.core.handed_out.SEEN_ENTRIES_MAX", 10)
    handed_out = HandedOut()
    for offset in range(1, 20_000):
        handed_out.add(b"k", offset, offset + 1, (1,), float(offset))
        if offset % 2:
            handed_out.done(b"k", offset, offset + 1, (1,))
    assert sum(handed_out.unsettled({}, 20_000.0)) == 4096
    assert sum(handed_out.unsettled({1: 10.0}, 20_000.0)) == 5
    for handle in range(100):
        handed_out.add(b"k", 1, 5, (handle,), 0.0)
    assert list(handed_out.unsettled({}, 1.0)) == [4] * 10
    handed_out.done(b"k", 2, 4, range(100))
    handed_out.add(b"k", 2, 3, range(95, 100), 0.0)
    assert list(handed_out.unsettled({}, 1.0)) == [2] * 5 + [3] * 5
    handed_out.leave(range(95, 100))
    handed_out.done(b"k", 0, 9, (94,))
    assert list(handed_out.unsettled({}, 1.0)) == [2] * 4


async def test_work_is_under_way_until_the_whole_ack_timeout_of_its_queue_is_over() -> None:
    """What waits in the inbox is given back after half of it."""
    handed_out, waits = HandedOut(), LongWaits(InboxBuffer({}, 1 << 20), lambda: None)
    waits.learn("s01", {1: 4000})
    waits.close()
    handed_out.add(b"k", 5, 7, (1,), 10.0)
    assert [sum(handed_out.unsettled(waits.timeouts_s("s01"), now_s)) for now_s in (10.0, 12.1, 13.9, 14.1)] == [
        2,
        2,
        2,
        0,
    ]


def test_what_was_handed_out_is_known_exactly_below_its_bounds() -> None:
    rng = random.Random(3)
    handed_out, model = HandedOut(), set[tuple[int, int]]()
    for _ in range(20_000):
        first = rng.randrange(200)
        end, handles = first + rng.randrange(1, 20), rng.sample(range(4), 2)
        pairs = {(handle, offset) for handle in handles for offset in range(first, end)}
        if rng.random() < 0.4:
            handed_out.add(b"k", first, end, handles, 0.0)
            model |= pairs
        else:
            handed_out.done(b"k", first, end, handles)
            model -= pairs
        assert sum(handed_out.unsettled({}, 1.0)) == len(model)
        assert bool(handed_out) == bool(model)
