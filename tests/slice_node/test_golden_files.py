"""Files and frames as fixed bytes: written as such, and read from them. See test_golden_bytes."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from socket import socketpair
from typing import Any

import pytest

from shoal_contract.journal_record import Record, encode_record
from shoal_contract.wire import bulk_pb2 as wire
from shoal_slice_node.core.apply.records import Kind
from shoal_slice_node.core.rows.ids import key_id, queue_id
from shoal_slice_node.core.tables.delta_piece import Piece
from shoal_slice_node.processes import checkpoint_frame, child_frame
from shoal_slice_node.storage.archive import Archive
from shoal_slice_node.storage.checkpoint_writer import CheckpointWriter
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.known_archives import KnownArchives
from shoal_slice_node.storage.lmdb_layout import STORE, TABLES, open_environment, open_table
from shoal_slice_node.storage.lmdb_tables import LmdbBase

from .journal_steps import Inline

KEY = key_id(3, 7)
QUEUE = queue_id(258)


SEGMENT = (
    "02ff00000e0000000000000000000000000000000000000000000000eb08dc4b31323334353637386f66207330310200"
    "000010000000010000000000000000000000000000000000000083b4d596000000000000000031323334353637380203"
    "0000030000000100000000000000020000000300000000000000b1bc537f6f6e65020000001000000002000000000000"
    "00000000000000000000000000b9758c3001000000000000003132333435363738020300000300000002000000000000"
    "00020000000400000000000000e7f10a7374776f02030000050000000300000000000000020000000400000000000000"
    "5c26ad187468726565020000001000000004000000000000000000000000000000000000003c81d37903000000000000"
    "003132333435363738"
)
"""A segment with a head, two batches and the mark of a clean end."""


def test_a_segment_is_written_as_these_bytes_and_read_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", lambda count: b"12345678"[:count])
    written, found = tmp_path / "written", tmp_path / "found"
    journal = Journal.open(written, segment_bytes=4096, background=Inline(), identity=b"of s01")
    journal.append(encode_record(Kind.TRIM, 1, 2, 3, b"one"), 1, 1)
    journal.append(encode_record(Kind.TRIM, 2, 2, 4, b"two") + encode_record(Kind.TRIM, 3, 2, 4, b"three"), 2, 3)
    journal.close()
    (path,) = written.glob("*.journal")
    assert path.name == "0000000000000001.journal"
    data = path.read_bytes()
    assert data[: len(SEGMENT) // 2].hex() == SEGMENT and not data[len(SEGMENT) // 2 :].strip(b"\0")

    found.mkdir()
    (found / path.name).write_bytes(bytes.fromhex(SEGMENT).ljust(4096, b"\0"))
    read = Journal.open(found, segment_bytes=4096, background=Inline())
    assert (read.identity, read.next_lsn) == (b"of s01", 4)
    assert list(read.records(1)) == [
        Record(Kind.TRIM, 0, 1, 2, 3, b"one"),
        Record(Kind.TRIM, 0, 2, 2, 4, b"two"),
        Record(Kind.TRIM, 0, 3, 2, 4, b"three"),
    ]
    read.close()


def test_an_archived_segment_has_the_bytes_of_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "0000000000000001.journal"
    path.write_bytes(bytes.fromhex(SEGMENT).ljust(4096, b"\0"))
    archive = Archive(tmp_path / "archive")
    archive.put(path, len(SEGMENT) // 2)
    assert [one.name for one in archive.folder.iterdir()] == [path.name]
    assert (archive.folder / path.name).read_bytes().hex() == SEGMENT
    archive.put(path)
    assert (archive.folder / path.name).read_bytes().hex() == SEGMENT, "the zeros behind it are no part of it"


ARCHIVES = (
    "02010000250000000100000000000000000000000000000000000000d076d3330101000000000000000100000000000000"
    "040000000000000029010000000000000983f120"
)
"""What is known of one archive: the second slot, without its zeros."""


def test_what_an_archive_got_last_is_noted_as_these_bytes_and_read_from_them(tmp_path: Path) -> None:
    first, second = tmp_path / "0000000000000001.journal", tmp_path / "0000000000000004.journal"
    for path in (first, second):
        path.write_bytes(bytes.fromhex(SEGMENT).ljust(4096, b"\0"))
    known, file = KnownArchives(DiskFiles(), tmp_path), tmp_path / "archives"
    entry = known.note(None, first, 4)
    assert entry == (1, 1, 4, len(SEGMENT) // 2, 0x20F18309)
    slot = ARCHIVES.ljust(1024, "0")
    assert file.read_bytes().hex() == bytes(512).hex() + slot
    file.write_bytes(bytes(512) + bytes.fromhex(ARCHIVES))
    assert known.entries() == [entry]
    file.write_bytes(bytes(512) + bytes.fromhex(slot))
    assert known.note(entry, second, 7) == entry._replace(first_lsn=4, end_lsn=7)
    assert file.read_bytes()[512:].hex() == slot, "the other slot is written"
    assert [one.first_lsn for one in known.entries()] == [4]


PIECES: list[Piece] = [
    ("rows", "meta", [b"a", b"1", b"gone", b""]),
    ("add", "binding", [KEY + QUEUE, KEY + queue_id(259)]),
    ("append", "log", [KEY, 5, b"x" * 4001]),
]

STORED = {
    "meta": [("61", "31")],
    "binding": [("0003000000000007", "0000000000000102"), ("0003000000000007", "0000000000000103")],
    "log": [("000300000000000700000000000000050000", "78" * 4000), ("000300000000000700000000000000050001", "78")],
    "store": [
        (b"format".hex(), b"11".hex()),
        (b"identity".hex(), b"of s01".hex()),
        (b"lsn".hex(), "0000000000000009"),
        (b"table_forms".hex(), b"binding=1 ended=1 key_name=1 queue_by_name=1".hex()),
    ],
}


def test_a_checkpoint_holds_these_bytes_and_is_read_from_them(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, b"of s01")
    writer.write(PIECES, 9)
    writer.close()
    assert stored(tmp_path) == STORED
    base = LmdbBase(tmp_path)
    assert (base.lsn, base.identity) == (9, b"of s01")
    assert list(base.rows("meta").scan()) == [(b"a", b"1")]
    assert base.groups("binding").page(KEY, b"", 9) == [QUEUE, queue_id(259)]
    assert list(base.logs("log").scan()) == [(KEY, 5, b"x" * 4001)]
    base.close()


def stored(folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Reads what LMDB holds, table by table, without Shoal's own readers."""
    environment = open_environment(folder, readonly=True)
    found = {}
    tables = {table: open_table(environment, table, create=False) for table in TABLES}
    for table, database in tables.items():
        with environment.begin(db=database) as transaction:
            found[table] = [(key.hex(), value.hex()) for key, value in transaction.cursor()]
    environment.close()
    assert STORE in found
    return {table: rows for table, rows in found.items() if rows}


