"""A store of another version is called that, before any of its tables is looked for (operator brief 3, H2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_contract.errors import Conflict, ShoalError
from shoal_slice_node.adapters.recovery import look
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.journal_repair import JournalRepair
from shoal_slice_node.storage.lmdb_tables import LmdbBase
from shoal_slice_node.storage.offline import check_path
from shoal_slice_node.storage.store_inspection import inspect_store

from .old_stores import store_of_format

READERS: list[Callable[[Path], object]] = [
    look,
    check_path,
    lambda node: inspect_store(node / STORE_FOLDER),
    lambda node: LmdbBase(node / STORE_FOLDER),
    lambda node: JournalRepair(node, node / STORE_FOLDER),
]
SAID = [
    (b"4", "has format 4; this version reads format 11"),
    (b"6", "has format 6; this version reads format 11"),  # The same tables, with keys with tags elsewhere.
    (b"12", "has format 12; this version reads format 11"),
    (None, "names no format, as those of the oldest versions; this version reads format 11"),
]


@pytest.fixture(params=SAID, ids=["older", "without tags", "newer", "oldest"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """A node's folder, and what is said of it."""
    store_format, said = request.param
    store_of_format(tmp_path / STORE_FOLDER, store_format)
    Journal.open(tmp_path / JOURNAL_FOLDER).close()
    return tmp_path, said


@pytest.mark.parametrize("read", READERS, ids=["start", "check", "inspect", "read", "repair"])
def test_a_store_of_another_version_is_no_damage(other: tuple[Path, str], read: Callable[[Path], object]) -> None:
    node, said = other
    with pytest.raises(Conflict) as caught:
        read(node)
    _check_told(caught.value, node, said)


async def test_a_store_of_another_version_is_not_opened(other: tuple[Path, str]) -> None:
    node, said = other
    before = (node / STORE_FOLDER / "data.mdb").read_bytes()
    with pytest.raises(Conflict) as caught:
        await Store.open(node / STORE_FOLDER)
    assert said in caught.value.message
    assert (node / STORE_FOLDER / "data.mdb").read_bytes() == before


def _check_told(error: ShoalError, node: Path, said: str) -> None:
    assert error.message.startswith(f"store {node / STORE_FOLDER} {said}")
    assert "nothing is damaged" in error.message and error.subject == "format"
