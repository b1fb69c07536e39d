"""Ack timeouts of an inbox's queues, told slice by slice."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import shoal
from shoal.inbox_buffer import InboxBuffer
from shoal.limits import LONG_WAIT_LOOKS
from shoal.long_waits import LongWaits

from .calls import fresh, worked_off


async def test_the_least_ack_timeout_that_slices_told_counts_whatever_they_told_before() -> None:
    random = Random(3)
    waits = LongWaits(InboxBuffer({}, 1 << 20, None), lambda: None)
    told: dict[str, dict[int, int]] = {name: {} for name in "abc"}
    for _ in range(2_000):
        name = random.choice("abc")
        some = {handle: random.choice((0, 0, 1_000, 2_000, 4_000)) for handle in random.sample(range(4), 2)}
        waits.learn(name, some)
        told[name].update(some)
        if random.random() < 0.1:
            gone = random.randrange(4)
            waits.leave([gone])
            for one in told.values():
                one.pop(gone, None)
        for handle in range(4):
            found = [one[handle] for one in told.values() if one.get(handle)]
            assert waits._waits_s.get(handle) == (min(found) / 2_000 if found else None)
        for slice_name, one in told.items():
            assert waits.timeouts_s(slice_name) == {handle: ms / 1_000 for handle, ms in one.items() if ms}
    waits.close()


def looks_at_s(waits: LongWaits) -> float:
    """When the buffer is looked at, by the loop's clock."""
    assert waits._timer is not None
    return waits._timer.when()


def looks_in_s(waits: LongWaits) -> float:
    """How long it is until the buffer is looked at."""
    return looks_at_s(waits) - asyncio.get_running_loop().time()


async def test_the_buffer_is_looked_at_sooner_once_a_shorter_ack_timeout_is_told() -> None:
    waits = LongWaits(InboxBuffer({}, 1 << 20, None), lambda: None)
    waits.learn("a", {1: 3_600_000})
    assert looks_in_s(waits) > 400
    waits.learn("b", {2: 8_000})
    assert looks_in_s(waits) <= 4 / LONG_WAIT_LOOKS
    waits.close()


async def test_ack_timeouts_that_are_told_again_and_again_put_no_look_off() -> None:
    waits = LongWaits(InboxBuffer({}, 1 << 20, None), lambda: None)
    waits.learn("a", {1: 8_000})
    at_s = looks_at_s(waits)
    for number in range(2, 50):
        waits.learn("a", {number: 8_000 - number})
        waits.learn("a", {number: 0})
        waits.learn("a", {number: 3_600_000})
        assert looks_at_s(waits) <= at_s
    waits.close()


async def test_jobs_outlive_their_ack_timeout_in_an_inbox_that_had_a_queue_with_a_longer_one(
    broker: shoal.Broker,
) -> None:
    """They waited until the look for the other queue, and were done and dead letters, too."""
    dead, key, patient, jobs = fresh("dead"), fresh("key"), fresh("patient"), fresh("jobs")
    await broker.declare(dead)
    await broker.bind(dead, key)
    await broker.declare(patient, shoal.QueueOptions(ack_timeout_ms=3_600_000))
    await broker.declare(jobs, shoal.QueueOptions(ack_timeout_ms=600, max_deliveries=2, dead_letter=key))
    await broker.publish_many("@" + jobs, [b"%d" % number for number in range(25)])
    async with asyncio.timeout(30), broker.consume([patient]) as inbox:
        await inbox.attach(jobs)
        assert await worked_off(inbox, 25) == list(range(25))
    assert [(await broker.describe(name)).messages for name in (jobs, dead)] == [0, 0]


async def test_the_least_of_all_ack_timeouts_is_looked_for_at_looks_only() -> None:
    """What was told of one queue cost a look at all of them, thousands of times a second where queues are dropped."""
    looks = 0

    class Waits(dict[int, float]):
        def values(self) -> Any:
            nonlocal looks
            looks += 1
            return super().values()

    waits = LongWaits(InboxBuffer({}, 1 << 20, None), lambda: None)
    waits._waits_s = Waits()
    waits.learn("a", {1: 8_000, 2: 4_000})
    for ms in (0, 2_000, 0, 0, 16_000):
        waits.learn("a", {2: ms})
    assert looks == 0 and waits._shortest_s <= 4
    waits._look()
    assert looks == 1 and waits._shortest_s == 4, "what is not the least any more is passed over then"
    waits.close()
