"""What applications see of watches: on the fake, over gRPC and in memory, and on a real cluster (conftest)."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from shoal import Broker
from tests.client.calls import fresh
from tests.client.watch_steps import WAIT_S, bound, next_of


async def counts_of(watch: shoal.CountsWatch, wanted: dict[str, tuple[int, int]]) -> None:
    """Reads until the counts are these, and stay so in what came with them."""
    found: dict[str, tuple[int, int]] = {}
    complete = False
    async with asyncio.timeout(WAIT_S):
        while not complete or found != wanted:
            event = await anext(watch)
            if isinstance(event, shoal.Complete):
                complete = True
            elif event.queues:
                found[event.key] = event.queues, event.online
            else:
                del found[event.key]


async def test_members_come_first_and_then_each_change(broker: Broker) -> None:
    key = fresh("room")
    first, second = await bound(broker, key, 2)
    async with broker.watch_members(key) as watch:
        members = await next_of(watch)
        assert isinstance(members, shoal.Members)
        assert members.online == {first: False, second: False}
        (third,) = await bound(broker, key, 1)
        joined = await next_of(watch)
        assert isinstance(joined, shoal.Joined) and (joined.queue, joined.online) == (third, False)
        await broker.unbind(first, key)
        left = await next_of(watch)
        assert isinstance(left, shoal.Left) and left.queue == first
        await broker.drop(second)
        left = await next_of(watch)
        assert isinstance(left, shoal.Left) and left.queue == second


async def test_presence_is_told(broker: Broker) -> None:
    key = fresh("room")
    (queue,) = await bound(broker, key, 1)
    async with broker.watch_members(key) as watch, broker.watch_members(key, presence=False) as without:
        await next_of(watch), await next_of(without)
        async with broker.consume(queue):
            online = await next_of(watch)
            assert isinstance(online, shoal.Online) and online.queue == queue
        offline = await next_of(watch)
        assert isinstance(offline, shoal.Offline) and offline.queue == queue
        await broker.unbind(queue, key)
        assert isinstance(await next_of(without), shoal.Left)


async def test_a_watch_goes_on_from_an_events_position(broker: Broker) -> None:
    key = fresh("room")
    async with broker.watch_members(key) as watch:
        members = await next_of(watch)
        queues = await bound(broker, key, 3)
        events = [await next_of(watch) for _ in queues]
    for place, before in enumerate((members, *events)):
        await broker.bind(queues[0], key)
        async with broker.watch_members(key, after=before.position) as again:
            rest = [await next_of(again) for _ in queues[place:]]
        assert rest == events[place:]


async def test_a_watch_of_an_older_life_begins_with_all_members(broker: Broker) -> None:
    key = fresh("room")
    queues = await bound(broker, key, 3)
    async with broker.watch_members(key, after="0.0.0") as watch:
        members = await next_of(watch)
        assert isinstance(members, shoal.Members) and set(members.online) == set(queues)


async def test_counts_of_all_slices(broker: Broker) -> None:
    prefix = fresh("room")
    keys = [f"{prefix}/{number}" for number in range(12)]
    first, second = fresh("queue"), fresh("queue")
    await broker.declare([first, second])
    await broker.bind(first, keys)
    async with broker.watch_counts(prefix) as watch:
        await counts_of(watch, dict.fromkeys(keys, (1, 0)))
        watch_more = broker.watch_counts(prefix)
        await broker.bind(second, keys[:2])
        await broker.unbind(first, keys[5])
        async with broker.consume(second):
            wanted = {key: (2, 1) if key in keys[:2] else (1, 0) for key in keys if key != keys[5]}
            await counts_of(watch_more, wanted)
        await watch_more.close()


async def test_an_empty_prefix_is_complete_at_once(broker: Broker) -> None:
    async with broker.watch_counts(fresh("none")) as watch, asyncio.timeout(WAIT_S):
        assert await anext(watch) == shoal.Complete()


async def test_wrong_arguments_are_refused(broker: Broker) -> None:
    with pytest.raises(shoal.InvalidName):
        broker.watch_members("")
    with pytest.raises(shoal.InvalidName):
        broker.watch_counts("x" * 256)
    with pytest.raises(TypeError):
        broker.watch_members("key", presence=1)  # type: ignore[arg-type]
    for wrong in (
        "x",
        "1.2",
        "1.2.3.4",
        "1.2.-3",
        "1.2.99999999999999999999",
        "1.2." + "1" * 5000,
        "\u0661.\u0662.\u0663",
    ):
        with pytest.raises(shoal.Malformed, match="no position of a watch"):
            broker.watch_members("key", after=wrong)


async def test_a_closed_watch_ends_and_a_wait_that_is_cancelled_takes_nothing(broker: Broker) -> None:
    key = fresh("room")
    watch = broker.watch_members(key)
    await next_of(watch)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(watch)
    (queue,) = await bound(broker, key, 1)
    joined = await next_of(watch)
    assert isinstance(joined, shoal.Joined) and joined.queue == queue
    waiting = asyncio.ensure_future(anext(watch, None))
    await asyncio.sleep(0)
    await watch.close()
    await watch.close()
    assert await waiting is None
    assert [event async for event in watch] == []
    never_opened = broker.watch_members(key)
    await never_opened.close()
    with pytest.raises(shoal.Unavailable, match="the watch is closed"):
        await anext(never_opened)
