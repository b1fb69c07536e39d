"""Keeps rows over a base: what changed since the last checkpoint, in up to two layers. Reads: active, frozen, base.

    _inserted  key -> value          the layers below lack the key: deleting it leaves no trace
    _changed   key -> value or b""   b"" is a tombstone: the layers below may have the key

Belongs here: the row shape. Not here: groups and logs (their own modules), when to freeze (the store's user).
Speed is the point of this module: `get` runs several times for every bind.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import chain, islice
from typing import Protocol

from shoal_slice_node.core.limits import GONE_RUN_MIN, PIECE_BYTES_MAX, ROW_KEY_BYTES_MAX, SORTED_ANEW_MAX
from shoal_slice_node.core.tables.delta_piece import OVERHEAD_BYTES, Piece, rows_piece
from shoal_slice_node.core.tables.gone import Gone
from shoal_slice_node.core.tables.key_order import KeyOrder


class BaseRows(Protocol):
    """Says what a delta of rows needs below it."""

    unfit_key_error: type[Exception]
    """The error that `get` may raise for a key that no row can have: empty, or longer than ROW_KEY_BYTES_MAX."""

    def get(self, key: bytes) -> bytes | None: ...

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]: ...

    def keys(self, prefix: bytes, start: bytes, count: int) -> list[bytes]:
        """Returns the first `count` keys that `scan` would yield."""
        ...

    def scan_beside(
        self, covered: Container[bytes], prefix: bytes, start: bytes
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Scans as `scan` does. The values of keys that are `covered` need not be read: they may be None."""
        ...

    def entries(self) -> int: ...


class _Many:
    """Keeps the keys of one prefix in order as they come and go."""

    __slots__ = ("keys", "order")

    def __init__(self, keys: dict[bytes, None]) -> None:
        self.keys = keys
        self.order = KeyOrder(keys)

    def add(self, key: bytes) -> None:
        if key not in self.keys:
            self.keys[key] = None
            self.order.note(key, self.keys)


class _Layer:
    """Holds one delta. `index`: prefix -> the keys here that begin with it, for tables that are scanned by prefix."""

    __slots__ = ("bytes_about", "changed", "index", "inserted", "order")

    def __init__(self) -> None:
        self.inserted: dict[bytes, bytes] = {}
        self.changed: dict[bytes, bytes] = {}
        self.index: dict[bytes, bytes | dict[bytes, None] | _Many] = {}
        """A prefix has one key, a few, or many."""
        self.order: KeyOrder | None = None
        self.bytes_about = 0

    def __contains__(self, key: object) -> bool:
        return key in self.inserted or key in self.changed

    def __len__(self) -> int:
        return len(self.inserted) + len(self.changed)

    def get(self, key: bytes) -> bytes | None:
        value = self.inserted.get(key)
        return self.changed.get(key) if value is None else value


class _Covered:
    """Contains the keys that either of two layers has."""

    __slots__ = ("_one", "_other")

    def __init__(self, one: _Layer, other: _Layer) -> None:
        self._one = one
        self._other = other

    def __contains__(self, key: object) -> bool:
        return key in self._one or key in self._other


