"""One suite for every implementation of tables: in memory, a delta over memory, a delta over LMDB."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.tables import delta as delta_module
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.delta_piece import OVERHEAD_BYTES
from shoal_slice_node.core.tables.delta_rows import DeltaRows
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import LOCAL_TABLES, ROW_TABLES
from tests.fuzz.small_limits import patched

from .memory_base import MemoryBase
from .tables_model import TablesDriver

SEEDS = range(6)
SMALL_LIMITS = {
    "GONE_RUN_MIN": 2,
    "SORTED_ANEW_MAX": 2,
    "RECENT_KEYS_MAX": 3,
    "RUN_KEYS_MAX": 6,
    "DEAD_KEYS_MIN": 2,
    "PAGE_MEMBERS_MIN": 3,
}


@pytest.fixture(autouse=True, params=[{}, SMALL_LIMITS], ids=["limits", "small limits"])
def limits(request: pytest.FixtureRequest) -> Iterator[None]:
    """What costs nothing on 40 members has its own ways on 4,000."""
    with patched(request.param):
        yield


@pytest.mark.parametrize("seed", SEEDS)
def test_memory_tables_do_as_the_model(seed: int) -> None:
    driver = TablesDriver(MemoryTables(), seed)
    for _ in range(10):
        driver.steps(300)
        driver.check_all()
    driver.check_unfit_keys()


@pytest.mark.parametrize("seed", SEEDS)
def test_delta_over_memory_does_as_the_model(seed: int) -> None:
    """Freezes and checkpoints at random points; changes go on while a delta is frozen."""
    base = MemoryBase()
    delta = Delta(base)
    driver = TablesDriver(delta, seed)
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


@pytest.mark.parametrize("seed", SEEDS)
def test_a_frozen_delta_that_becomes_active_again_does_as_the_model(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes go on while it melts, in small parts. In the end the base has the same as if it had been written."""
    monkeypatch.setattr(delta_module, "PIECE_ROWS_MAX", 7)
    base = MemoryBase()
    delta = Delta(base)
    driver = TablesDriver(delta, seed)
    for turn in range(40):
        driver.steps(driver.random.choice((1, 20, 200)))
        delta.freeze()
        driver.steps(driver.random.choice((0, 20, 200)))
        if turn % 4 == 3:
            base.checkpoint(delta)
            continue
        while delta.melt():
            driver.steps(driver.random.choice((0, 0, 1, 5)))
        delta.drop_frozen()
        while delta.free():
            pass
        driver.check_all()
        check_figures(delta)
    delta.freeze()
    base.checkpoint(delta)
    driver.tables = base.tables
    driver.check_all()


def check_figures(delta: Delta) -> None:
    """The figures of the active layer are those of what is in it."""
    for name in (*ROW_TABLES, *LOCAL_TABLES):
        table: DeltaRows = getattr(delta, name)
        items = [*table._inserted.items(), *table._changed.items()]
        assert table.rows == len(items)
        assert table.bytes_about == sum(len(key) + len(value) + OVERHEAD_BYTES for key, value in items), name
    logs = delta._logs._layer
    rows = [row for key_id in logs.rows for _, row in logs.of(key_id)]
    assert (logs.count, logs.bytes_about) == (len(rows), sum(len(row) + OVERHEAD_BYTES for row in rows))


def test_what_was_trimmed_since_a_freeze_is_told_and_is_gone_once_it_has_melted() -> None:
    delta = Delta(MemoryBase())
    for offset in range(1, 6):
        delta.log.append(b"key00001", offset, bytes(1_000))
    delta.freeze()
    assert sum(delta.trimmed()) == 0
    delta.log.trim(b"key00001", 1, 5)
    assert sum(delta.trimmed()) == 4 * (1_000 + OVERHEAD_BYTES)
    while delta.melt():
        pass
    delta.drop_frozen()
    assert [first for _, first, _ in delta.log.scan()] == [5]
    assert delta.bytes_active < 2_000


def test_all_trims_melt_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_module, "PIECE_ROWS_MAX", 3)
    base = MemoryBase()
    delta = Delta(base)
    keys = [b"key%05d" % number for number in range(10)]
    for key_id in keys:
        delta.log.append(key_id, 1, b"row")
    delta.freeze()
    base.checkpoint(delta)
    for key_id in keys:
        delta.log.trim(key_id, 1, 2)
    delta.freeze()
    base.melt(delta)
    delta.freeze()
    base.checkpoint(delta)
    assert list(base.tables.log.scan()) == []


NO_HINTS = (*ROW_TABLES, "local_totals")
"""The checkpointer itself puts rows into `local_hints` (test_store)."""


@pytest.mark.parametrize("seed", SEEDS[:3])
async def test_delta_over_lmdb_does_as_the_model(seed: int, tmp_path: Path) -> None:
    """The real checkpointer process; changes go on during its checkpoints; the store is reopened midway."""
    store = await Store.open(tmp_path)
    driver = TablesDriver(store.tables, seed, NO_HINTS)
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
