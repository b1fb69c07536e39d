"""Makes ids: 8 bytes, dense, never used again.

    key id     0  partition u16    2  number in its partition u48
    queue id   0  number u64

A key id starts with its partition, so that a partition's rows lie together.
"""

from typing import Final

ID_BYTES: Final = 8


def key_id(partition: int, number: int) -> bytes:
    return ((partition << 48) | number).to_bytes(ID_BYTES, "big")


def partition_of_id(key: bytes) -> int:
    return int.from_bytes(key[:2], "big")


def number_of_id(key: bytes) -> int:
    """Returns a key's number in its partition."""
    return int.from_bytes(key[2:], "big")


def queue_id(number: int) -> bytes:
    return number.to_bytes(ID_BYTES, "big")


def next_id(some_id: bytes) -> bytes:
    """Returns the id above, where a scan that ended with `some_id` goes on. The last id, all ones, gives itself."""
    return min(int.from_bytes(some_id, "big") + 1, (1 << 8 * ID_BYTES) - 1).to_bytes(ID_BYTES, "big")


def id_before(some_id: bytes) -> bytes:
    """Returns the id below: a page of members after the id below begins with `some_id`."""
    return (int.from_bytes(some_id, "big") - 1).to_bytes(ID_BYTES, "big")
