"""The memory that a delta's rows take: counted as it is, whatever becomes of a row, and sent and freed in bounded
parts.
"""

from __future__ import annotations

from random import Random

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.limits import DELTA_ROWS_MAX
from shoal_slice_node.core.limits import PIECE_BYTES_MAX, PIECE_ROWS_MAX
from shoal_slice_node.core.node.freezing import FreezeLimits, Freezing
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.delta_logs import DeltaLogs
from shoal_slice_node.core.tables.delta_piece import OVERHEAD_BYTES
from shoal_slice_node.core.tables.delta_rows import DeltaRows
from shoal_slice_node.core.tables.memory_tables import MemoryLogs, MemoryRows
from shoal_slice_node.core.tables.tables import ROW_TABLES

from .core_driver import CoreDriver, declare
from .memory_base import MemoryBase

LARGE = 65_000


def in_pieces(rows: DeltaRows) -> int:
    """The memory of what a freeze of the rows leaves, counted by its pieces. They are dropped."""
    rows.freeze()
    size = sum(sum(map(len, piece[2])) + len(piece[2]) // 2 * OVERHEAD_BYTES for piece in rows.pieces("rows", 100))
    rows.drop_frozen()
    while rows.free(100):
        pass
    return size


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("index_bytes", [0, 2])
def test_the_bytes_of_a_layer_are_those_of_its_rows_whatever_came_and_went(seed: int, index_bytes: int) -> None:
    random = Random(seed)
    rows = DeltaRows(MemoryRows(), index_bytes)
    there: set[bytes] = set()
    for _ in range(20):
        for _ in range(200):
            key = b"%04d" % random.randrange(40)
            value = random.randbytes(random.choice((1, 8, 60, 9_000)))
            if random.random() < 0.3:
                rows.delete(key)
                there.discard(key)
            elif key not in there and random.random() < 0.7:
                rows.insert(key, value)
                there.add(key)
            else:
                rows.put(key, value)
                there.add(key)
        counted = rows.bytes_about
        assert counted == in_pieces(rows)
        there.clear()  # The base stays empty: these rows are gone.


@pytest.mark.parametrize("table", ROW_TABLES)
def test_a_row_that_grows_counts_in_every_table(table: str) -> None:
    delta = Delta(MemoryBase())
    rows = getattr(delta, table)
    rows.put(b"12345678a", b"small")
    rows.put(b"12345678a", bytes(LARGE))
    assert delta.bytes_active >= LARGE
    rows.put(b"12345678a", b"small")
    assert delta.bytes_active < 1_000


def farewells(queues: list[str], size: int) -> wire.Step:
    names, chunk = [name.encode() for name in queues], encode_chunk([bytes(size)])
    step = wire.Farewells(queues=names, keys=[b"k"] * len(names), chunks=[chunk] * len(names), after_s=3600)
    return wire.Step(farewells=step)


def test_farewells_set_anew_count_in_the_figure_that_freezes_also_in_a_replay() -> None:
    """First 8 bytes, then 65 KB: only the first were counted, and a node of 512 MiB took 942."""
    names = [f"q{number}" for number in range(20)]
    delta = Delta(MemoryBase())
    core = CoreDriver(delta)
    core.change(declare(*names))
    core.change(farewells(names, 1), farewells(names, LARGE))
    assert delta.bytes_active >= len(names) * LARGE
    replayed = Delta(MemoryBase())
    replica = Replica(replayed)
    freezing = Freezing(replica.state, Stored(replayed), FreezeLimits(len(names) * LARGE, 60_000, 1 << 40, 1 << 40))
    for record in core.records[:-1]:
        replica.apply(record)
    assert not freezing.is_large()
    replica.apply(core.records[-1])
    assert freezing.is_large()


class Stored:
    """See freezing.Freezable."""

    checkpoint_lsn = 0
    delta_rows_max = DELTA_ROWS_MAX
    frozen_rows = frozen_bytes = 0
    freezing = False

    def __init__(self, delta: Delta) -> None:
        self._delta = delta

    @property
    def delta_rows(self) -> int:
        return self._delta.rows_active

    @property
    def delta_bytes(self) -> int:
        return self._delta.bytes_active

    def freeze(self, lsn: int) -> None:
        raise AssertionError("not in this test")


def test_pieces_are_bounded_by_bytes_and_rows() -> None:
    rows = DeltaRows(MemoryRows())
    expected = {
        b"%05d" % number: bytes((number % 255 + 1,)) * (LARGE if number % 3 == 0 else 9) for number in range(300)
    }
    for number in range(12_000):
        expected[b"small%05d" % number] = b"small"
    for key, value in expected.items():
        rows.put(key, value)
    rows.freeze()
    pieces = list(rows.pieces("farewell", PIECE_ROWS_MAX))
    sizes = [sum(map(len, piece[2])) for piece in pieces]
    assert max(sizes) < PIECE_BYTES_MAX + 2 * LARGE and max(len(piece[2]) for piece in pieces) <= 2 * PIECE_ROWS_MAX
    assert len(pieces) <= 12, "small rows go together"
    found = [pair for piece in pieces for pair in zip(piece[2][::2], piece[2][1::2], strict=True)]
    assert dict(found) == expected and len(found) == len(expected)


def test_a_row_larger_than_a_piece_goes_alone() -> None:
    rows = DeltaRows(MemoryRows())
    values = {b"a": b"x", b"b": bytes(5_000), b"c": b"y", b"d": bytes(5_000), b"e": bytes(5_000)}
    for key, value in values.items():
        rows.put(key, value)
    rows.freeze()
    keys = [piece[2][::2] for piece in rows.pieces("meta", 100, 2_000)]
    assert keys == [[b"a", b"b"], [b"c", b"d"], [b"e"]]


def test_what_was_dropped_is_freed_in_parts_bounded_by_bytes() -> None:
    rows = DeltaRows(MemoryRows())
    logs = DeltaLogs(MemoryLogs())
    for number in range(100):
        rows.put(b"%05d" % number, bytes(LARGE))
        logs.append(b"%08d" % (number % 5), number, bytes(LARGE))
    for table in (rows, logs):
        table.freeze()
        table.drop_frozen()
        turns = 1
        while table.free(PIECE_ROWS_MAX):
            turns += 1
        assert 100 * LARGE // PIECE_BYTES_MAX <= turns <= 12
