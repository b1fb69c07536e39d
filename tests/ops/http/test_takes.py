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

    async def take() -> None:
        nonlocal most
        async with takes.place() as bytes_max:
            asked.append(bytes_max)
            most = max(most, len(takes))
            await asyncio.sleep(0.001)

    await asyncio.gather(*(take() for _ in range(20)))
    assert most == 2
    assert asked == [limits.PULL_BYTES_MAX] * 2 + [limits.PULL_BYTES_CROWDED] * 18
    assert len(takes) == 0


async def test_calls_that_wait_between_their_places_count_too() -> None:
    takes = Takes(1, 2, roomy)
    with takes.call(), takes.call():
        async with takes.place():
            pass
        with pytest.raises(ResourceExhausted, match="that wait: 3; the limit is 2"), takes.call():
            pass
    with takes.call():
        pass


async def test_what_waits_for_a_silent_slice_makes_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TAKE_PATIENCE_S", 0.05)
    takes = Takes(1, 100, roomy)
    answer = asyncio.Event()

    async def silent() -> None:
        async with takes.place():
            await answer.wait()

    waiting = asyncio.ensure_future(silent())
    await asyncio.sleep(0)
    async with asyncio.timeout(30), takes.place():
        assert not waiting.done()
        answer.set()
        await waiting
        assert len(takes) == 1, "a place is given back once"
    assert len(takes) == 0


async def test_a_caller_that_leaves_while_waiting_takes_no_place() -> None:
    takes = Takes(1, 100, roomy)

    async def take() -> None:
        async with takes.place():
            pass

    async with takes.place():
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

    async with Takes(1, 100, has_room).place() as bytes_max:
        assert (looks, bytes_max) == (4, limits.PULL_BYTES_CROWDED)
    full = Takes(1, 100, lambda: False)
    with pytest.raises(ResourceExhausted, match="no room for more"):
        async with full.place():
            pass
    assert len(full) == 0, "its place went back"


async def test_not_too_many_wait() -> None:
    takes = Takes(1, 2, roomy)

    async def take() -> None:
        async with takes.place():
            pass

    async with takes.place():
        waiting = [asyncio.ensure_future(take()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ResourceExhausted, match="3; the limit is 2"):
            await take()
    await asyncio.gather(*waiting)
