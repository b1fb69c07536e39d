"""One suite for every implementation of tables: in memory, a delta over memory, a delta over LMDB."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import ROW_TABLES

from .memory_base import MemoryBase
from .tables_model import Driver

SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_tables_do_as_the_model(seed: int) -> None:
    driver = Driver(MemoryTables(), seed)
    for _ in range(10):
        driver.steps(300)
        driver.check_all()
    driver.check_unfit_keys()


@pytest.mark.parametrize("seed", SEEDS)
def test_delta_over_memory_does_as_the_model(seed: int) -> None:
    """Freezes and checkpoints at random points; changes go on while a delta is frozen."""
    base = MemoryBase()
    delta = Delta(base)
    driver = Driver(delta, seed)
    for _ in range(60):
        driver.steps(driver.random.choice((1, 20, 200)))
        delta.freeze()
        driver.steps(driver.random.choice((0, 20, 200)))
        driver.check_all()
        base.checkpoint(delta)
        driver.check_all()
    delta.freeze()
    base.checkpoint(delta)
    assert delta.rows_active == 0 and delta.bytes_active == 0
    driver.check_unfit_keys()
    driver.tables = base.tables
    driver.check_all()


NO_HINTS = (*ROW_TABLES, "local_totals")
"""The checkpointer itself puts rows into `local_hints` (test_store)."""


@pytest.mark.parametrize("seed", SEEDS[:3])
async def test_delta_over_lmdb_does_as_the_model(seed: int, tmp_path: Path) -> None:
    """The real checkpointer process; changes go on during its checkpoints; the store is reopened midway."""
    store = await Store.open(tmp_path)
    driver = Driver(store.tables, seed, NO_HINTS)
    lsn = 0
    for turn in range(24):
        driver.steps(driver.random.choice((1, 50, 400)))
        lsn += 1
        store.freeze(lsn)
        checkpoint = asyncio.create_task(store.checkpoint())
        while not checkpoint.done():
            driver.steps(5)
            await asyncio.sleep(0)
        assert await checkpoint and store.checkpoint_lsn == lsn and not store.freezing
        driver.check_all()
        driver.check_unfit_keys()
        if turn % 8 == 7:
            lsn += 1
            store.freeze(lsn)
            await store.checkpoint()
            await store.close()
            store = await Store.open(tmp_path)
            assert store.checkpoint_lsn == lsn and store.delta_rows == 0
            driver.tables = store.tables
            driver.check_all()
    await store.close()
