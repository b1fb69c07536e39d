"""A dropped queue ends the iteration of its consumer, with NoSuchQueue; others in the same inbox go on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import pytest

import shoal
from shoal.testing import FakeCluster
from tests.client.calls import until
from tests.client.conftest import Connect

WAIT_S = 60
Named = Callable[[str], str]


@pytest.fixture
def named(request: pytest.FixtureRequest) -> Named:
    """Names of this test's own: the real cluster serves all of them."""
    return lambda name: f"{request.node.name}-{name}"


async def test_an_iteration_ends_when_its_queue_is_dropped(broker: shoal.Broker, named: Named) -> None:
    queue, key = named("queue"), named("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    await broker.publish(key, b"before")
    got: list[bytes] = []

    async def work(inbox: shoal.Inbox) -> None:
        async for message in inbox:
            got.append(message.body)

    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        working = asyncio.ensure_future(work(inbox))
        await until(lambda: bool(got))
        await broker.drop(queue)
        with pytest.raises(shoal.NoSuchQueue, match="dropped while this inbox consumed it") as ended:
            await working
        assert ended.value.subject in queue and got == [b"before"]
        with pytest.raises(TimeoutError):
            await inbox.get(timeout=0.01)  # It is told once.
        await broker.declare(queue)
        await broker.bind(queue, key)
        await broker.publish(key, b"in a second life")
        assert (await inbox.get()).body == b"in a second life"
        await broker.drop(queue)
        with pytest.raises(shoal.NoSuchQueue):
            await inbox.get()


async def test_an_ack_that_is_on_its_way_ends_nothing_of_the_next_life(broker: shoal.Broker, named: Named) -> None:
    """The inbox is full and does not read, so its ack is made before it hears that the queue began another life. There
    the same offsets come again."""
    queue, key = named("queue"), named("key")
    bodies = [b"1", b"2", b"3"]
    await broker.configure(key, shoal.KeyOptions(history_messages=9))
    await broker.declare(queue)
    await broker.bind(queue, key)
    await broker.publish(key, bodies[0])
    async with asyncio.timeout(WAIT_S), broker.consume(queue, buffer_bytes=1) as inbox:
        first = await anext(inbox)
        for body in bodies[1:]:
            await broker.publish(key, body)
        await until(lambda: bool(inbox._buffer._waiting))
        await broker.drop(queue)
        await broker.declare(queue)
        await broker.bind(queue, key, start=shoal.EARLIEST)
        await first.ack()
        await until(lambda: any(part.acks._in_flight for part in inbox._slices.values()))
        got: list[shoal.Message] = []
        while len(got) < 5:
            with contextlib.suppress(shoal.NoSuchQueue):
                got.append(await anext(inbox))
        assert [message.body for message in got] == [b"2", b"3", *bodies]
        assert got[2].offset == first.offset
        await inbox.flush()
        assert (await broker.describe(queue)).messages == 3
        inbox.ack(*got)
        await inbox.flush()
        assert (await broker.describe(queue)).messages == 0


@pytest.mark.parametrize("one_by_one", [True, False])
async def test_an_ack_of_what_was_pulled_ends_nothing_of_the_next_life(
    broker: shoal.Broker, named: Named, one_by_one: bool
) -> None:
    """However late it comes: what was pulled is named by its queue, key and offset, which are the same there."""
    queue, key = named(f"queue-{one_by_one}"), named(f"key-{one_by_one}")
    await broker.configure(key, shoal.KeyOptions(history_messages=9))
    await broker.declare(queue)
    await broker.bind(queue, key)
    await broker.publish_many(key, [b"1", b"2"])
    async with asyncio.timeout(WAIT_S):
        acked, nacked = await broker.pull(queue, 2)
        await broker.drop(queue)
        await broker.declare(queue)
        await broker.bind(queue, key, start=shoal.EARLIEST)
        again = await broker.pull(queue, 2)
        assert [message.offset for message in again] == [acked.offset, nacked.offset]
        await nacked.nack()
        await acked.ack()
        if one_by_one:
            await broker.flush()
        else:  # In one frame with the others.
            await again[1].ack()
        await broker.flush()
        assert await broker.pull(queue, 2) == [], "the nack brought nothing back"
        assert (await broker.describe(queue)).messages == (2 if one_by_one else 1)
        for message in again:
            await message.ack()
        await broker.flush()
        assert (await broker.describe(queue)).messages == 0


async def test_what_came_before_the_drop_is_handed_out_first() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await broker.declare("queue")
        await broker.bind("queue", "key")
        async with broker.consume("queue") as inbox:
            await broker.publish_many("key", [b"1", b"2"])
            await until(lambda: bool(inbox._buffer))
            await broker.drop("queue")
            await until(lambda: bool(inbox._dropped.handles))
            assert [(await inbox.get()).body for _ in range(2)] == [b"1", b"2"]
            with pytest.raises(shoal.NoSuchQueue):
                await inbox.get()


async def test_one_dropped_queue_of_several_is_told_and_the_others_go_on(connect: Connect, named: Named) -> None:
    errors: list[Exception] = []
    queues, key = [named("a"), named("b")], named("key")
    async with asyncio.timeout(WAIT_S), connect() as broker:
        broker.connection.telling._on_error = errors.append  # `connect` of these tests takes none.
        await broker.declare(queues)
        for queue in queues:
            await broker.bind(queue, key)
        async with broker.consume(queues) as inbox:
            await broker.drop(queues[0])
            await until(lambda: bool(errors))
            await broker.publish(key, b"for the other")
            message = await inbox.get()
            assert (message.queue, message.body) == (queues[1], b"for the other")
            await inbox.detach(queues[1])
            with pytest.raises(shoal.NoSuchQueue, match="dropped while"):
                await inbox.get()
        await broker.drop(queues[1])
    (error,) = errors
    assert isinstance(error, shoal.NoSuchQueue) and queues[0][-20:] in f"{error}"


async def test_all_of_several_dropped_queues_end_the_iteration() -> None:
    cluster, errors = FakeCluster(), list[Exception]()
    async with asyncio.timeout(WAIT_S), cluster.connect(on_error=errors.append) as broker:
        await broker.declare([f"queue-{number}" for number in range(20)])
        async with broker.consume([f"queue-{number}" for number in range(20)]) as inbox:
            waiting = asyncio.ensure_future(inbox.get())
            for number in range(20):
                assert not waiting.done()
                await broker.drop(f"queue-{number}")
            with pytest.raises(shoal.NoSuchQueue, match=r"^queue queue-0, and 19 more: dropped while"):
                await waiting
    assert sorted(error.subject for error in errors if isinstance(error, shoal.NoSuchQueue)) == sorted(
        f"queue-{number}" for number in range(20)
    )


async def test_an_inbox_for_queues_that_come_and_go_does_not_end() -> None:
    cluster, errors = FakeCluster(), list[Exception]()
    async with asyncio.timeout(WAIT_S), cluster.connect(on_error=errors.append) as broker:
        await broker.declare(["first", "second"])
        async with broker.consume(()) as inbox:
            await inbox.attach("first")
            waiting = asyncio.ensure_future(inbox.get())
            await broker.drop("first")
            await until(lambda: bool(errors))
            await inbox.attach("second")
            await broker.send("second", b"x")
            assert (await waiting).body == b"x"


async def test_a_queue_that_was_dropped_while_its_home_was_away_ends_the_iteration() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await broker.declare("queue")
        home = cluster.home_of("queue")
        async with broker.consume("queue") as inbox:
            home.go_away()
            home.state.queues.drop(b"queue", 0)
            home.state.take_dropped()
            home.come_back()
            with pytest.raises(shoal.NoSuchQueue):
                await inbox.get(timeout=10)


async def test_a_queue_that_lives_on_elsewhere_is_not_dropped() -> None:
    """A part that ends at another slice, swept away for example, is no end of the queue."""
    cluster, errors = FakeCluster(), list[Exception]()
    queue = cluster.queue_with_home("s01")
    async with asyncio.timeout(WAIT_S), cluster.connect(on_error=errors.append) as broker:
        await broker.declare(queue)
        await broker.bind(queue, cluster.key_of("s02"))
        async with broker.consume(queue) as inbox:
            cluster.slices["s02"].state.queues.drop(queue.encode(), 0)
            cluster.slices["s02"]._tell_resets()
            await until(lambda: bool(inbox._slices["s02"].attachments.without_part(inbox._queues)))
            await broker.send(queue, b"alive")
            assert (await inbox.get()).body == b"alive"
    assert errors == []


async def test_a_lost_connection_says_of_no_queue_that_it_was_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Of slices where a queue has no part it was said after each restart."""
    caplog.set_level(logging.INFO, "shoal")
    cluster = FakeCluster()
    queue = cluster.queue_with_home("s01")
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker, broker.consume([]) as inbox:
        await broker.declare(queue)
        await inbox.attach(queue)
        numbers = {part: part.session.stream_number for part in inbox._slices.values()}
        for slice_ in cluster.slices.values():
            slice_.cut()
        await until(
            lambda: all(part.session.stream_number > was and part.attachments.complete for part, was in numbers.items())
        )
        assert "was dropped" not in caplog.text
        await broker.drop(queue)
        await until(lambda: f"queue {queue} was dropped" in caplog.text)