class DeltaRows:
    """See tables.Rows. `index_bytes`: the length of the prefix that scans of this table begin with; 0: there is none.
    `ordered`: the table is scanned all the time, so its keys are kept in order from the beginning."""

    def __init__(self, base: BaseRows, index_bytes: int = 0, ordered: bool = False) -> None:
        self._base = base
        self._index_bytes = index_bytes
        self._ordered = ordered
        self._layer = self._new_layer()
        self._frozen, self._garbage = _Layer(), _Layer()
        self._gone = Gone()
        self._bind()

    def _new_layer(self) -> _Layer:
        layer = _Layer()
        if self._ordered:
            layer.order = KeyOrder()
        return layer

    def _bind(self) -> None:
        """Binds the layers' dicts, to save a look-up, and the base's `get`, which a renewal replaces."""
        self._base_get = self._base.get
        self._unfit_key_error = self._base.unfit_key_error
        self._inserted = self._layer.inserted
        self._changed = self._layer.changed
        self._frozen_inserted = self._frozen.inserted
        self._frozen_changed = self._frozen.changed

    def get(self, key: bytes) -> bytes | None:
        value = self._inserted.get(key)
        if value is not None:
            return value
        value = self._changed.get(key)
        if value is None:
            value = self._frozen_inserted.get(key)
            if value is None:
                value = self._frozen_changed.get(key)
                if value is None:
                    try:
                        return self._base_get(key)
                    except self._unfit_key_error:
                        return None
        return value or None

    def put(self, key: bytes, value: bytes) -> None:
        old = self._inserted.get(key)
        if old is not None:
            self._inserted[key] = value
            if len(value) != len(old):
                self._layer.bytes_about += len(value) - len(old)
            return
        changed = self._changed
        old = changed.get(key)
        changed[key] = value
        if value and self._gone:
            self._gone.came(key)
        if old is None:
            self._note(key, len(value))
        elif len(value) != len(old):
            self._layer.bytes_about += len(value) - len(old)

    def insert(self, key: bytes, value: bytes) -> None:
        if self._gone:
            self._gone.came(key)
        if key in self._changed:  # a tombstone: the layers below have it
            self._changed[key] = value
            self._layer.bytes_about += len(value)
            return
        self._inserted[key] = value
        self._note(key, len(value))

    def delete(self, key: bytes) -> None:
        value = self._inserted.pop(key, None)
        if value is None:
            self.put(key, b"")
            return
        layer = self._layer
        layer.bytes_about -= len(key) + len(value) + OVERHEAD_BYTES
        if self._index_bytes:
            prefix = key[: self._index_bytes]
            found = layer.index[prefix]
            keys = found.keys if isinstance(found, _Many) else found
            if isinstance(keys, bytes) or len(keys) == 1:
                del layer.index[prefix]
            else:
                del keys[key]

    def _note(self, key: bytes, value_bytes: int) -> None:
        """Notes a new key in the active layer, and its memory."""
        layer = self._layer
        if not 0 < len(key) <= ROW_KEY_BYTES_MAX:
            layer.inserted.pop(key, None)
            layer.changed.pop(key, None)
            if not value_bytes:
                return  # A delete of a row that cannot be there.
            raise AssertionError(f"no row can have a key of {len(key)} bytes")
        layer.bytes_about += len(key) + value_bytes + OVERHEAD_BYTES
        if self._index_bytes:
            prefix = key[: self._index_bytes]
            keys = layer.index.get(prefix)
            if keys is None:
                layer.index[prefix] = key
            elif isinstance(keys, bytes):
                layer.index[prefix] = {keys: None, key: None}
            elif isinstance(keys, _Many):
                keys.add(key)
            else:
                keys[key] = None
                if len(keys) > SORTED_ANEW_MAX:
                    layer.index[prefix] = _Many(keys)
        elif layer.order is not None:
            layer.order.note(key, layer)

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        gone = self._gone
        start = gone.past(max(start, prefix))
        while start.startswith(prefix):
            first, last, passed, is_first = b"", b"", 0, True
            for key, value in self._scan(prefix, start):
                if value:
                    if is_first and passed >= GONE_RUN_MIN:
                        gone.note(first, key)
                    is_first, passed = False, 0
                    yield key, value
                    continue
                passed, last = passed + 1, key
                if passed == 1:
                    first = start = key
                if (end := gone.past(key)) > key:  # A run that is remembered is left out, and now begins here.
                    start = end
                    if is_first:
                        gone.note(first, end)
                    break
                if passed >= GONE_RUN_MIN and not is_first:
                    break  # A run behind a row is begun anew, as rows may have come meanwhile.
            else:
                if is_first and passed >= GONE_RUN_MIN:
                    gone.note(first, last + b"\0")
                return

    def _scan(self, prefix: bytes, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """As `scan`; deleted rows come as b""."""
        base: Iterator[tuple[bytes, bytes | None]] = self._base.scan(prefix, start)
        if self._has(self._layer, prefix) or self._has(self._frozen, prefix):
            base = self._base.scan_beside(_Covered(self._layer, self._frozen), prefix, start)
        older = _overlay(self._frozen, base, self._keys(self._frozen, prefix, start))
        for key, value in _overlay(self._layer, older, self._keys(self._layer, prefix, start)):
            if value is None:  # The key came into the delta after the scan began.
                value = self.get(key)
            yield key, value or b""

    def entries(self) -> int:
        return self._base.entries() + _came(self._frozen) + _came(self._layer)

    def changed(self) -> list[bytes]:
        return [*_both(self._frozen), *_both(self._layer)]

    def scan_below(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return self._base.scan(prefix, max(start, prefix))

    def keys_below(self, prefix: bytes, start: bytes, count: int) -> list[bytes]:
        return self._base.keys(prefix, max(start, prefix), count)

    def _has(self, layer: _Layer, prefix: bytes) -> bool:
        """Returns whether the layer may have keys of this prefix."""
        width = self._index_bytes
        return prefix[:width] in layer.index if width and len(prefix) >= width else bool(layer)

    def _keys(self, layer: _Layer, prefix: bytes, start: bytes) -> Iterator[bytes]:
        width = self._index_bytes
        if width and len(prefix) >= width:
            found = layer.index.get(prefix[:width], {})
            if isinstance(found, _Many):
                return found.order.between(start, prefix, found.keys)
            keys = (found,) if isinstance(found, bytes) else found
            return iter(sorted(key for key in keys if key >= start and key.startswith(prefix)))
        if width:
            return iter(sorted(key for key in _both(layer) if key >= start and key.startswith(prefix)))
        if not layer:
            return iter(())
        if layer.order is None:
            layer.order = KeyOrder(_both(layer))
        return layer.order.between(start, prefix, layer)

    @property
    def rows(self) -> int:
        """Returns the number of rows in the active layer."""
        return len(self._layer)

    @property
    def bytes_about(self) -> int:
        """Returns the memory of the active layer, about."""
        return self._layer.bytes_about

    def freeze(self) -> None:
        assert not self._frozen and not self._garbage, "the last frozen delta is not dropped yet"
        self._frozen, self._layer = self._layer, self._new_layer()
        self._bind()

    def pieces(self, table: str, rows_max: int, bytes_max: int = PIECE_BYTES_MAX) -> Iterator[Piece]:
        """Yields the frozen layer in pieces of up to rows_max rows and about bytes_max bytes. The layer does not change
        meanwhile."""
        frozen = self._frozen
        items = chain(frozen.inserted.items(), frozen.changed.items())
        while piece := list(chain.from_iterable(islice(items, rows_max))):
            if sum(map(len, piece)) <= bytes_max:
                yield rows_piece(table, piece)
            else:
                yield from _cut(table, piece, bytes_max)

    def melt(self, rows_max: int) -> bool:
        """Moves up to rows_max frozen rows into the active layer, as far as that has no later ones; False when nothing
        is left. Reads give the same before, between and afterwards."""
        inserted, changed = self._frozen.inserted, self._frozen.changed
        for _ in range(rows_max):
            if inserted:
                self._melt_inserted(*inserted.popitem())
            elif changed:
                self._melt_changed(*changed.popitem())
            else:
                return False
        return True

    def _melt_inserted(self, key: bytes, value: bytes) -> None:
        later = self._changed.pop(key, None)
        self._inserted[key] = value if later is None else later
        if later is None:
            self._note(key, len(value))
        elif not later:
            self.delete(key)  # It came and went since the checkpoint.

    def _melt_changed(self, key: bytes, value: bytes) -> None:
        if key in self._changed:
            return
        later = self._inserted.pop(key, None)
        self._changed[key] = value if later is None else later
        if later is None:
            self._note(key, len(value))

    def drop_frozen(self) -> None:
        """Drops the frozen layer, which the base now has. Call together with the base's renewal, then `free` until it
        returns False."""
        self._garbage, self._frozen, self._gone = self._frozen, _Layer(), Gone()  # The base may have new rows now.
        self._bind()

    def free(self, rows_max: int, bytes_max: int = PIECE_BYTES_MAX) -> bool:
        """Frees up to rows_max rows, or about bytes_max bytes, of what was dropped; False when nothing is left."""
        garbage = self._garbage
        if garbage.index:
            for _ in range(min(rows_max, len(garbage.index))):
                garbage.index.popitem()
            return True
        for values in (garbage.inserted, garbage.changed):
            if values:
                left = bytes_max
                for _ in range(min(rows_max, len(values))):
                    left -= len(values.popitem()[1])
                    if left <= 0:
                        break
                return True
        garbage.order = None
        return False


def _cut(table: str, flat: list[bytes], bytes_max: int) -> Iterator[Piece]:
    """Yields a piece with large rows in several, each of about bytes_max bytes or of one row."""
    begin = size = 0
    for end in range(2, len(flat) + 1, 2):
        size += len(flat[end - 2]) + len(flat[end - 1])
        if size >= bytes_max or end == len(flat):
            yield rows_piece(table, flat[begin:end])
            begin, size = end, 0


def _both(layer: _Layer) -> Iterator[bytes]:
    return chain(layer.inserted, layer.changed)


def _came(layer: _Layer) -> int:
    """Returns the number of rows that came, less the number that went."""
    return len(layer.inserted) - list(layer.changed.values()).count(b"")


def _overlay(
    layer: _Layer, below: Iterator[tuple[bytes, bytes | None]], keys: Iterator[bytes]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yields `below` with the layer's rows on top; tombstones come as b""."""
    mine = next(keys, None)
    for key, value in below:
        while mine is not None and mine < key:
            yield mine, layer.get(mine) or b""
            mine = next(keys, None)
        if mine == key:
            yield key, layer.get(key) or b""
            mine = next(keys, None)
        else:
            yield key, value
    while mine is not None:
        yield mine, layer.get(mine) or b""
        mine = next(keys, None)
