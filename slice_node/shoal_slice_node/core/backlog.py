"""How much a stretch of a key's log holds: body bytes by subtraction, exact at every offset."""

from __future__ import annotations

from itertools import accumulate, islice

from shoal_contract.chunk import parse_chunk
from shoal_slice_node.core.rows.key_row import KeyRow
from shoal_slice_node.core.rows.log_row import LogRow, chunk_of, decode_log
from shoal_slice_node.core.state import State


class LogMeasure:
    """Of one key. Keeps the sizes in the chunk it looked into last: neighbouring offsets ask for the same one."""

    def __init__(self, state: State, key: KeyRow) -> None:
        self._logs = state.tables.log
        self._key = key
        self._chunk_first = 0
        self._sizes: list[int] = []

    def bytes_between(self, low: int, high: int) -> int:
        """Body bytes of the messages low <= o < high."""
        return self._bytes_below(high) - self._bytes_below(low)

    def time_of(self, offset: int) -> int:
        """When the message was published; 0 at the head."""
        found = self._row_at(offset)
        return 0 if found is None else found[1].time_ms

    def _bytes_below(self, offset: int) -> int:
        found = self._row_at(offset)
        if found is None:
            return self._key.body_bytes
        first, header, row = found
        if offset <= first:
            return header.body_bytes_before
        if self._chunk_first != first:
            self._chunk_first = first
            self._sizes = [0, *accumulate(map(len, parse_chunk(chunk_of(row)).bodies))]
        return header.body_bytes_before + self._sizes[offset - first]

    def _row_at(self, offset: int) -> tuple[int, LogRow, bytes] | None:
        """(first, header, row) of the row that holds `offset`, else of the next there is; None at the head."""
        if offset >= self._key.head:
            return None
        for first, row in islice(self._logs.read(self._key.id, self._key.low, offset), 2):
            header = decode_log(row)
            if first + header.messages > offset:
                return first, header, row
        return None
