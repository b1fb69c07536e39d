"""A buffer that is full keeps no delivery that was handed out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from shoal.inbox_buffer import InboxBuffer

COUNT = 100


async def test_what_waited_for_room_and_was_taken_is_kept_no_longer() -> None:
    """A slow consumer's memory grew without bound, and a detach gave back what the program had been handed."""
    buffer = InboxBuffer({1: b"q"}, 100)
    arrivals = [cast(Any, SimpleNamespace(size_bytes=100)) for _ in range(COUNT)]

    async def put() -> None:
        for delivery in arrivals:
            await buffer.put(delivery)

    putting = asyncio.create_task(put())
    taken: list[Any] = []
    async with asyncio.timeout(10):
        while len(taken) < COUNT:
            await asyncio.sleep(0)
            assert len(buffer._waiting) <= 1, "one of each slice at most"
            if buffer:
                taken.append(buffer.take())
        await putting
    assert taken == arrivals and not buffer._waiting
