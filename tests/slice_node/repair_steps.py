"""Journals with damage."""

from __future__ import annotations

from pathlib import Path

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_contract.journal_record import encode_record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change, encode_ownership
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.verbs.engine import Engine
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.journal_segment import SUFFIX
from shoal_slice_node.storage.lmdb_tables import LmdbBase
from shoal_slice_node.storage.stopped_folder import stopped

from .core_driver import declare

SEGMENT_BYTES = 4096
QUEUES = 60
"""Each declared by a record of its own: LSN 2 and on, in several segments."""


def change(*steps: wire.Step) -> bytes:
    return encode_change(ChangeHead(NO_PRODUCER, 0, 0), wire.Change(steps=steps).SerializeToString())


async def node(path: Path, checkpoint_lsn: int, bad_lsn: int = 0, bad: tuple[int, bytes] | None = None) -> list[Path]:
    """A stopped node's folder. `bad_lsn`: a record of this kind and payload; None: of a kind that no version knows.
    Returns its segments."""
    store = await Store.open(path / STORE_FOLDER, identity=b"of-s01")
    journal = Journal.open(path / JOURNAL_FOLDER, segment_bytes=SEGMENT_BYTES, identity=b"of-s01")
    engine = Engine(store.tables)
    for lsn in range(1, QUEUES + 2):
        kind, payload = int(Kind.CHANGE), change(declare(f"q{lsn:02}"))
        if lsn == 1:
            kind, payload = Kind.OWNERSHIP, encode_ownership(1, b"\x01" * 4)
        if lsn == bad_lsn:
            kind, payload = bad or (99, payload)
        data = encode_record(kind, lsn, 3, 1_000, payload)
        journal.append(data, lsn, lsn)
        if lsn <= checkpoint_lsn:
            engine.apply(next(iter(journal.records(lsn))))
    store.freeze(checkpoint_lsn)
    await store.checkpoint()
    await store.close()
    journal.close()
    return segments(path)


def segments(path: Path) -> list[Path]:
    return sorted((path / JOURNAL_FOLDER).glob(f"*{SUFFIX}"))


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def queues(path: Path) -> set[int]:
    """The numbers of the queues that a start finds; the journal takes one record more. Raises as a start does."""
    with stopped(path) as store:
        base = LmdbBase(store)
        try:
            journal = Journal.open(path / JOURNAL_FOLDER, base.lsn, segment_bytes=SEGMENT_BYTES)
            engine = Engine(Delta(base))
            engine.state.lsn = base.lsn
            for record in journal.records(base.lsn + 1):
                engine.apply(record)
            next_lsn = journal.next_lsn
            assert next_lsn == engine.state.lsn + 1
            journal.append(encode_record(Kind.CHANGE, next_lsn, 4, 1_000, change()), next_lsn, next_lsn)
            journal.close()
            return {int(name[1:]) for name, _ in engine.state.tables.queue_by_name.scan()}
        finally:
            base.close()
