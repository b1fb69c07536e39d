"""What an inbox offers besides iteration: get with a timeout, drain, blocks that ack; on fakes and a real cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
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


async def test_get_waits_for_a_message_and_no_longer(broker: shoal.Broker, named: Named) -> None:
    queue, key = named("queue"), named("key")
    await bound(broker, queue, key)
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        with pytest.raises(TimeoutError, match=r"inbox: no message came within 0\.05 s") as late:
            await inbox.get(timeout=0.05)
        assert isinstance(late.value, shoal.DeadlineExceeded)
        with pytest.raises(shoal.DeadlineExceeded, match="within 0 s"):
            await inbox.get(timeout=0)
        waiting = asyncio.ensure_future(inbox.get())
        await broker.publish_many(key, [b"1", b"2"])
        assert (await waiting).body == b"1"
        assert (await inbox.get(timeout=30)).body == b"2"


async def test_get_without_waiting_takes_all_that_is_there(broker: shoal.Broker, named: Named) -> None:
    queue, key = named("queue"), named("key")
    count = 2 * shoal.limits.MESSAGES_PER_TURN_MAX + 1
    await bound(broker, queue, key, *(b"%d" % number for number in range(count)))
    async with asyncio.timeout(WAIT_S), broker.consume(queue, window_messages=count) as inbox:
        await until(
            lambda: sum(len(one) for one, *_ in inbox._buffer._deliveries if isinstance(one, shoal.Delivery)) == count
        )
        assert [(await inbox.get(timeout=0)).body for _ in range(count)] == [b"%d" % number for number in range(count)]
        with pytest.raises(TimeoutError):
            await inbox.get(timeout=0)


async def test_a_get_that_ends_late_or_cancelled_takes_nothing() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await bound(broker, "queue", "key")
        got: list[bytes] = []
        async with broker.consume("queue") as inbox:
            for number in range(300):
                receipt = await broker.publish_soon("key", b"%d" % number)
                one = asyncio.ensure_future(inbox.get(timeout=0.0005 if number % 2 else None))
                await asyncio.sleep(0.0005)
                if not one.cancel() and one.exception() is None:
                    got.append(one.result().body)
                else:
                    await asyncio.wait([one])
                await receipt
            while len(got) < 300:
                got.append((await inbox.get(timeout=5)).body)
    assert got == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), 604_801])
async def test_a_timeout_out_of_range_is_refused(wrong: float) -> None:
    async with FakeCluster().connect() as broker, broker.consume(()) as inbox:
        with pytest.raises(shoal.OutOfRange, match=r"timeout is .*; it needs 0 up to 604800 seconds"):
            await inbox.get(timeout=wrong)
        for other in ("1", True):
            with pytest.raises(TypeError, match="timeout must be a number of seconds"):
                await inbox.get(timeout=other)  # type: ignore[arg-type]


async def test_get_says_that_the_inbox_is_closed_or_not_open() -> None:
    async with FakeCluster().connect() as broker:
        inbox = broker.consume(())
        with pytest.raises(shoal.Unavailable, match="the inbox is not open"):
            await inbox.get(timeout=1)
        async with inbox:
            waiting = asyncio.ensure_future(inbox.get())
            await asyncio.sleep(0)
        with pytest.raises(shoal.Unavailable, match="the inbox is closed"):
            await waiting
        with pytest.raises(shoal.Unavailable, match="the inbox is closed"):
            await inbox.get(timeout=1)


@pytest.mark.parametrize("drop_repeats", [True, False])
async def test_a_block_acks_what_went_well_and_gives_the_rest_back(
    broker: shoal.Broker, named: Named, drop_repeats: bool
) -> None:
    queue, key = named("queue"), named("key")
    await bound(broker, queue, key, b"good", b"bad", b"good too")
    async with asyncio.timeout(WAIT_S), broker.consume(queue, drop_repeats=drop_repeats) as inbox:
        failed_s = 0.0
        times: list[int] = []
        while len(times) < 3:
            message = await inbox.get()
            try:
                async with message.process(retry_after_s=0.3 if not times else 0):
                    if message.body == b"bad":
                        assert time.monotonic() >= failed_s + 0.3 or times != [0], "it came too early"
                        failed_s = time.monotonic()
                        times.append(message.redelivered)
                        raise ValueError("cannot be done")
            except ValueError as error:
                assert str(error) == "cannot be done"
        assert times == [0, 1, 2]
        again = await inbox.get()
        assert again.body == b"bad"
        with pytest.raises(asyncio.CancelledError):
            async with again.process(retry_after_s=3600):
                raise asyncio.CancelledError
        again = await inbox.get(timeout=WAIT_S / 2)
        assert (again.body, again.redelivered) == (b"bad", 4), "a cancelled block gives it back at once"
        with pytest.raises(ValueError):
            async with again.process():
                await again.ack()
                raise ValueError
        await inbox.flush()
        assert (await broker.describe(queue)).messages == 0, "what the block acked stays acked"


async def test_a_failed_message_holds_no_place_in_the_window(broker: shoal.Broker, named: Named) -> None:
    queue, key = named("queue"), named("key")
    await bound(broker, queue, key, b"bad", b"good")
    async with asyncio.timeout(WAIT_S), broker.consume(queue, window_messages=1) as inbox:
        with pytest.raises(ValueError):
            async with (await inbox.get()).process(retry_after_s=3600):
                raise ValueError
        async with (message := await inbox.get()).process():
            assert message.body == b"good"
        await inbox.flush()
    assert (await broker.describe(queue)).messages == 1


async def test_a_block_of_a_pulled_message_gives_it_back(broker: shoal.Broker, named: Named) -> None:
    queue, key = named("queue"), named("key")
    await bound(broker, queue, key, b"1")
    pulled = await pulled_one(broker, queue)
    with pytest.raises(ValueError):
        async with pulled.process(retry_after_s=0):
            raise ValueError
    again = await pulled_one(broker, queue)
    assert again.redelivered == 1
    async with again.process():
        pass
    await broker.flush()
    assert (await broker.describe(queue)).messages == 0


async def test_a_block_acks_a_whole_delivery_or_gives_it_back(broker: shoal.Broker, named: Named) -> None:
    queue, key = named("queue"), named("key")
    await bound(broker, queue, key, b"1", b"2", b"3")
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        deliveries = inbox.deliveries()
        delivery = await anext(deliveries)
        with pytest.raises(ValueError):
            async with delivery.process(retry_after_s=0):
                raise ValueError
        left = [b"1", b"2", b"3"]
        while left:
            delivery = await anext(deliveries)
            async with delivery.process():
                assert delivery.redelivered == 1
                for body in delivery.bodies:
                    left.remove(body)
        await inbox.flush()
    assert (await broker.describe(queue)).messages == 0


async def test_a_live_message_is_not_given_back(broker: shoal.Broker, named: Named) -> None:
    queue, key = named("queue"), named("key")
    await bound(broker, queue, key)
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        await broker.publish(key, b"live", live=True)
        message = await inbox.get()
        with pytest.raises(ValueError):
            async with message.process(retry_after_s=0):
                raise ValueError
        await broker.publish(key, b"next")
        assert (await inbox.get()).body == b"next"


async def test_a_block_that_ends_too_late_says_so() -> None:
    async with FakeCluster().connect() as broker:
        await bound(broker, "queue", "key", b"1", b"2")
        async with broker.consume("queue") as inbox:
            message = await inbox.get()
        with pytest.raises(ValueError, match="a mistake"):
            async with message.process():
                raise ValueError("a mistake")
        with pytest.raises(shoal.Unavailable, match="the inbox is closed; what it had unacked is given again"):
            async with message.process():
                pass


async def test_a_time_to_try_again_that_is_none_is_refused() -> None:
    async with FakeCluster().connect() as broker:
        await bound(broker, "queue", "key", b"1")
        async with broker.consume("queue") as inbox:
            message = await inbox.get()
            for wrong in (-1, 86_400.001, float("nan")):
                with pytest.raises(shoal.OutOfRange, match="retry_after_s"):
                    message.process(retry_after_s=wrong)
            for kind in ("1", None, True):
                with pytest.raises(TypeError, match="retry_after_s"):
                    message.process(retry_after_s=kind)  # type: ignore[arg-type]


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


async def test_a_drain_without_knowledge_of_acks_waits_for_each_task_that_took_a_message() -> None:
    """An idle task asked all the time, and that was taken for the word of all: the other one's ack was refused."""
    async with asyncio.timeout(WAIT_S), FakeCluster().connect() as broker:
        await bound(broker, "queue", "key", b"1")
        async with broker.consume("queue", drop_repeats=False) as inbox:
            may_end, took = asyncio.Event(), asyncio.Event()

            async def work() -> None:
                async for message in inbox:
                    took.set()
                    await may_end.wait()
                    await message.ack()

            working = [asyncio.ensure_future(work()) for _ in range(2)]
            await took.wait()
            drained = asyncio.ensure_future(inbox.drain())
            await asyncio.sleep(0.2)
            assert not drained.done()
            may_end.set()
            await drained
            await asyncio.gather(*working)
        assert (await broker.describe("queue")).messages == 0


