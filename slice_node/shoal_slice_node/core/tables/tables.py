"""The tables that the core reads and changes: three small shapes, each an interface with several implementations.

Belongs here: the interfaces. Not here: what a row means (core/rows), how rows are kept (memory_tables, delta; adapters
for LMDB). All ids are 8 bytes, big-endian, so that they sort; they stay `bytes` everywhere, never `int`.
A scan may not be advanced after the table changed: take a bounded slice, then scan again from its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Rows(Protocol):
    """bytes -> bytes, ordered by key, 1 to ROW_KEY_BYTES_MAX bytes. A value is never empty."""

    def get(self, key: bytes) -> bytes | None:
        """None where there is no such row, also for a key that none can have."""

    def put(self, key: bytes, value: bytes) -> None:
        """AssertionError for a key that no row can have: the core checks names before."""

    def insert(self, key: bytes, value: bytes) -> None:
        """As `put`; the caller knows that the key is absent, so a delete before the next checkpoint leaves no trace."""

    def delete(self, key: bytes) -> None:
        """A key that is absent is left so."""

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Rows with key >= start whose key begins with prefix, ascending."""

    def entries(self) -> int:
        """How many rows: exact where rows are inserted only when absent and deleted only when present. Looks through
        the delta, about 2 ms for 100,000 rows, not through what lies below."""

    def changed(self) -> list[bytes]:
        """Keys of all rows that are not as `scan_below` shows them, and perhaps more, in no order; about 1 ms for
        100,000."""

    def scan_below(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """As `scan`, of the checkpoint alone: a short look costs the same whatever has changed since."""


class Groups(Protocol):
    """Group id -> set of member ids (8 bytes each)."""

    def add(self, group: bytes, member: bytes) -> None:
        """The caller knows that it is absent."""

    def remove(self, group: bytes, member: bytes) -> bool:
        """The caller knows that it is present. True: this undid an add that no checkpoint has seen, and the group may
        now be empty without a checkpoint ever noticing."""

    def count(self, group: bytes) -> int:
        """Members of the group: exact, O(1)."""

    def entries(self) -> int:
        """Members of all groups: exact, O(1)."""

    def members(self, group: bytes, after: bytes = b"", limit: int = 1000) -> list[bytes]:
        """Up to `limit` members above `after`, ascending."""

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Every (group, member), ascending."""


class Logs(Protocol):
    """(key id, first offset) -> row. Grows at the head, is trimmed at the low end; rows are never changed."""

    def append(self, key_id: bytes, first: int, row: bytes) -> None:
        """`first` is above every row of this key."""

    def read(self, key_id: bytes, low: int, offset: int) -> Iterator[tuple[int, bytes]]:
        """Rows with first >= low, ascending, from the last with first <= offset (else from the first)."""

    def trim(self, key_id: bytes, low: int, new_low: int) -> None:
        """Rows with low <= first < new_low are gone. `new_low` is the first of a row, or the head."""

    def scan(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Every (key id, first, row), ascending."""


class Tables(Protocol):
    """One slice's state. Layouts stand on top of each module in core/rows."""

    key: Rows
    key_name: Rows
    queue_by_name: Rows
    queue: Rows
    membership: Rows
    detail: Rows
    producer: Rows
    reclaim: Rows
    partition: Rows
    meta: Rows
    binding: Groups
    ended: Groups
    log: Logs


ROW_TABLES = (
    "key",
    "key_name",
    "queue_by_name",
    "queue",
    "membership",
    "detail",
    "producer",
    "reclaim",
    "partition",
    "meta",
)
GROUP_TABLES = ("binding", "ended")
LOG_TABLE = "log"
