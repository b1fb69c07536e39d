"""Places of pulls: so many at a time, less for each where others wait, and none held by a slice that is silent."""

from __future__ import annotations

import asyncio

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_ops.http import limits
from shoal_ops.http.takes import Takes


def roomy() -> bool:
    return True


async def test_so_many_at_a_time_and_smaller_where_others_wait() -> None:
    takes = Takes(2, 100, roomy)
    most = 0
    asked: list[int] = []

    async def take(about: str) -> None:
        nonlocal most
        async with takes.place(about) as bytes_max:
            asked.append(bytes_max)
            most = max(most, len(takes))
            await asyncio.sleep(0.001)

    await asyncio.gather(*(take(f"q{number % 2}") for number in range(20)))
    assert most == 2
    assert asked == [limits.PULL_BYTES_MAX] * 2 + [limits.PULL_BYTES_CROWDED] * 18
    assert len(takes) == 0


async def test_calls_that_ask_for_one_queue_are_smaller_where_others_wait_for_it() -> None:
    """One queue never has all places, so none of 200 workers of it was asked to take less."""
    takes, asked = Takes(3, 100, roomy), list[int]()

    async def take() -> None:
        async with takes.place("q") as bytes_max:
            asked.append(bytes_max)
            await asyncio.sleep(0.001)

    await asyncio.gather(*(take() for _ in range(20)))
    assert asked == [limits.PULL_BYTES_MAX] * 2 + [limits.PULL_BYTES_CROWDED] * 18
    async with takes.place("q") as alone:
        assert alone == limits.PULL_BYTES_MAX


async def test_a_call_that_gets_a_place_at_once_is_smaller_where_others_wait() -> None:
    takes = Takes(3, 100, roomy)

    async def take() -> None:
        async with takes.place("q"):
            pass

    async with takes.place("q"), takes.place("q"):
        async with takes.place("another") as bytes_max:
            assert bytes_max == limits.PULL_BYTES_MAX, "nothing waits"
        waiting = asyncio.ensure_future(take())
        await asyncio.sleep(0)
        async with takes.place("another") as bytes_max:
            assert bytes_max == limits.PULL_BYTES_CROWDED
    await waiting


async def test_calls_that_wait_between_their_places_count_too() -> None:
    takes = Takes(2, 2, roomy)
    with takes.call(), takes.call():
        async with takes.place("q"):
            pass
        with pytest.raises(ResourceExhausted, match="that wait: 3; the limit is 2"), takes.call():
            pass
    with takes.call():
        pass


async def test_what_waits_for_a_silent_slice_makes_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TAKE_PATIENCE_S", 0.05)
    takes = Takes(2, 100, roomy)
    answer = asyncio.Event()

    async def silent() -> None:
        async with takes.place("q"):
            await answer.wait()

    waiting = asyncio.ensure_future(silent())
    await asyncio.sleep(0)
    async with asyncio.timeout(30), takes.place("q"):
        assert not waiting.done()
        answer.set()
        await waiting
        assert len(takes) == 1, "a place is given back once"
    assert len(takes) == 0


async def test_a_caller_that_leaves_while_waiting_takes_no_place() -> None:
    takes = Takes(2, 100, roomy)

    async def take() -> None:
        async with takes.place("q"):
            pass

    async with takes.place("q"):
        waiting = asyncio.ensure_future(take())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
    async with asyncio.timeout(30):
        await take()


async def test_unread_answers_hold_up_new_ones_until_they_are_read_or_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "DEADLINE_S", 0.2)
    monkeypatch.setattr(limits, "ROOM_LOOK_S", 0.01)
    looks = 0

    def has_room() -> bool:
        nonlocal looks
        looks += 1
        return looks > 3

    async with Takes(2, 100, has_room).place("q") as bytes_max:
        assert (looks, bytes_max) == (4, limits.PULL_BYTES_CROWDED)
    full = Takes(2, 100, lambda: False)
    with pytest.raises(ResourceExhausted, match="no room for more"):
        async with full.place("q"):
            pass
    assert len(full) == 0, "its place went back"


async def test_not_too_many_wait() -> None:
    takes = Takes(2, 2, roomy)

    async def take(about: str) -> None:
        async with takes.place(about):
            pass

    async with takes.place("a"), takes.place("b"):
        waiting = [asyncio.ensure_future(take(about)) for about in "ab"]
        await asyncio.sleep(0)
        for about in "ac":
            with pytest.raises(ResourceExhausted, match=r"; the limit is [12]"):
                await take(about)
    await asyncio.gather(*waiting)


async def test_those_who_ask_for_another_queue_wait_for_one_place() -> None:
    """60 callers that peeked at one queue, which took long, had all places, and all others were refused."""
    takes, order = Takes(2, 50, roomy), list[str]()

    async def take(about: str) -> None:
        async with takes.place(about):
            order.append(about)
            await asyncio.sleep(0)

    outcomes = await asyncio.gather(*(take("large") for _ in range(60)), take("small"), return_exceptions=True)
    assert order.index("small") <= 2, "with another place, or behind the first"
    refused = [one for one in outcomes if one is not None]
    assert outcomes[-1] is None and refused and all(isinstance(one, ResourceExhausted) for one in refused)
    assert len(takes) == 0
