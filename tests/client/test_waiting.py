"""Room is given in order of asking, comes back from those who leave, and never exceeds its bound."""

from __future__ import annotations

import asyncio

import pytest

from shoal.waiting import Room
from shoal_contract.errors import DeadlineExceeded, ResourceExhausted, Unavailable

LATER = 1e9


async def turn() -> None:
    await asyncio.sleep(0)


async def test_is_given_in_order_of_asking() -> None:
    room = Room("room", 10)
    await room.take(8, LATER)
    large = asyncio.create_task(room.take(9, LATER))
    await turn()
    small = asyncio.create_task(room.take(1, LATER))
    await turn()
    assert not small.done()
    with pytest.raises(ResourceExhausted, match="limit is 10"):
        room.take_nowait(1)
    room.give(8)
    await asyncio.gather(large, small)


async def test_who_leaves_the_line_lets_the_next_in() -> None:
    room = Room("room", 10)
    await room.take(8, LATER)
    large = asyncio.create_task(room.take(9, LATER))
    await turn()
    small = asyncio.create_task(room.take(2, LATER))
    await turn()
    large.cancel()
    await small


async def test_room_given_to_one_who_is_cancelled_comes_back() -> None:
    room = Room("room", 10)
    await room.take(10, LATER)
    waiting = asyncio.create_task(room.take(10, LATER))
    await turn()
    room.give(10)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    room.take_nowait(10)


async def test_one_item_may_exceed_the_bound_alone() -> None:
    room = Room("room", 10)
    await room.take(50, LATER)
    with pytest.raises(ResourceExhausted):
        room.take_nowait(1)


async def test_waiting_ends_at_the_deadline_and_at_close() -> None:
    room = Room("room", 10)
    await room.take(10, LATER)
    with pytest.raises(DeadlineExceeded, match="nothing was sent"):
        await room.take(1, asyncio.get_running_loop().time() + 0.01)
    waiting = asyncio.create_task(room.take(1, LATER))
    await turn()
    room.close(Unavailable("closed"))
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        room.take_nowait(1)


async def test_calls_on_a_closed_room_keep_nothing_of_the_calls_before() -> None:
    """An exception that is raised again has the frames of every raise, with all that their variables hold."""
    room = Room("room", 10)
    room.close(Unavailable("closed", subject="session"))
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            room.take_nowait(1)
    assert len(caught.traceback) == 2
