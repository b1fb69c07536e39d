"""What applications see of farewells: on the fake, over gRPC and in memory, and on a real cluster (conftest)."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

import shoal
from shoal_contract.chunk import encode_chunk
from shoal_contract.limits import FAREWELL_BYTES_MAX
from shoal_contract.partition_hash import partition_of
from tests.client.calls import fresh
from tests.client.conftest import Connect
from tests.client.fake_cluster import PARTITIONS, FakeCluster

WAIT_S = 60
QUIET_S = 0.3
"""Farewells of a real slice that are due come within a few ticks of 20 ms."""


async def rooms(broker: shoal.Broker, count: int = 4) -> tuple[str, list[str]]:
    """A queue that reads several rooms: some of them lie on other slices than most queues."""
    reader, keys = fresh("reader"), [fresh("room") for _ in range(count)]
    await broker.declare(reader)
    await broker.bind(reader, keys)
    return reader, keys


async def test_it_comes_once_the_last_session_has_gone(broker: shoal.Broker) -> None:
    """To each of several slices, from one home."""
    reader, keys = await rooms(broker)
    queues = [fresh("queue") for _ in keys]
    await broker.declare(queues)
    async with broker.consume(reader) as heard:
        async with broker.consume(queues) as online, broker.consume(queues) as twice:
            for queue, key in zip(queues, keys, strict=True):
                headers = {"who": queue.encode()}
                await broker.farewell(queue, key, b"went offline", headers=headers)
            await twice.close()
            with pytest.raises(TimeoutError):
                await heard.get(timeout=QUIET_S)
            await online.close()
        found = {}
        async with asyncio.timeout(WAIT_S):
            for _ in keys:
                message = await heard.get()
                assert message.body == b"went offline"
                found[message.key] = message.headers["who"].decode()
        assert found == dict(zip(keys, queues, strict=True))
        async with broker.consume(queues):  # It was said, and was not set again.
            pass
        with pytest.raises(TimeoutError):
            await heard.get(timeout=QUIET_S)


async def test_a_client_that_comes_back_in_time_says_nothing(connect: Connect) -> None:
    async with AsyncExitStack() as stack:
        watching = await stack.enter_async_context(connect())
        reader, (key, *_) = await rooms(watching)
        queue = fresh("queue")
        await watching.declare(queue)
        heard = await stack.enter_async_context(watching.consume(reader))
        async with connect() as phone, phone.consume(queue):
            await phone.farewell(queue, key, b"went offline", after_s=3600)
        async with connect() as phone, phone.consume(queue):
            with pytest.raises(TimeoutError):
                await heard.get(timeout=QUIET_S)
            await phone.farewell(queue, key, b"went offline", after_s=1)
        async with asyncio.timeout(WAIT_S):
            assert (await heard.get()).body == b"went offline"


async def test_it_is_taken_back_and_replaced(broker: shoal.Broker) -> None:
    reader, (key, *_) = await rooms(broker)
    queue, dropped = fresh("queue"), fresh("queue")
    await broker.declare([queue, dropped])
    async with broker.consume(reader) as heard:
        async with broker.consume([queue, dropped]):
            await broker.farewell(queue)  # There is none.
            await broker.farewell(queue, key, b"first")
            await broker.farewell(queue, key, b"second")
            await broker.farewell(dropped, key, b"dropped")
            await broker.drop(dropped)
        async with asyncio.timeout(WAIT_S):
            assert (await heard.get()).body == b"second"
        async with broker.consume(queue):
            await broker.farewell(queue, key, b"third")
            await broker.farewell(queue)
        with pytest.raises(TimeoutError):
            await heard.get(timeout=QUIET_S)


async def test_of_a_queue_that_nothing_consumes_it_comes_at_once(broker: shoal.Broker) -> None:
    reader, (key, *_) = await rooms(broker)
    queue = fresh("queue")
    await broker.declare(queue)
    async with broker.consume(reader) as heard, asyncio.timeout(WAIT_S):
        await broker.farewell(queue, key, b"")
        assert (await heard.get()).body == b""


async def test_describe_says_where_it_goes_and_when(broker: shoal.Broker) -> None:
    queue, room = fresh("queue"), fresh("room")
    assert (await broker.describe(queue)).farewell is None
    await broker.declare(queue)
    assert (await broker.describe(queue)).farewell is None
    before_ms = time.time() * 1000
    await broker.farewell(queue, room, b"went offline", after_s=3600)
    kept = (await broker.describe(queue)).farewell
    assert kept is not None and (kept.key, kept.after_s) == (room, 3600)
    assert 3_595_000 <= kept.due_ms - before_ms <= 3_600_000 + WAIT_S * 1000
    async with broker.consume(queue):
        assert (await broker.describe(queue)).farewell == shoal.FarewellDescription(room, 3600, 0)
    await broker.farewell(queue, b"\xff", b"x", after_s=60)
    kept = (await broker.describe(queue)).farewell
    assert kept is not None and (kept.key, kept.after_s) == (b"\xff", 60)
    await broker.farewell(queue)
    assert (await broker.describe(queue)).farewell is None


async def test_many_at_once_share_frames_and_all_come(broker: shoal.Broker) -> None:
    reader, (key, *_) = await rooms(broker)
    stem = fresh("queue")
    queues = [f"{stem}-{number}" for number in range(500)]  # Their own keys are not used, so `fresh` need not know.
    await broker.declare(queues)
    async with broker.consume(reader, window_messages=1000) as heard:
        async with broker.consume(queues):
            await asyncio.gather(*(broker.farewell(queue, key, queue.encode()) for queue in queues))
        async with asyncio.timeout(WAIT_S):
            assert {(await heard.get()).body.decode() for _ in queues} == set(queues)


async def test_what_is_wrong_is_named(broker: shoal.Broker) -> None:
    queue = fresh("queue")
    with pytest.raises(shoal.NoSuchQueue):
        await broker.farewell(queue, "room", b"x")
    with pytest.raises(shoal.NoSuchQueue):
        await broker.farewell(queue)
    await broker.declare(queue)
    for key, body in (("room", None), (None, b"x")):
        with pytest.raises(TypeError, match="needs a key and a body"):
            await broker.farewell(queue, key, body)
    with pytest.raises(TypeError, match="belong to a farewell"):
        await broker.farewell(queue, after_s=5)
    with pytest.raises(shoal.TooLarge, match="the limit is 65536"):
        await broker.farewell(queue, "room", bytes(FAREWELL_BYTES_MAX))
    room = FAREWELL_BYTES_MAX - len(encode_chunk([bytes(FAREWELL_BYTES_MAX - 100)])) + FAREWELL_BYTES_MAX - 100
    await broker.farewell(queue, fresh("room"), bytes(room), after_s=86_400)
    await broker.farewell(queue)


async def test_a_home_that_moved_is_asked_where_it_is_now(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    """The connection has an older map than the slices."""
    queue = cluster.queue_with_home("s01")
    await fake_broker.declare(queue)
    old, new = cluster.slices["s01"].state, cluster.slices["s02"].state
    new.queues.declare(queue.encode(), shoal.QueueOptions(), 0)
    cluster.move({partition_of(f"@{queue}".encode(), PARTITIONS): "s02"}, tell=False)
    setting = asyncio.create_task(fake_broker.farewell(queue, "room", b"x", after_s=3600))
    while not any(frame.HasField("change") for frame in cluster.slices["s01"].frames[1:]):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert not setting.done()
    cluster.announce()
    await setting
    assert list(new.farewells.kept) == [queue.encode()] and not old.farewells.kept