CHILD_FRAMES = [
    (child_frame.DATA, b"data", "000400000064617461"),
    (child_frame.END, b"", "0100000000"),
    (child_frame.ERROR, b"\x08\x01", "02020000000801"),
]


@pytest.mark.parametrize(("kind", "data", "expected"), CHILD_FRAMES)
def test_a_frame_to_a_child_is_written_as_these_bytes_and_read_from_them(kind: int, data: bytes, expected: str) -> None:
    assert child_frame.encode_frame(kind, data).hex() == expected
    near, far = socketpair()
    with near, far:
        near.sendall(bytes.fromhex(expected))
        assert child_frame.receive_frame(far) == (kind, data)


EXPORTED = wire.ExportResponse(
    lsn=9, queues=[b"q"], key_counts=[1], keys=[b"k"], starts=[2], cursors=[3], ends=[4], done_counts=[1], done=[5, 6]
)
SNAPSHOT_FRAME = "001b00000008091201711a010122016b2a01023201033a01044201014a020506"


def test_a_page_of_a_snapshot_is_written_as_these_bytes_and_read_from_them() -> None:
    data = EXPORTED.SerializeToString(deterministic=True)
    assert child_frame.encode_frame(child_frame.DATA, data).hex() == SNAPSHOT_FRAME
    assert wire.ExportResponse.FromString(bytes.fromhex(SNAPSHOT_FRAME)[5:]) == EXPORTED


CHECKPOINT_FRAMES: list[tuple[tuple[Any, ...], str]] = [
    (
        PIECES[0],
        (
            "003600000028030000007504000000726f777375040000006d6574615b04000000730100000061730100000031730400"
            "0000676f6e657300000000"
        ),
    ),
    ((checkpoint_frame.COMMIT, "", [9]), "001f00000028030000007506000000636f6d6d697475000000005b010000006909000000"),
    (
        (checkpoint_frame.DONE, 9, {"fields": 2}),
        ("002500000028030000007504000000646f6e6569090000007b75060000006669656c6473690200000030"),
    ),
]


@pytest.mark.parametrize(("value", "data"), CHECKPOINT_FRAMES)
async def test_frames_of_a_checkpoint_are_read_from_these_bytes(value: tuple[Any, ...], data: str) -> None:
    """What is written is not held byte by byte: `marshal` marks what it met before, and both ends are one
    installation."""
    for frame in (bytes.fromhex(data), checkpoint_frame.encode_frame(value)):
        near, far = socketpair()
        with near, far:
            near.sendall(frame)
            assert checkpoint_frame.receive_frame(far) == value
        reader = asyncio.StreamReader()
        reader.feed_data(frame)
        assert await checkpoint_frame.read_frame(reader) == value
