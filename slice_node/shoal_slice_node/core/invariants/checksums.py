"""Computes a checksum of each table and partition. Equal rows give equal checksums, whatever files hold them.

A node's own tables have none: what they hold depends on the node's checkpoints. A row belongs to a partition where its
key says so: the rows of keys, of their logs and members, and a binding's details. The rows of queues, producers,
`reclaim` and `meta` belong to none: a queue's row has bindings to keys of many partitions, and may be on a slice that
is not its home.

    checksum of a table and partition   BLAKE2b (RFC 7693), 16 bytes, of its rows in the order of their keys, each as
                                        length of key u32 | length of value u32 | key | value
        of `binding`, `ended`           key: the group (key id), value: the member (queue id)
        of `log`                        key: key id | first offset u64
    checksum of all                     the same function of: "table partition rows checksum\\n" of each, in their order
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from shoal_slice_node.core.limits import CHECKSUM_STEP_BYTES, CHECKSUM_STEP_ROWS
from shoal_slice_node.core.rows.detail_row import KEY_ID
from shoal_slice_node.core.tables.tables import GROUP_TABLES, LOG_TABLE, ROW_TABLES, Tables
from shoal_slice_node.core.turns import Work

_DIGEST_BYTES: Final = 16
_LENGTHS: Final = Struct(">II")
_PARTITION: Final = slice(0, 2)
"""The place of the partition in the key of a row, or in a key id."""

_PARTITIONED: Final = ("key", "key_name", "partition", *GROUP_TABLES, LOG_TABLE)
"""The tables whose rows begin with their partition."""

_NONE: Final = b""


class TableChecksum(NamedTuple):
    """Holds the checksum of the rows that one table has of one partition. `partition` None: of no partition.
    `checksum`: 32 hex digits."""

    table: str
    partition: int | None
    rows: int
    checksum: str

    def __str__(self) -> str:
        partition = "-" if self.partition is None else self.partition
        return f"{self.table} {partition} {self.rows} {self.checksum}"


def checksums(tables: Tables) -> Work[tuple[TableChecksum, ...]]:
    """Computes the checksums, by table and then by partition, where there are rows. The tables must not change
    meanwhile."""
    found: list[TableChecksum] = []
    for table in (*ROW_TABLES, *GROUP_TABLES, LOG_TABLE):
        found += yield from _of_table(table, _pairs(tables, table))
    return tuple(found)


def checksum_of_all(parts: Iterable[TableChecksum]) -> str:
    """Returns one checksum for all: 32 hex digits."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(f"{part}\n".encode())
    return digest.hexdigest()


def _of_table(table: str, pairs: Iterator[tuple[bytes, bytes]]) -> Work[list[TableChecksum]]:
    digests: dict[bytes, blake2b] = {}
    rows: dict[bytes, int] = {}
    place = _place(table)
    step_rows = step_bytes = 0
    for key, value in pairs:
        partition = _NONE if place is None else key[place]
        digest = digests.get(partition)
        if digest is None:
            digest = digests[partition] = blake2b(digest_size=_DIGEST_BYTES)
            rows[partition] = 0
        digest.update(_LENGTHS.pack(len(key), len(value)) + key + value)
        rows[partition] += 1
        step_rows += 1
        step_bytes += len(value)
        if step_rows >= CHECKSUM_STEP_ROWS or step_bytes >= CHECKSUM_STEP_BYTES:
            yield
            step_rows = step_bytes = 0
    return [
        TableChecksum(
            table,
            None if partition == _NONE else int.from_bytes(partition, "big"),
            rows[partition],
            digests[partition].hexdigest(),
        )
        for partition in sorted(digests)
    ]


def _place(table: str) -> slice | None:
    """Returns where a row's key has its partition; None: the table's rows belong to none."""
    if table == "detail":
        return slice(KEY_ID.start, KEY_ID.start + 2)
    return _PARTITION if table in _PARTITIONED else None


def _pairs(tables: Tables, table: str) -> Iterator[tuple[bytes, bytes]]:
    if table != LOG_TABLE:
        yield from getattr(tables, table).scan()
        return
    for key_id, first, row in tables.log.scan():
        yield key_id + first.to_bytes(8, "big"), row
