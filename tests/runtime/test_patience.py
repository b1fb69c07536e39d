"""Patience with others ends in time, and not by this process's own slowness."""

from __future__ import annotations

import asyncio
import threading

import pytest

from shoal_runtime.patience import patience_for, patience_until


async def test_what_came_while_the_process_stood_still_is_seen_first() -> None:
    loop = asyncio.get_running_loop()
    came = loop.create_future()
    async with patience_for(0.1):
        threading.Timer(0.2, loop.call_soon_threadsafe, (came.set_result, None)).start()
        threading.Event().wait(0.5)
        await came
        for _ in range(3):  # What follows from it takes turns of the loop, too.
            await asyncio.sleep(0)


async def test_it_ends_in_time() -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(TimeoutError):
        async with patience_for(0.2):
            await loop.create_future()
    assert loop.time() - began_s >= 0.2


async def test_its_time_may_be_changed() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(TimeoutError):
        async with patience_for(3600) as patience:
            patience.reschedule(loop.time())
            assert patience.when() <= loop.time()
            await loop.create_future()
    async with patience_until(loop.time()) as patience:
        patience.reschedule(loop.time() + 3600)
        await _until(loop.time() + 0.1)


async def test_what_is_over_in_time_is_not_cut_off_later() -> None:
    async with patience_for(0.05):
        pass
    await _until(asyncio.get_running_loop().time() + 0.2)


async def _until(time_s: float) -> None:
    loop = asyncio.get_running_loop()
    later = loop.create_future()
    loop.call_at(time_s, later.set_result, None)
    await later
