"""The in-memory tables, shape by shape. The shared suite (test_tables_conformance) says the rest."""

from __future__ import annotations

from shoal_slice_node.core.tables.memory_tables import MemoryTables


def test_scan_takes_rows_of_the_prefix_from_start() -> None:
    rows = MemoryTables().key
    for key in (b"b2", b"a1", b"b1", b"c", b"b3"):
        rows.put(key, key)
    assert [key for key, _ in rows.scan(b"b")] == [b"b1", b"b2", b"b3"]
    assert [key for key, _ in rows.scan(b"b", b"b2")] == [b"b2", b"b3"]
    rows.delete(b"b2")
    assert [key for key, _ in rows.scan()] == [b"a1", b"b1", b"b3", b"c"]


def test_log_reads_from_the_row_that_holds_the_offset() -> None:
    log = MemoryTables().log
    for first in (1, 5, 9):
        log.append(b"k", first, b"row%d" % first)
    assert [first for first, _ in log.read(b"k", 1, 6)] == [5, 9]
    assert [first for first, _ in log.read(b"k", 1, 0)] == [1, 5, 9]
    log.trim(b"k", 1, 5)
    assert [first for first, _ in log.read(b"k", 5, 1)] == [5, 9]
