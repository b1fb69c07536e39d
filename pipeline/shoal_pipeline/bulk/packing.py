"""Packs sorted memberships into chunks of an import. Pure: rows in, chunks out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from zlib import crc32

from shoal_contract.limits import IMPORT_OPERATIONS_MAX
from shoal_contract.wire.slice_pb2 import Change, Imports, Step

Membership = tuple[int, bytes, bytes | None, int | None]
"""One row: slice, queue, key, start. Key None: the queue is only declared (its home). Start None: now."""


class Chunk(NamedTuple):
    """Holds one chunk. `expected`: how many items a verification must find: memberships, and queues without any in this
    chunk."""

    slice: int
    queues: int
    memberships: int
    expected: int
    checksum: int
    change: bytes


class _Open:
    """Fills a chunk."""

    def __init__(self, slice_index: int) -> None:
        self.slice = slice_index
        self.queue = b""
        """The last queue in the chunk."""
        self.room = IMPORT_OPERATIONS_MAX
        self._queues: list[bytes] = []
        self._key_counts: list[int] = []
        self._keys: list[bytes] = []
        self._starts: list[int] = []

    def add_queue(self, queue: bytes) -> None:
        self.queue = queue
        self._queues.append(queue)
        self._key_counts.append(0)
        self.room -= 1

    def add_key(self, key: bytes, start: int | None) -> None:
        """Adds a key to the last queue."""
        self._keys.append(key)
        self._starts.append(start or 0)
        self._key_counts[-1] += 1
        self.room -= 1

    def closed(self) -> Chunk:
        starts = self._starts if any(self._starts) else ()
        step = Imports(queues=self._queues, key_counts=self._key_counts, keys=self._keys, starts=starts)
        change = Change(steps=[Step(imports=step)]).SerializeToString()
        expected = sum(max(1, count) for count in self._key_counts)
        return Chunk(self.slice, len(self._queues), len(self._keys), expected, crc32(change), change)


def pack(rows: Iterable[Membership]) -> Iterator[Chunk]:
    """Yields the chunks of `rows`, which are sorted by slice, queue, key (None first), start (None last). Of repeated
    memberships the first counts. A chunk is for one slice; a queue with very many keys goes on in the next chunk."""
    chunk: _Open | None = None
    last_key: bytes | None = None
    for slice_index, queue, key, start in rows:
        same = chunk is not None and chunk.queue == queue and chunk.slice == slice_index
        if same and (key is None or key == last_key):
            continue
        if chunk is None or chunk.slice != slice_index or chunk.room < 2:
            if chunk is not None:
                yield chunk.closed()
            chunk, same = _Open(slice_index), False
        if not same:
            chunk.add_queue(queue)
        if key is not None:
            chunk.add_key(key, start)
        last_key = key
    if chunk is not None:
        yield chunk.closed()
