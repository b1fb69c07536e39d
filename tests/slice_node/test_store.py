"""The store across kills, second owners and other formats. What its tables hold is test_tables_conformance's."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shoal_contract.errors import Conflict, Corrupt, Unavailable
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.rows.small_rows import HINT
from shoal_slice_node.storage.checkpoint_writer import CheckpointWriter
from shoal_slice_node.storage.lmdb_layout import (
    DATA_FILE,
    FORMAT_ROW,
    STORE,
    TABLE_FORMS_ROW,
    open_environment,
    open_table,
)
from shoal_slice_node.storage.lmdb_tables import LmdbBase
from shoal_slice_node.storage.store_inspection import inspect_store

from .tables_model import TablesDriver


@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08])
async def test_a_checkpointer_killed_during_a_checkpoint_is_replaced_and_nothing_is_lost(
    delay_s: float, tmp_path: Path
) -> None:
    store = await Store.open(tmp_path)
    driver = TablesDriver(store.tables, seed=int(delay_s * 1000))
    for lsn in range(1, 4):
        driver.steps(1500)
        store.freeze(lsn)
        checkpoint = asyncio.create_task(store.checkpoint())
        asyncio.get_running_loop().call_later(delay_s, os.kill, store.checkpointer_pid, signal.SIGKILL)
        try:
            await checkpoint
        except Unavailable:
            assert store.freezing and store.checkpoint_lsn == lsn - 1
            driver.steps(50)
            driver.check_all()
            await store.checkpoint()
        assert store.checkpoint_lsn == lsn and not store.freezing
        driver.check_all()
    store.freeze(4)
    try:
        await store.checkpoint()
    except Unavailable:
        await store.checkpoint()
    await store.close()
    store = await Store.open(tmp_path)
    driver.tables = store.tables
    driver.check_all()
    await store.close()


async def test_what_is_frozen_is_counted_until_it_is_written(tmp_path: Path) -> None:
    """Changes are refused by the sum of both, in rows or bytes, while checkpoints fail."""
    store = await Store.open(tmp_path)
    for number in range(50):
        store.tables.queue_by_name.insert(b"%d" % number, b"id")
    rows, size_bytes = store.delta_rows, store.delta_bytes
    assert rows == 50 < size_bytes
    store.freeze(1)
    store.tables.queue_by_name.insert(b"later", b"id")
    assert (store.frozen_rows, store.frozen_bytes, store.delta_rows) == (rows, size_bytes, 1)
    await store.checkpoint()
    assert (store.frozen_rows, store.frozen_bytes, store.delta_rows) == (0, 0, 1)
    await store.close()


@pytest.mark.parametrize("committed", [False, True])
async def test_what_a_checkpointer_wrote_before_it_was_killed_does_not_melt(
    committed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen delta that becomes active again leaves out what came and went: but the checkpoint may have that."""
    store = await Store.open(tmp_path)
    driver = TablesDriver(store.tables, seed=5)
    driver.steps(300)
    store.freeze(1)
    pieces = list(store.tables.pieces())
    if committed:
        await store._checkpointer.write(iter(pieces), 1)  # Its answer is lost.
    os.kill(store.checkpointer_pid, signal.SIGKILL)
    with pytest.raises(Unavailable):
        await store._checkpointer.write(iter(pieces), 1)
    driver.steps(300)
    monkeypatch.setattr(store.tables, "trimmed", lambda: iter([1 << 30]))
    emptied = await store.melt()
    assert (emptied is None) is committed
    driver.model.rows["local_hints"].update(dict.fromkeys(emptied or (), HINT))
    driver.steps(100)
    if not committed:
        store.freeze(2)
    await store.checkpoint()
    driver.check_all()
    await store.close()
    base = LmdbBase(tmp_path)
    assert base.lsn == (1 if committed else 2)
    base.close()


async def test_keys_whose_bindings_came_and_went_are_hinted_as_their_delta_melts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No checkpoint sees that they lost their last binding, so nothing would ever drop them."""
    store = await Store.open(tmp_path)
    came, went, kept = (bytes([0, 1, 0, 0, 0, 0, 0, number]) for number in range(3))
    binding = store.tables.binding
    queues = [number.to_bytes(8, "big") for number in range(1, 4)]
    for key_id in (came, went, kept):
        for queue_id in queues[:2]:
            binding.add(key_id, queue_id)
    binding.add(went, queues[2])
    store.freeze(1)
    for key_id in (came, went):
        for queue_id in queues[:2]:
            binding.remove(key_id, queue_id)
    binding.remove(went, queues[2])
    binding.add(kept, queues[2])
    monkeypatch.setattr(store.tables, "trimmed", lambda: iter([1 << 30]))
    emptied = await store.melt()
    assert emptied is not None and set(emptied) == {came, went}
    assert {key_id for key_id, row in store.tables.local_hints.scan() if row == HINT} == {came, went}
    assert [binding.count(key_id) for key_id in (came, went, kept)] == [0, 0, 3]
    await store.close()


async def test_a_commit_that_no_reader_sees_yet_does_not_melt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpointer that is killed between LMDB's meta page and the word of it to readers: the next writer makes the
    commit seen."""
    folder, other = tmp_path / "store", tmp_path / "other"
    store = await Store.open(folder)
    store.tables.queue_by_name.insert(b"came", b"and went")
    store.freeze(1)
    os.kill(store.checkpointer_pid, signal.SIGKILL)
    with pytest.raises(Unavailable):
        await store.checkpoint()
    other.mkdir()
    shutil.copy(folder / DATA_FILE, other / DATA_FILE)
    writer = CheckpointWriter(other)
    writer.write(store.tables.pieces(), 1)
    writer.close()
    with (folder / DATA_FILE).open("r+b") as file:
        file.write((other / DATA_FILE).read_bytes())
    store.tables.queue_by_name.delete(b"came")
    monkeypatch.setattr(store.tables, "trimmed", lambda: iter([1 << 30]))
    assert await store.melt() is None
    await store.checkpoint()
    assert store.tables.queue_by_name.get(b"came") is None and not list(store.tables.queue_by_name.scan())
    store.freeze(2)
    await store.checkpoint()
    assert not list(store.tables.queue_by_name.scan())
    await store.close()


