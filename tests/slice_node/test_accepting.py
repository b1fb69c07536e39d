"""New calls are accepted beside long work, however many are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal_slice_node.adapters import broker as broker_module
from shoal_slice_node.adapters.accepting import Accepting
from shoal_slice_node.adapters.limits import ACCEPT_TURNS
from shoal_slice_node.core.turns import Source, Work

from .brokers import running

CALLS = 50
AN_HOUR_MS = 3_600_000


async def until(reached: Callable[[], bool]) -> None:
    while True:
        if reached():
            return
        await asyncio.sleep(0)


async def test_long_work_rests_while_calls_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside peeks at large queues a few hundred calls a second were accepted: clients that sent 1,700, and cancelled
    them, made others' new calls wait 2 to 4 s."""
    slices = 0

    def endless() -> Work[None]:
        nonlocal slices
        while True:
            slices += 1
            yield

    monkeypatch.setattr(broker_module, "PUMP_SLICE_MS", 0)
    monkeypatch.setattr(broker_module, "READS_REST_MS", AN_HOUR_MS)
    async with running(tmp_path) as broker, asyncio.timeout(60):
        broker.add_work(Source("peeks", 1), endless(), lambda *_: None)
        await until(lambda: slices > 0)
        unread, before = broker.watchman.unread, slices
        for _ in range(CALLS):
            unread.calls_begun += 1
            for _ in range(ACCEPT_TURNS - 1):
                await asyncio.sleep(0)
        assert slices - before < CALLS // 5
        await until(lambda: slices >= before + CALLS)


async def test_a_rest_ends_where_calls_always_come() -> None:
    begun = 0

    def always() -> int:
        nonlocal begun
        begun += 1
        return begun

    async with asyncio.timeout(60):
        await Accepting(always).rest(5)
    assert begun > 3


async def test_a_rest_is_one_turn_where_no_calls_come() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await asyncio.sleep(0)
    turns = 0
    await Accepting(lambda: 0).rest(AN_HOUR_MS)
    assert turns == 1
    task.cancel()
