"""The check: finds what is made wrong, row by row, in memory and in a stopped node's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_contract.errors import Conflict, Corrupt
from shoal_contract.journal_record import encode_record
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply.records import ChangeHead
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.rows.log_row import encode_log
from shoal_slice_node.core.rows.small_rows import KEPT, encode_kept
from shoal_slice_node.core.tables.tables import Rows, Tables
from shoal_slice_node.core.verbs.engine import Engine
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.offline import check_path

from .core_driver import CoreDriver, bind, declare, publish, unbind

MANY = [f"k{number}" for number in range(200)]


def filled() -> CoreDriver:
    """A queue of many buckets, a small one with an ended binding and done ranges, a producer."""
    core = CoreDriver()
    head = ChangeHead(b"p" * 16, 1, 0)
    core.change(declare("big", "small"), bind("big", *MANY), bind("small", "k1", "k2", "k3"), head=head)
    core.change(*(publish(key, b"a", b"bc") for key in ("k1", "k2")), publish("k1", b"d"), unbind("small", "k1"))
    session = core.session()
    core.attach(session, "small")
    core.take(session)
    core.ack(session, "k2", 2, 3)
    core.flush()
    core.check()
    return core


def first_key(rows: Rows) -> bytes:
    return next(key for key, _ in rows.scan())


def cut_bucket(tables: Tables) -> None:
    tables.membership.delete(first_key(tables.membership))


def forget_member(tables: Tables) -> None:
    tables.binding.remove(*next(iter(tables.binding.scan())))


def add_member(tables: Tables) -> None:
    tables.binding.add(next(iter(tables.binding.scan()))[0], b"somebody")


def forget_ended(tables: Tables) -> None:
    tables.ended.remove(*next(iter(tables.ended.scan())))


def spoil_log(tables: Tables) -> None:
    key_id, first, _ = list(tables.log.scan())[-1]
    tables.log.append(key_id, first + 9, encode_log(1, 1, 1, 1, b"no chunk"))


DAMAGE: list[Callable[[Tables], None]] = [
    cut_bucket,
    forget_member,
    add_member,
    forget_ended,
    spoil_log,
    *(
        lambda tables, name=name: getattr(tables, name).delete(first_key(getattr(tables, name)))
        for name in ("key", "key_name", "queue_by_name", "queue", "detail", "partition", "producer")
    ),
    lambda tables: tables.meta.delete(b"next_queue"),
    lambda tables: tables.queue_by_name.put(b"ghost", b"whatever"),
    lambda tables: tables.producer.put(b"p" * 16 + b"\x00" * 7 + b"\x09", b"\x01"),
    lambda tables: tables.reclaim.put(b"?", b"\x01"),
    lambda tables: tables.reclaim.put(b"k" + bytes(8), b"\x01"),
    lambda tables: tables.local_hints.put(b"?", b"\x01"),
    lambda tables: tables.local_totals.put(b"?", b"\x01"),
    lambda tables: tables.local_totals.put(KEPT, encode_kept(1, 1)),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_damage_is_found(damage: Callable[[Tables], None]) -> None:
    core = filled()
    damage(core.tables)
    assert list(check_tables(core.tables))


async def stopped(path: Path, checkpoint_lsn: int) -> CoreDriver:
    """The records of `filled` in a folder as a killed node leaves it, checkpointed at this LSN."""
    core = filled()
    store = await Store.open(path / STORE_FOLDER)
    journal = Journal.open(path / JOURNAL_FOLDER)
    engine = Engine(store.tables)
    for record in core.records:
        data = encode_record(record.kind, record.lsn, record.epoch, record.time_ms, record.payload)
        journal.append(data, record.lsn, record.lsn)
        if record.lsn <= checkpoint_lsn:
            engine.apply(record)
    store.freeze(checkpoint_lsn)
    await store.checkpoint()
    await store.close()
    journal.close()
    return core


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock.mdb")


async def test_a_stopped_node_is_checked_with_its_journal_and_not_changed(tmp_path: Path) -> None:
    core = await stopped(tmp_path, 2)
    files = files_of(tmp_path)
    before = [path.read_bytes() for path in files]
    report = check_path(tmp_path)
    assert report.sound, report.problems
    assert (report.checkpoint_lsn, report.replayed) == (2, len(core.records) - 2)
    assert report.rows["queue"] == 2 and report.rows["binding"] == 202
    assert before == [path.read_bytes() for path in files]


async def test_a_journal_that_does_not_reach_the_checkpoint_is_a_problem(tmp_path: Path) -> None:
    await stopped(tmp_path, 2)
    for segment in (tmp_path / JOURNAL_FOLDER).iterdir():
        segment.unlink()
    assert not check_path(tmp_path).sound


async def test_a_folder_in_use_is_refused_and_so_is_one_without_a_store(tmp_path: Path) -> None:
    with pytest.raises(Corrupt):
        check_path(tmp_path)
    store = await Store.open(tmp_path / STORE_FOLDER)
    with pytest.raises(Conflict, match="in use by process"):
        check_path(tmp_path)
    await store.close()
