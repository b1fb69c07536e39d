"""Sums up what the slice's logs keep: plain additions with each publish and each trim, saved with each checkpoint.

No record changes the row, which stands in a table of the node's own: it depends on when checkpoints were made. A store
without it is counted once, when it is opened.
"""

from __future__ import annotations

from shoal_slice_node.core.rows.key_row import KeyRow, decode_key, is_kept
from shoal_slice_node.core.rows.log_row import decode_log
from shoal_slice_node.core.rows.small_rows import KEPT, decode_kept, encode_kept
from shoal_slice_node.core.tables.tables import Tables


class Kept:
    """Keeps the totals. Invariant: over all keys, `messages` is the sum of head - low, and `body_bytes` is that of the
    bodies in between."""

    __slots__ = ("_tables", "body_bytes", "messages")

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.messages = 0
        self.body_bytes = 0
        row = tables.local_totals.get(KEPT)
        if row is not None:
            self.messages, self.body_bytes = decode_kept(row)
        else:
            self._count()

    def _count(self) -> None:
        for _, row in self._tables.key.scan():
            if is_kept(row):
                key = decode_key(row)
                self.messages += key.head - key.low
                self.body_bytes += key.body_bytes - _bytes_before(self._tables, key, key.low)

    def save(self) -> None:
        """Writes the row, if it changed. Must be called before each freeze of the tables."""
        row = encode_kept(self.messages, self.body_bytes)
        if self._tables.local_totals.get(KEPT) != row:
            self._tables.local_totals.put(KEPT, row)


def trimmed(tables: Tables, key: KeyRow, new_low: int) -> tuple[int, int]:
    """Returns what a trim removes: messages, and bytes of bodies. `key`: its row before the trim; its log still holds
    the trimmed rows. `new_low`: the first offset of a log row, or the head."""
    return new_low - key.low, _bytes_before(tables, key, new_low) - _bytes_before(tables, key, key.low)


def _bytes_before(tables: Tables, key: KeyRow, offset: int) -> int:
    if offset >= key.head:
        return key.body_bytes
    found = next(tables.log.heads(key.id, key.low, offset), None)
    if found is None:  # A damaged log: the check reports it, not this sum.
        return key.body_bytes
    return decode_log(found[1]).body_bytes_before
