"""A store whose making was interrupted, as by a kill in the first start: the next start makes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal_contract.data_folder import STORE_FOLDER
from shoal_contract.data_identity import DataIdentity
from shoal_contract.errors import Corrupt
from shoal_slice_node.adapters.recovery import Found, look, recover
from shoal_slice_node.storage import checkpoint_writer
from shoal_slice_node.storage.checkpoint_writer import CheckpointWriter
from shoal_slice_node.storage.lmdb_layout import DATA_FILE, FORMAT_ROW, STORE, TABLES, open_environment, open_table

ALONE = DataIdentity("", "s01", "n01", "a" * 32)


class Crash(BaseException):
    pass


async def starts(folder: Path) -> None:
    """As a node does, and its data says whose it is."""
    assert look(folder) is None, "nothing was there yet"
    await (await recover(folder, ALONE)).close()
    assert look(folder) == Found(ALONE, 0)


@pytest.mark.parametrize("tables", range(len(TABLES)))
async def test_a_crash_while_the_store_is_made_leaves_none(
    tables: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def crashing(*arguments: Any, **options: Any) -> Any:
        nonlocal made
        if made == tables:
            raise Crash
        made += 1
        return open_table(*arguments, **options)

    store = tmp_path / STORE_FOLDER
    store.mkdir()
    monkeypatch.setattr(checkpoint_writer, "open_table", crashing)
    with pytest.raises(Crash):
        CheckpointWriter(store, ALONE.encode())
    monkeypatch.undo()
    await starts(tmp_path)


def made_in_part(folder: Path, tables: int) -> Path:
    """A store of so many tables, and no format."""
    store = folder / STORE_FOLDER
    store.mkdir()
    environment = open_environment(store, readonly=False)
    for table in TABLES[:tables]:
        open_table(environment, table, create=True)
    environment.close()
    return store


@pytest.mark.parametrize("tables", [0, 1, len(TABLES)])
async def test_a_store_that_was_made_in_part_is_made(tables: int, tmp_path: Path) -> None:
    made_in_part(tmp_path, tables)
    await starts(tmp_path)


async def test_an_empty_file_is_no_store_yet(tmp_path: Path) -> None:
    (tmp_path / STORE_FOLDER).mkdir()
    (tmp_path / STORE_FOLDER / DATA_FILE).touch()
    await starts(tmp_path)


async def test_beside_a_journal_a_store_without_its_format_is_refused(tmp_path: Path) -> None:
    await (await recover(tmp_path, ALONE)).close()
    store = tmp_path / STORE_FOLDER
    environment = open_environment(store, readonly=False)
    table = open_table(environment, STORE, create=False)
    with environment.begin(write=True, db=table) as transaction:
        for row in [key for key, _ in transaction.cursor()]:
            transaction.delete(row)
    environment.close()
    with pytest.raises(Corrupt, match="is not a Shoal store: it names no format"):
        look(tmp_path)
    (store / DATA_FILE).unlink()
    (store / DATA_FILE).touch()
    with pytest.raises(Corrupt):
        look(tmp_path)


@pytest.mark.parametrize("table", [STORE, "key", "another"])
async def test_rows_without_a_format_are_not_overwritten(table: str, tmp_path: Path) -> None:
    store = made_in_part(tmp_path, len(TABLES) - 1)
    environment = open_environment(store, readonly=False)
    database = environment.open_db(table.encode())
    with environment.begin(write=True, db=database) as transaction:
        transaction.put(b"row", b"1")
    environment.close()
    with pytest.raises(Corrupt, match="names no format"):
        look(tmp_path)
    with pytest.raises(Corrupt, match="names no format"):
        await recover(tmp_path, ALONE)
    environment = open_environment(store, readonly=True)
    with environment.begin(db=environment.open_db(table.encode(), create=False)) as transaction:
        assert transaction.get(b"row") == b"1" and transaction.get(FORMAT_ROW) is None
    environment.close()
