"""Keeps the chunks that were read from logs last.

Queues that lag behind the same key need the same chunks, one queue after the other: a client with 10,000 queues that
comes back, or one that reads more slowly than a busy group writes. Each chunk is then read and decoded once for all.
Rows of logs never change, and offsets never name other messages, so what is kept here is never wrong; it may be gone
from the log, which the caller must check.

Chunks that exceed windows are given in parts, as acks make room. Such a chunk stays decoded for the parts to come.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from shoal_slice_node.core.apply.log_rows import StoredChunk
from shoal_slice_node.core.limits import OPENED_CHUNKS_BYTES_MAX, RECENT_CHUNK_BYTES, RECENT_CHUNKS_BYTES_MAX


class ChunkPart(NamedTuple):
    """Holds the offsets low <= o < to of the chunk at `first`, for one attachment; `chunk` may have been cut to
    them. `gap`: they are a gap (gaps.py), for this reason; 0: they are messages."""

    key: bytes
    first: int
    low: int
    to: int
    body_bytes: int
    time_ms: int
    chunk: bytes
    times: int
    expires_ms: int = 0
    gap: int = 0


class RecentChunks:
    """Keeps whole chunks by their key and first offset, in at most RECENT_CHUNKS_BYTES_MAX of memory; the one that was
    kept first goes first."""

    def __init__(self) -> None:
        self._parts: OrderedDict[tuple[bytes, int], ChunkPart] = OrderedDict()
        self._bytes = 0

    def get(self, key_id: bytes, first: int) -> ChunkPart | None:
        """Returns the whole chunk that begins at `first`, as it is given for the first time; None: it is not kept."""
        return self._parts.get((key_id, first))

    def keep(self, key_id: bytes, part: ChunkPart) -> None:
        """Keeps a whole chunk. A chunk that would push out most others is not kept."""
        slot, cost_bytes = (key_id, part.first), _cost_bytes(part)
        if slot in self._parts or 4 * cost_bytes > RECENT_CHUNKS_BYTES_MAX:
            return
        self._parts[slot] = part
        self._bytes += cost_bytes
        while self._bytes > RECENT_CHUNKS_BYTES_MAX:
            _, gone = self._parts.popitem(last=False)
            self._bytes -= _cost_bytes(gone)


def _cost_bytes(part: ChunkPart) -> int:
    """Returns the memory that a kept chunk takes, about: of a small one most is not the chunk."""
    return RECENT_CHUNK_BYTES + len(part.chunk)


class OpenedChunks:
    """Keeps decoded chunks that parts were cut from, in at most OPENED_CHUNKS_BYTES_MAX of memory; the one that was
    used longest ago goes first."""

    def __init__(self) -> None:
        self._chunks: OrderedDict[tuple[bytes, int], StoredChunk] = OrderedDict()
        self._bytes = 0

    def same(self, key_id: bytes, stored: StoredChunk) -> StoredChunk:
        """Returns the same chunk decoded, if it is kept; else the one that was passed."""
        return self._chunks.get((key_id, stored.first), stored)

    def keep(self, key_id: bytes, stored: StoredChunk) -> None:
        """Keeps a decoded chunk."""
        slot = (key_id, stored.first)
        if slot in self._chunks:
            self._chunks.move_to_end(slot)
            return
        self._chunks[slot] = stored
        self._bytes += stored.opened_bytes
        while self._bytes > OPENED_CHUNKS_BYTES_MAX:
            _, gone = self._chunks.popitem(last=False)
            self._bytes -= gone.opened_bytes
