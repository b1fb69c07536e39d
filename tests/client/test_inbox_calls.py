"""What an inbox offers besides iteration: get with a timeout, drain, blocks that ack; on fakes and a real cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import pytest

import shoal
from shoal.testing import FakeCluster
from tests.client.calls import until

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


async def given(inbox: shoal.Inbox, door: str) -> AsyncIterator[shoal.Message | shoal.Delivery]:
    if door == "deliveries":
        async for delivery in inbox.deliveries():
            yield delivery
    while door != "deliveries":
        yield await (inbox.get() if door == "get" else anext(inbox))


@pytest.mark.parametrize("door", ["anext", "get", "deliveries"])
async def test_acks_leave_though_the_work_never_awaits(broker: shoal.Broker, named: Named, door: str) -> None:
    """None was sent for 500 messages, however long these took: with an ack timeout all were done twice."""
    queue = named("queue")
    await broker.declare(queue, shoal.QueueOptions(ack_timeout_ms=1_000))
    jobs = [b"%d" % number for number in range(40)]
    await broker.publish_many("@" + queue, jobs)
    done: list[bytes] = []
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        await until(
            lambda: (
                sum(len(one) for one, *_ in inbox._buffer._deliveries if isinstance(one, shoal.Delivery)) == len(jobs)
            )
        )
        async with broker.consume(queue) as other:
            async for one in given(inbox, door):
                time.sleep(0.05)  # noqa: ASYNC251 - the work
                done += one.bodies if isinstance(one, shoal.Delivery) else [one.body]
                inbox.ack(one)
                if len(done) == len(jobs):
                    break
            with pytest.raises(shoal.DeadlineExceeded):
                await other.get(timeout=0.5)
    assert done == jobs
    assert (await broker.describe(queue)).messages == 0
