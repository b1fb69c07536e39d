"""How much a stretch of a key's log holds: body bytes by subtraction, exact at every offset."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, islice

from shoal_contract.chunk import parse_chunk
from shoal_slice_node.core.limits import LOG_ROWS_PASSED_MAX, SIZED_PER_COST
from shoal_slice_node.core.rows.key_row import KeyRow
from shoal_slice_node.core.rows.log_row import LogRow, chunk_of, decode_log
from shoal_slice_node.core.state import State

_Found = tuple[int, LogRow, bytes]
"""First offset, header, row."""


class LogMeasure:
    """Of one key. Offsets that ascend read each log row once, and decode it once: neighbours share what was read.

    `cost`: counts up by what was decoded, in the units of READ_ROWS_PER_STEP. `pause` before others may change the log.
    """

    def __init__(self, state: State, key: KeyRow) -> None:
        self.cost = 0
        self._logs = state.tables.log
        self._key = key
        self._rows: Iterator[tuple[int, bytes]] = iter(())
        """Rows behind the one that was found last."""
        self._found: _Found | None = None
        self._from = self._to = 0
        """Offsets from <= o < to are answered by `_found`."""
        self._sizes: list[int] | None = None
        """Of `_found`: body bytes before each of its messages."""

    def bytes_between(self, low: int, high: int) -> int:
        """Body bytes of the messages low <= o < high."""
        low_bytes = self.bytes_below(low)
        return self.bytes_below(high) - low_bytes

    def time_of(self, offset: int) -> int:
        """When the message was published; 0 at the head."""
        found = self._row_at(offset)
        return 0 if found is None else found[1].time_ms

    def bytes_below(self, offset: int) -> int:
        """Body bytes of the messages o < offset, those included that are gone since the log was last empty."""
        found = self._row_at(offset)
        if found is None:
            return self._key.body_bytes
        first, header, row = found
        if offset <= first:
            return header.body_bytes_before
        if self._sizes is None:
            self._sizes = [0, *accumulate(map(len, parse_chunk(chunk_of(row)).bodies))]
            self.cost += header.messages // SIZED_PER_COST
        return header.body_bytes_before + self._sizes[offset - first]

    def pause(self) -> None:
        """The log may change before the next question: rows are looked for anew."""
        self._rows = iter(())

    def _row_at(self, offset: int) -> _Found | None:
        """The row that holds `offset`, else the next there is; None at the head."""
        if offset >= self._key.head:
            return None
        if self._from <= offset < self._to:
            return self._found
        found = self._next(offset, LOG_ROWS_PASSED_MAX) if offset >= self._to else None
        if found is None:
            self._rows = self._logs.read(self._key.id, self._key.low, offset)
            found = self._next(offset, 2)
        if found is None or found[0] >= self._key.head:  # Trimmed since the key was read, and others published.
            return None
        self._found, self._sizes = found, None
        self._from, self._to = offset, found[0] + found[1].messages
        return found

    def _next(self, offset: int, rows_max: int) -> _Found | None:
        for first, row in islice(self._rows, rows_max):
            header = decode_log(row)
            if first + header.messages > offset:
                return first, header, row
        return None
