"""Measures how much a stretch of a key's log holds: body bytes by subtraction, exact at every offset."""

from __future__ import annotations

from itertools import accumulate, islice

from shoal_slice_node.core.apply.log_rows import LogRows, StoredChunk
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import SIZED_BYTES_PER_COST, SIZED_PER_COST
from shoal_slice_node.core.rows.key_row import KeyRow
from shoal_slice_node.core.rows.log_row import LogRow, decode_log


class LogMeasure:
    """Measures one key's log. Ascending offsets read and decode each log row once between two pauses; of the first one
    only the head is read where that is enough. Call `pause` before others may change the log."""

    def __init__(self, state: State, key: KeyRow) -> None:
        self._cost = 0
        self._head: tuple[int, int, LogRow] | None = None
        """The offset that was asked for first, the first offset of the row that holds it, or of the next one, and what
        the row's head says."""
        self._key = key
        self._log = state.tables.log
        self._rows = LogRows(self._log, key)
        self._read: StoredChunk | None = None
        """The row that was read last."""
        self._sized: StoredChunk | None = None
        self._sizes: list[int] = []
        """The body bytes before each message of `_sized`."""

    @property
    def cost(self) -> int:
        """Returns what it has cost so far, in the units of READ_ROWS_PER_STEP."""
        return self._cost + self._rows.cost

    def bytes_between(self, low: int, high: int) -> int:
        """Returns the body bytes of the messages low <= o < high."""
        low_bytes = self.bytes_below(low)
        return self.bytes_below(high) - low_bytes

    def time_of(self, offset: int) -> int:
        """Returns when the message was published; 0 at the head. It costs nothing: only the row's head is read."""
        head = self._head_at(offset)
        return 0 if head is None else head[2].time_ms

    def bytes_below(self, offset: int) -> int:
        """Returns the body bytes of the messages o < offset, with those trimmed since the log was last empty."""
        if self._rows.is_new:
            head = self._head_at(offset)
            if head is None:
                return self._key.body_bytes
            if offset <= head[1]:
                return head[2].body_bytes_before
        found = self._rows.at(offset)
        if found is None:
            return self._key.body_bytes
        if self._read is not found:
            self._read = found
            self._cost += 1
        if offset <= found.first:
            return found.header.body_bytes_before
        if self._sized is not found:
            self._sizes = [0, *accumulate(map(len, found.opened().bodies))]
            self._sized = found
            self._cost += found.header.messages // SIZED_PER_COST + len(found.chunk) // SIZED_BYTES_PER_COST
        return found.header.body_bytes_before + self._sizes[offset - found.first]

    def _head_at(self, offset: int) -> tuple[int, int, LogRow] | None:
        """Returns `_head` for this offset; None at the key's head."""
        key = self._key
        if self._head is None or self._head[0] != offset:
            self._head = None
            for first, row in islice(self._log.heads(key.id, key.low, offset), 2) if offset < key.head else ():
                header = decode_log(row)
                if first >= key.head:
                    break
                if first + header.messages > offset:
                    self._head = offset, first, header
                    break
        return self._head

    def pause(self) -> None:
        """Forgets what was read, before others may change the log: a chunk may have megabytes."""
        self._head = None
        self._read, self._sized, self._sizes = None, None, []
        self._cost += self._rows.cost
        self._rows = LogRows(self._log, self._key)
