"""Keeps logs over a base: rows appended and ranges trimmed since the last checkpoint.

    _rows   key id -> (first, row)  or  [(first, row), ...]   offsets only grow, so base + frozen + active is the log
    _trims  key id -> (low, new low)                          rows of the layers below in this range are gone

Rows trimmed before they were checkpointed leave nothing. A trim is noted only if a layer below may have a row in it.
Reads need no trims: the caller gives its low. A key that vanished comes back under a new id, so no id comes twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Protocol, TypeAlias

from shoal_slice_node.core.limits import PIECE_BYTES_MAX
from shoal_slice_node.core.tables.delta_piece import OVERHEAD_BYTES, Piece

_Row: TypeAlias = tuple[int, bytes]
_FIRST = itemgetter(0)


class BaseLogs(Protocol):
    """Says what a delta of logs needs below it."""

    def read(self, key_id: bytes, low: int, offset: int) -> Iterator[_Row]: ...

    def heads(self, key_id: bytes, low: int, offset: int) -> Iterator[_Row]: ...

    def scan(self) -> Iterator[tuple[bytes, int, bytes]]: ...


class _Layer:
    __slots__ = ("bytes_about", "count", "rows", "trims")

    def __init__(self) -> None:
        self.rows: dict[bytes, _Row | list[_Row]] = {}
        self.trims: dict[bytes, tuple[int, int]] = {}
        self.count = 0  # rows
        self.bytes_about = 0

    def of(self, key_id: bytes) -> list[_Row]:
        entry = self.rows.get(key_id)
        if entry is None:
            return []
        return [entry] if isinstance(entry, tuple) else entry


class DeltaLogs:
    """See tables.Logs."""

    def __init__(self, base: BaseLogs) -> None:
        self._base = base
        self._layer = _Layer()
        self._frozen = _Layer()
        self._garbage = _Layer()

    def append(self, key_id: bytes, first: int, row: bytes) -> None:
        layer = self._layer
        entry = layer.rows.get(key_id)
        if entry is None:
            layer.rows[key_id] = (first, row)
        elif type(entry) is list:
            entry.append((first, row))
        else:
            layer.rows[key_id] = [entry, (first, row)]  # type: ignore[list-item]
        layer.count += 1
        layer.bytes_about += len(row) + OVERHEAD_BYTES

    def read(self, key_id: bytes, low: int, offset: int) -> Iterator[_Row]:
        active = self._layer.of(key_id)
        if not _covers(active, low, offset):
            yield from self._read_frozen(key_id, low, offset)
        yield from _from(active, _begin(active, low, offset))

    def _read_frozen(self, key_id: bytes, low: int, offset: int) -> Iterator[_Row]:
        frozen = self._frozen.of(key_id)
        if not _covers(frozen, low, offset):
            yield from self._base.read(key_id, low, offset)
        yield from _from(frozen, _begin(frozen, low, offset))

    def heads(self, key_id: bytes, low: int, offset: int) -> Iterator[_Row]:
        active, frozen = self._layer.of(key_id), self._frozen.of(key_id)
        if not _covers(active, low, offset):
            if not _covers(frozen, low, offset):
                yield from self._base.heads(key_id, low, offset)
            yield from _from(frozen, _begin(frozen, low, offset))
        yield from _from(active, _begin(active, low, offset))  # Rows in memory cost nothing, so they are whole.

    def trim(self, key_id: bytes, low: int, new_low: int) -> None:
        if new_low <= low:
            return
        layer = self._layer
        mine = layer.of(key_id)
        if not mine or low < mine[0][0]:
            below = layer.trims.get(key_id)
            layer.trims[key_id] = (low if below is None else min(low, below[0]), new_low)
        end = bisect_left(mine, new_low, key=_FIRST)
        if end == 0:
            return
        layer.count -= end
        layer.bytes_about -= sum(len(row) + OVERHEAD_BYTES for _, row in islice(mine, end))
        if end == len(mine):
            del layer.rows[key_id]
        else:
            del mine[:end]  # of two rows or more, so it is the layer's own list

    def scan(self) -> Iterator[tuple[bytes, int, bytes]]:
        below = _untrimmed(self._base.scan(), self._frozen)
        older = _untrimmed(merge(below, _all(self._frozen)), self._layer)
        return merge(older, _all(self._layer))

    @property
    def rows(self) -> int:
        """Returns the number of rows and trims in the active layer."""
        return self._layer.count + len(self._layer.trims)

    @property
    def bytes_about(self) -> int:
        """Returns the memory of the active layer, about."""
        return self._layer.bytes_about + len(self._layer.trims) * OVERHEAD_BYTES

    def freeze(self) -> None:
        assert not self._frozen.rows and not self._garbage.rows, "the last frozen delta is not dropped yet"
        self._frozen, self._layer = self._layer, _Layer()

    def pieces(self, table: str, rows_max: int, bytes_max: int = PIECE_BYTES_MAX) -> Iterator[Piece]:
        """Yields the frozen layer in pieces of up to rows_max rows and about bytes_max bytes."""
        trims = iter(self._frozen.trims.items())
        while batch := list(islice(trims, rows_max)):
            yield "trim", table, [field for key_id, (low, new_low) in batch for field in (key_id, low, new_low)]
        flat: list[bytes | int] = []
        flat_bytes = 0
        for key_id, entry in self._frozen.rows.items():
            for first, row in (entry,) if isinstance(entry, tuple) else entry:
                flat += (key_id, first, row)
                flat_bytes += len(row)
                if len(flat) >= 3 * rows_max or flat_bytes >= bytes_max:
                    yield "append", table, flat
                    flat, flat_bytes = [], 0
        if flat:
            yield "append", table, flat

    def trimmed(self, rows_max: int) -> Iterator[int]:
        """Yields the memory of the frozen rows that were trimmed since, for up to rows_max rows at a time. Rows may be
        trimmed meanwhile."""
        for key_id, (_, new_low) in list(self._layer.trims.items()):
            rows = self._frozen.of(key_id)
            end = bisect_left(rows, new_low, key=_FIRST)
            for begin in range(0, end, rows_max):
                yield sum(len(row) + OVERHEAD_BYTES for _, row in rows[begin : min(end, begin + rows_max)])

    def melt(self, rows_max: int) -> bool:
        """Moves up to rows_max frozen rows and trims into the active layer, but for rows that it trimmed; False when
        nothing is left. Reads give the same before, between and afterwards."""
        frozen, trims = self._frozen, self._layer.trims
        left = rows_max
        while frozen.trims and left > 0:
            key_id, (low, new_low) = frozen.trims.popitem()
            later = trims.get(key_id, (low, new_low))
            trims[key_id] = min(low, later[0]), max(new_low, later[1])
            left -= 1
        while frozen.rows and left > 0:
            left -= self._melt_rows(left)
        return bool(frozen.rows or frozen.trims)

    def _melt_rows(self, rows_max: int) -> int:
        """Moves the last rows of a frozen log before those of the active layer. Returns their number."""
        frozen, layer = self._frozen, self._layer
        key_id, entry = frozen.rows.popitem()
        rows = [entry] if isinstance(entry, tuple) else entry
        part = rows[-rows_max:]
        del rows[-rows_max:]
        if rows:
            frozen.rows[key_id] = rows
        trim = layer.trims.get(key_id)
        kept = [row for row in part if not _in(trim, row[0])]
        if kept:
            layer.count += len(kept)
            layer.bytes_about += sum(len(row) + OVERHEAD_BYTES for _, row in kept)
            kept += layer.of(key_id)
            layer.rows[key_id] = kept if len(kept) > 1 else kept[0]
        return len(part)

    def drop_frozen(self) -> None:
        """Drops the frozen layer, which the base now has. Call together with the base's renewal, then `free` until it
        returns False."""
        self._garbage, self._frozen = self._frozen, _Layer()

    def free(self, rows_max: int, bytes_max: int = PIECE_BYTES_MAX) -> bool:
        """Frees about rows_max rows, or about bytes_max bytes, of what was dropped; False when nothing is left."""
        garbage = self._garbage
        rows_left, bytes_left = rows_max, bytes_max
        while garbage.rows and rows_left > 0 and bytes_left > 0:
            key_id, entry = garbage.rows.popitem()
            rows_left -= 1
            if isinstance(entry, tuple):
                bytes_left -= len(entry[1])
                continue
            while entry and rows_left > 0 and bytes_left > 0:
                rows_left -= 1
                bytes_left -= len(entry.pop()[1])
            if entry:
                garbage.rows[key_id] = entry
        while garbage.trims and rows_left > 0:
            garbage.trims.popitem()
            rows_left -= 1
        return bool(garbage.rows or garbage.trims)


def _covers(rows: list[_Row], low: int, offset: int) -> bool:
    """Returns whether a read from `offset` on, or from `low`, needs nothing below these rows."""
    return bool(rows) and rows[0][0] <= max(offset, low)


def _begin(rows: list[_Row], low: int, offset: int) -> int:
    return max(bisect_right(rows, offset, key=_FIRST) - 1, bisect_left(rows, low, key=_FIRST))


def _from(rows: list[_Row], begin: int) -> Iterator[_Row]:
    for place in range(begin, len(rows)):  # An `islice` would pass all rows before it, one by one.
        yield rows[place]


def _all(layer: _Layer) -> Iterator[tuple[bytes, int, bytes]]:
    for key_id in sorted(layer.rows):
        for first, row in layer.of(key_id):
            yield key_id, first, row


def _untrimmed(rows: Iterator[tuple[bytes, int, bytes]], layer: _Layer) -> Iterator[tuple[bytes, int, bytes]]:
    trims = layer.trims
    for item in rows:
        if not (trims and _in(trims.get(item[0]), item[1])):
            yield item


def _in(trim: tuple[int, int] | None, first: int) -> bool:
    return trim is not None and trim[0] <= first < trim[1]
