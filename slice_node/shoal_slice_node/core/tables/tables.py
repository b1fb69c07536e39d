"""Defines the tables that the core reads and changes: three small shapes, each an interface with a few implementations.

Belongs here: the interfaces. Not here: what a row means (core/rows), how rows are kept (memory_tables, delta; storage
for LMDB). All ids are 8 bytes, big-endian, so that they sort; they stay `bytes` everywhere, never `int`.
A scan must not be advanced after the table changed: take a bounded slice, then scan again from its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Rows(Protocol):
    """Maps bytes to bytes, ordered by key. A key has 1 to ROW_KEY_BYTES_MAX bytes. A value is never empty."""

    def get(self, key: bytes) -> bytes | None:
        """Returns the value; None if there is no such row, also for a key that no row can have."""

    def put(self, key: bytes, value: bytes) -> None:
        """Writes a row. AssertionError for a key that no row can have: the core checks names before."""

    def insert(self, key: bytes, value: bytes) -> None:
        """Writes a row as `put` does. The caller knows that the key is absent, so a delete before the next checkpoint
        leaves no trace."""

    def delete(self, key: bytes) -> None:
        """Deletes a row. If the key is absent, nothing changes."""

    def scan(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Yields the rows with a key that is >= start and begins with prefix, ascending."""

    def entries(self) -> int:
        """Returns the number of rows: exact if rows are inserted only when absent and deleted only when present. Looks
        through the delta, about 2 ms for 100,000 rows, not through the layers below."""

    def changed(self) -> list[bytes]:
        """Returns the keys of all rows that are not as `scan_below` shows them, and perhaps more keys, in no order;
        about 1 ms for 100,000."""

    def scan_below(self, prefix: bytes = b"", start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """Scans as `scan` does, but only the checkpoint: a short scan costs the same whatever has changed since."""

    def keys_below(self, prefix: bytes, start: bytes, count: int) -> list[bytes]:
        """Returns the first `count` keys that `scan_below` would yield, for a third of what a scan of a few rows
        costs."""
        ...


class Groups(Protocol):
    """Maps a group id to a set of member ids (8 bytes each)."""

    def add(self, group: bytes, member: bytes) -> None:
        """Adds a member. The caller knows that it is absent."""

    def remove(self, group: bytes, member: bytes) -> bool:
        """Removes a member. The caller knows that it is present. Returns True if this undid an add that no checkpoint
        has seen: the group may now be empty without a checkpoint ever noticing."""

    def count(self, group: bytes) -> int:
        """Returns the number of members of the group: exact, O(1)."""

    def entries(self) -> int:
        """Returns the number of members of all groups: exact, O(1)."""

    def has(self, group: bytes, member: bytes) -> bool:
        """Returns whether the group has the member."""

    def members(self, group: bytes, after: bytes = b"", limit: int = 1000) -> tuple[list[bytes], bytes]:
        """Returns up to `limit` members above `after`, ascending, and up to where it looked: b"" to the end, else the
        next page begins after it. It looks at PAGE_MEMBERS_MIN or `limit` members of a checkpoint at most: where
        many were removed since, a page that is not the last may have few members, or none."""

    def scan(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields every (group, member), ascending."""


class Logs(Protocol):
    """Maps (key id, first offset) to a row. A log grows at its head and is trimmed at its low; rows never change."""

    def append(self, key_id: bytes, first: int, row: bytes) -> None:
        """Appends a row. `first` is above every row of this key."""

    def read(self, key_id: bytes, low: int, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yields rows with first >= low, ascending, from the last with first <= offset (else from the first)."""

    def heads(self, key_id: bytes, low: int, offset: int) -> Iterator[tuple[int, bytes]]:
        """Yields the same rows as `read`, each perhaps cut to its first LOG_HEAD_BYTES_MIN bytes or more, which have
        its header: a row of any size costs as much as a small one."""

    def trim(self, key_id: bytes, low: int, new_low: int) -> None:
        """Deletes rows with low <= first < new_low. `new_low` is the first offset of a row, or the head."""

    def scan(self) -> Iterator[tuple[bytes, int, bytes]]:
        """Yields every (key id, first, row), ascending."""


class Tables(Protocol):
    """Holds one slice's state. Layouts are drawn on top of each module in core/rows.

    Invariant: every node that applied the same records has the same rows, in every table but those of LOCAL_TABLES.
    Nothing that a record does to the other tables depends on a row of theirs.
    """

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
    transient: Rows
    due: Rows
    history: Rows
    farewell: Rows
    local_totals: Rows
    local_hints: Rows
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
    "transient",
    "due",
    "history",
    "farewell",
)
"""The tables of rows that are equal on every node that applied the same records."""

LOCAL_TABLES = ("local_totals", "local_hints")
"""The tables of rows of a node's own: they depend on when it made its checkpoints."""

GROUP_TABLES = ("binding", "ended")
LOG_TABLE = "log"
