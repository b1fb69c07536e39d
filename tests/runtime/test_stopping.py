"""When a process is ready, and when it stops."""

from __future__ import annotations

import asyncio

from shoal_runtime.stopping import Stopping


async def test_without_a_drain_asking_is_stopping() -> None:
    stop = Stopping()
    assert not stop.asked
    stop.ask()
    assert (stop.asked, stop.is_set()) == (True, True)


async def test_a_drain_lies_between_being_asked_and_stopping() -> None:
    stop = Stopping(drain_s=0.1)
    stop.ask()
    assert (stop.asked, stop.is_set()) == (True, False)
    async with asyncio.timeout(30):
        await stop.wait()


async def test_asking_twice_or_a_failure_ends_the_drain() -> None:
    for end in (Stopping.ask, Stopping.set):
        stop = Stopping(drain_s=3600)
        stop.ask()
        end(stop)
        assert stop.is_set()
    failed = Stopping(drain_s=3600)
    failed.set()
    assert failed.asked