async def test_a_checkpointer_killed_while_idle_is_replaced_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = await Store.open(tmp_path)
    first_pid = store.checkpointer_pid
    os.kill(first_pid, signal.SIGKILL)
    store.tables.meta.put(b"a", b"1")
    store.freeze(7)
    try:
        await store.checkpoint()
    except Unavailable:
        await store.checkpoint()
    assert store.checkpointer_pid != first_pid and store.checkpoint_lsn == 7
    assert store.checkpointer_restarts == 1
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1 and told[0].startswith(f"the checkpointer's process {first_pid} ended by signal 9. Another")
    await store.close()


async def test_a_store_knows_how_much_is_frozen(tmp_path: Path) -> None:
    """So much room is kept for the checkpoint."""
    store = await Store.open(tmp_path)
    store.tables.meta.put(b"a", bytes(100_000))
    store.freeze(1)
    assert 100_000 < store.frozen_bytes < 101_000
    await store.checkpoint()
    assert store.frozen_bytes == 0
    await store.close()


async def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    program = f"""import asyncio, pathlib
from shoal_slice_node.adapters.store import Store
asyncio.run(Store.open(pathlib.Path({str(tmp_path)!r})))"""
    second = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], capture_output=True, text=True)
    assert second.returncode != 0 and f"in use by process {os.getpid()}" in second.stderr
    with pytest.raises(Conflict, match=f"process {os.getpid()}"):
        await Store.open(tmp_path)
    await store.close()
    await (await Store.open(tmp_path)).close()


async def test_a_store_of_another_format_is_refused(tmp_path: Path) -> None:
    await (await Store.open(tmp_path)).close()
    environment = open_environment(tmp_path, readonly=False)
    table = open_table(environment, STORE, create=False)
    with environment.begin(write=True, db=table) as transaction:
        transaction.put(FORMAT_ROW, b"0")
    environment.close()
    with pytest.raises(Conflict, match="format 0; this version reads format 11"):
        await Store.open(tmp_path)


@pytest.mark.parametrize(("forms", "error"), [(b"binding=2 ended=1", Conflict), (b"\xff", Conflict), (b"", Corrupt)])
async def test_a_store_with_tables_of_other_forms_is_refused(
    forms: bytes, error: type[Exception], tmp_path: Path
) -> None:
    await (await Store.open(tmp_path)).close()
    environment = open_environment(tmp_path, readonly=False)
    table = open_table(environment, STORE, create=False)
    with environment.begin(write=True, db=table) as transaction:
        transaction.put(TABLE_FORMS_ROW, forms) if forms else transaction.delete(TABLE_FORMS_ROW)
    environment.close()
    with pytest.raises(error, match="forms"):
        await Store.open(tmp_path)
    with pytest.raises(error, match="forms"):
        LmdbBase(tmp_path)


async def test_a_file_that_is_no_store_is_corrupt(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not lmdb" * 2000)
    with pytest.raises(Corrupt, match=r"data\.mdb|store"):
        await Store.open(tmp_path)


async def test_groups_emptied_by_a_checkpoint_become_candidates(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    binding, member = store.tables.binding, b"member01"
    for group in (b"emptied!", b"kept....", b"undone.."):
        binding.add(group, member)
    binding.add(b"kept....", b"member02")
    assert binding.remove(b"undone..", member)
    store.freeze(1)
    assert not binding.remove(b"emptied!", member)
    assert not binding.remove(b"kept....", member)
    await store.checkpoint()
    assert list(store.tables.local_hints.scan()) == []
    store.freeze(2)
    await store.checkpoint()
    assert list(store.tables.local_hints.scan()) == [(b"emptied!", b"\x01")]
    assert list(store.tables.reclaim.scan()) == []
    await store.close()


async def test_inspection_counts_what_is_stored(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    for number in range(100):
        store.tables.key.put(number.to_bytes(8, "big"), b"x" * 50)
        store.tables.binding.add(b"group001", number.to_bytes(8, "big"))
    store.freeze(9)
    await store.checkpoint()
    assert store.let_go_of_memory() >= 0 and store.tables.key.get(bytes(8)) == b"x" * 50
    await store.close()
    summary = inspect_store(tmp_path)
    tables = {table.name: table for table in summary.tables}
    assert summary.format == "11" and summary.checkpoint_lsn == 9
    assert tables["key"].rows == 100 and tables["binding"].rows == 100 and tables["log"].rows == 0


async def test_what_changes_while_a_scan_goes_on_is_told_as_it_is_now(tmp_path: Path) -> None:
    """Values of rows that the delta has are not read from the checkpoint: a scan must not miss them for that."""
    store = await Store.open(tmp_path)
    rows, prefix = store.tables.detail, b"12345678"
    names = [prefix + number.to_bytes(8, "big") for number in range(4)]
    for name in names:
        rows.put(name, b"old")
    store.freeze(1)
    await store.checkpoint()
    rows.put(names[0], b"new")
    scan = rows.scan(prefix)
    assert next(scan) == (names[0], b"new")
    rows.put(names[1], b"newer")
    rows.delete(names[2])
    assert list(scan) == [(names[1], b"newer"), (names[3], b"old")]
    await store.close()
