"""Finds the partition that a key belongs to: CRC-32 (ISO-HDLC, as in zlib and PNG) of the key's bytes, mod P.

`partition_vectors.json` beside this file holds published vectors, so that other languages can agree.
"""

from zlib import crc32


def partition_of(key: bytes, partitions: int) -> int:
    """Returns the partition of `key`, 0 <= p < partitions. P is fixed when a cluster is created."""
    return crc32(key) % partitions