@pytest.mark.parametrize("ending", ["late", "task ends", "own task"])
async def test_a_drain_without_knowledge_of_acks_ends(ending: str) -> None:
    async with asyncio.timeout(WAIT_S), FakeCluster().connect() as broker:
        await bound(broker, "queue", "key", b"1")
        async with broker.consume("queue", drop_repeats=False) as inbox:
            if ending == "own task":
                await (await inbox.get()).ack()
                await inbox.drain(deadline_s=5)
                return
            may_end = asyncio.Event()

            async def work() -> None:
                await inbox.get()
                await may_end.wait()

            working = asyncio.ensure_future(work())
            await until(lambda: bool(inbox._takers))
            if ending == "late":
                with pytest.raises(shoal.DeadlineExceeded, match="1 tasks have not asked for another message") as late:
                    await inbox.drain(deadline_s=0.2)
                assert late.value.value == 1
            else:
                asyncio.get_running_loop().call_later(0.1, may_end.set)
                await inbox.drain(deadline_s=5)
            may_end.set()
            await working
        assert (await broker.describe("queue")).messages == 1


@pytest.mark.parametrize("way", ["wait_for", "task", "anext"])
async def test_a_drain_without_knowledge_of_acks_waits_for_who_took_a_message_in_a_task_of_its_own(way: str) -> None:
    """`wait_for`, and waiting for a message or a stop, take it in a task that ends with it."""
    async with asyncio.timeout(WAIT_S), FakeCluster().connect() as broker:
        await bound(broker, "queue", "key", b"1")
        async with broker.consume("queue", drop_repeats=False) as inbox:
            may_end, took = asyncio.Event(), asyncio.Event()

            async def next_one() -> shoal.Message:
                if way == "wait_for":
                    return await asyncio.wait_for(asyncio.ensure_future(inbox.get()), 20)
                if way == "anext":
                    return await asyncio.ensure_future(inbox.__anext__())
                task = asyncio.create_task(inbox.get())
                await asyncio.wait([task])
                return task.result()

            async def work() -> None:
                with contextlib.suppress(shoal.Unavailable, StopAsyncIteration):
                    while True:
                        message = await next_one()
                        took.set()
                        await may_end.wait()
                        await message.ack()

            working = asyncio.ensure_future(work())
            await took.wait()
            drained = asyncio.ensure_future(inbox.drain())
            await asyncio.sleep(0.2)
            assert not drained.done()
            may_end.set()
            await drained
            await working
        assert (await broker.describe("queue")).messages == 0


async def test_a_drain_ends_at_its_deadline_and_says_how_much_is_left() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await bound(broker, "queue", "key", b"1", b"2", b"3")
        async with broker.consume("queue") as inbox:
            await (await inbox.get()).ack()
            message = await inbox.get()
            with pytest.raises(shoal.DeadlineExceeded, match="drain of an inbox: 2 messages are unacked") as late:
                await inbox.drain(deadline_s=0.2)
            assert late.value.value == 2
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
