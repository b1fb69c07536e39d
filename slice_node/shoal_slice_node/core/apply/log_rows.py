"""Finds a key's log rows by offset, for one step of work: neighbouring offsets share the rows that were read.

Belongs here: which rows are read, skipped or decoded, and what that costs. Not here: which of their messages are done
(undone), how large they are (backlog).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from shoal_contract.chunk import cut_chunk, read_stored_chunk
from shoal_contract.wire.common_pb2 import Chunk
from shoal_slice_node.core.limits import (
    CUT_CHUNK_BYTES_MIN,
    CUT_MESSAGES_PER_COST,
    CUT_SHARE,
    LOG_BYTES_PASSED_MAX,
    LOG_BYTES_PER_COST,
    LOG_ROWS_PASSED_MAX,
    OPENED_CHUNK_BYTES,
    OPENED_MESSAGE_BYTES,
    OPENED_ROW_TIMES,
)
from shoal_slice_node.core.rows.key_row import KeyRow
from shoal_slice_node.core.rows.log_row import LogRow, chunk_of, decode_log
from shoal_slice_node.core.tables.tables import Logs, Tables


def first_row(tables: Tables, key: KeyRow, fits: Callable[[int, LogRow], bool]) -> int:
    """Returns the first offset of the first log row for which `fits(first offset, header)` is true; the head if there
    is none. Must be true of all rows behind one of which it is. Looks at the headers of a few rows from the low on,
    then of about as many as the number of messages has binary digits."""
    for first, row in islice(tables.log.heads(key.id, key.low, key.low), LOG_ROWS_PASSED_MAX):
        if fits(first, decode_log(row)):
            return first
    low, high = key.low, key.head
    while low < high:
        first, row = next(tables.log.heads(key.id, key.low, (low + high) // 2))
        header = decode_log(row)
        if fits(first, header):
            high = first
        else:
            low = first + header.messages
    return high


class StoredChunk:
    """Holds one log row: the chunk with the messages first <= o < end. Rows never change, so it may be kept."""

    __slots__ = ("_chunk", "_cut", "_opened", "_row", "end", "first", "header")

    def __init__(self, first: int, row: bytes) -> None:
        self._row = row
        self._chunk: bytes | None = None
        self._opened: Chunk | None = None
        self._cut = (0, 0, b"")
        """The part that was cut last, and its offsets: queues in step ask for the same."""
        self.first = first
        self.header = decode_log(row)
        self.end = first + self.header.messages

    @property
    def chunk(self) -> bytes:
        """Returns the chunk as it was published."""
        if self._chunk is None:
            self._chunk = chunk_of(self._row)
        return self._chunk

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def opened(self) -> Chunk:
        """Returns the chunk decoded; it is decoded only once."""
        if self._opened is None:
            self._opened = read_stored_chunk(self.chunk)
        return self._opened

    def cut(self, low: int, to: int) -> bytes:
        """Returns a chunk of the messages low <= o < to alone."""
        if self._cut[:2] != (low, to):
            self._cut = low, to, cut_chunk(self.opened(), low - self.first, to - self.first)
        return self._cut[2]

    @property
    def opened_bytes(self) -> int:
        """Returns the memory that it takes, about, once it is decoded and a part of it was cut."""
        return OPENED_ROW_TIMES * len(self._row) + OPENED_MESSAGE_BYTES * self.header.messages + OPENED_CHUNK_BYTES


class CutChunk(NamedTuple):
    """Holds a chunk in which some messages are sent, perhaps cut to these, and the offset of its first message."""

    first: int
    chunk: bytes


class LogRows:
    """Finds the log rows of one key. Ascending offsets read each row once. On the way to a later row, the rows between
    are read and skipped if they are few; otherwise the later row is sought.

    `cost` grows with rows that were skipped, were large or were decoded; its unit is a small row. Call `pause` before
    others may change the log.
    """

    __slots__ = ("_found", "_from", "_key", "_logs", "_rows", "cost")

    def __init__(self, logs: Logs, key: KeyRow) -> None:
        self._logs = logs
        self._key = key
        self._rows: Iterator[tuple[int, bytes]] = iter(())
        """The rows after the one found last."""
        self._found: StoredChunk | None = None
        self._from = 0
        """`_found` answers for the offsets from here to its end."""
        self.cost = 0

    @property
    def low(self) -> int:
        """Returns the lowest offset that the key keeps."""
        return self._key.low

    @property
    def is_new(self) -> bool:
        """Returns whether no row was read yet."""
        return self._found is None

    def pause(self) -> None:
        """Prepares for a change of the log before the next question: rows are then sought anew."""
        self._rows = iter(())

    def at(self, offset: int) -> StoredChunk | None:
        """Returns the row that holds `offset`, else the next row; None at the head."""
        found = self._found
        if offset >= self._key.head:
            return None
        if found is not None and self._from <= offset < found.end:
            return found
        found = self._next(offset, LOG_ROWS_PASSED_MAX) if found is not None and offset >= found.end else None
        if found is None:
            self._rows = self._logs.read(self._key.id, self._key.low, offset)
            found = self._next(offset, 2)
        if found is None or found.first >= self._key.head:  # Trimmed since the key was read, and more published.
            return None
        self._found, self._from = found, min(offset, found.first)
        return found

    def chunk_for(self, stored: StoredChunk, low: int, to: int) -> CutChunk:
        """Returns the chunk to send for the messages low <= o < to: the whole chunk, or one cut to these messages if
        the rest is much larger."""
        chunk = stored.chunk
        if (to - low) * CUT_SHARE >= stored.header.messages or len(chunk) < CUT_CHUNK_BYTES_MIN:
            return CutChunk(stored.first, chunk)
        if not stored.is_open:
            self.cost += len(chunk) // LOG_BYTES_PER_COST + stored.header.messages // CUT_MESSAGES_PER_COST
        return CutChunk(low, stored.cut(low, to))

    def _next(self, offset: int, rows_max: int) -> StoredChunk | None:
        for first, row in islice(self._rows, rows_max):
            self.cost += len(row) // LOG_BYTES_PER_COST
            found = StoredChunk(first, row)
            if found.end > offset:
                return found
            self.cost += 1
            if len(row) > LOG_BYTES_PASSED_MAX:
                return None  # The next ones may be as large.
        return None
