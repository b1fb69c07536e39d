"""Patience counts only time in which the process ran."""

from __future__ import annotations

import asyncio
import threading

import pytest

from shoal_contract.running_time import running_time


async def test_a_process_that_stood_still_has_not_waited() -> None:
    async with running_time(0.5):
        threading.Event().wait(1.0)
        for _ in range(3):  # What came meanwhile is looked at only now.
            await asyncio.sleep(0)


async def test_it_ends_in_time() -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(TimeoutError):
        async with running_time(0.2):
            await loop.create_future()
    assert loop.time() - began_s >= 0.2


async def test_what_is_over_in_time_is_not_cut_off_later() -> None:
    loop = asyncio.get_running_loop()
    later = loop.create_future()
    loop.call_later(0.2, later.set_result, True)
    async with running_time(0.05):
        pass
    assert await later
