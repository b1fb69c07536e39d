"""Computes a checksum over all rows of a slice's tables. Equal contents give equal checksums, whatever files hold them.

It leaves out rows that depend on a node's checkpoints: hints for background work, and totals saved with each
checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

from shoal_slice_node.core.rows.small_rows import KEPT, RECLAIM_KEY
from shoal_slice_node.core.tables.tables import GROUP_TABLES, LOG_TABLE, ROW_TABLES, Tables

_DIGEST_BYTES = 16


def checksum_of(tables: Tables, count: Callable[[Iterable[bytes]], Iterator[bytes]] = iter) -> str:
    """Returns the checksum as 32 hex digits. All parts that are summed pass through `count`, which may count them."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in count(_parts(tables)):
        digest.update(len(part).to_bytes(4, "big"))
        digest.update(part)
    return digest.hexdigest()


def _parts(tables: Tables) -> Iterator[bytes]:
    for name in ROW_TABLES:
        yield name.encode()
        for key, value in getattr(tables, name).scan():
            if not _is_of_the_node(name, key):
                yield key
                yield value
    for name in GROUP_TABLES:
        yield name.encode()
        for group, member in getattr(tables, name).scan():
            yield group + member
    yield LOG_TABLE.encode()
    for key_id, first, row in tables.log.scan():
        yield key_id + first.to_bytes(8, "big")
        yield row


def _is_of_the_node(table: str, key: bytes) -> bool:
    return (table == "reclaim" and key[:1] == RECLAIM_KEY) or (table == "meta" and key == KEPT)
