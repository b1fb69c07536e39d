"""Finds the partition that a key belongs to: CRC-32 (ISO-HDLC, as in zlib and PNG) of the key's bytes, mod P.

A key that begins with a tag in braces, `{room-7}/votes`, is placed by the tag alone. So is the direct key of a queue
whose name begins with one, `@{room-7}anna`. Keys and queues with one tag thus lie on one slice. The rule is that of
Redis Cluster's hash tags, but here the tag must come first.

`partition_vectors.json` beside this file holds published vectors, so that other languages can agree.
"""

from typing import Final
from zlib import crc32

MAY_HAVE_TAG: Final = b"@{"
"""The first bytes of keys that may have a tag. All other keys are hashed whole, which hot paths need not ask for."""

_OPEN: Final = (b"{", b"@{")
_CLOSE: Final = b"}"


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of `key`, 0 <= p < partitions. P is fixed when a cluster is created."""
    return crc32(hashed_part(key)) % partitions


def hashed_part(key: bytes) -> bytes:
    """Returns the bytes of the key that are hashed: those between `{` and the first `}` after it, if the key, or the
    name after a direct key's `@`, begins with `{` and there is at least one byte between; else the whole key."""
    if key.startswith(_OPEN):
        begin = key.index(b"{") + 1
        end = key.find(_CLOSE, begin)
        if end > begin:
            return key[begin:end]
    return key
