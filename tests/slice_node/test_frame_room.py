"""Room for large frames: in their order, one in a turn of the loop, and a bounded number that wait."""

from __future__ import annotations

import asyncio

from shoal_contract.errors import ResourceExhausted
from shoal_slice_node.adapters.frame_room import FrameRoom


async def test_one_large_frame_is_parsed_in_a_turn_of_the_loop() -> None:
    room = FrameRoom(1_000_000)
    in_turn: list[int] = []
    turn = 0

    async def parse() -> None:
        await room.take(1_000)
        in_turn.append(turn)

    tasks = [asyncio.create_task(parse()) for _ in range(20)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turn += 1
    assert len(set(in_turn)) == 20


async def test_frames_wait_in_their_order_for_what_others_give_back() -> None:
    room = FrameRoom(1_000)
    order: list[int] = []

    async def take(number: int, size_bytes: int) -> None:
        await room.take(size_bytes)
        order.append(number)

    tasks = [asyncio.create_task(take(number, size)) for number, size in enumerate((600, 600, 100, 1_500))]
    done, _ = await asyncio.wait(tasks, timeout=0.05)
    assert order == [0] and len(done) == 1
    room.give(600)
    await asyncio.wait(tasks[:3])
    assert order == [0, 1, 2]
    room.give(600)
    room.give(100)
    await asyncio.wait_for(tasks[3], 5)
    room.give(1_500)
    assert not room._used_bytes and not room._waiting_bytes


async def test_who_leaves_while_it_waits_gives_back_what_it_has() -> None:
    room = FrameRoom(1_000)
    await room.take(1_000)
    waits, next_one = (asyncio.create_task(room.take(500)) for _ in range(2))
    await asyncio.sleep(0)
    waits.cancel()
    room.give(1_000)
    await asyncio.wait_for(next_one, 5)
    room.give(500)
    chosen = asyncio.create_task(room.take(500))
    await asyncio.sleep(0)
    room._next()  # Its turn has come, and it does not know yet.
    chosen.cancel()
    await asyncio.wait([chosen])
    assert not room._used_bytes and not room._waiting_bytes and not room._line


async def test_frames_that_wait_are_bounded() -> None:
    """150 sessions that sent one each at once took a node of 512 MiB to 771."""
    room = FrameRoom(1_000)
    await room.take(1_000)
    waiting = [asyncio.create_task(room.take(1_000)) for _ in range(5)]
    done, _ = await asyncio.wait(waiting, timeout=0.05)
    (refused,) = done
    error = refused.exception()
    assert isinstance(error, ResourceExhausted) and (error.limit, error.value) == (4_000, 5_000)
    for _ in range(5):
        room.give(1_000)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*(task for task in waiting if task is not refused)), 5)
