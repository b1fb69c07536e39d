"""Measures how much a stretch of a key's log holds: body bytes by subtraction, exact at every offset."""

from __future__ import annotations

from itertools import accumulate

from shoal_slice_node.core.apply.log_rows import LogRows, StoredChunk
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import SIZED_PER_COST
from shoal_slice_node.core.rows.key_row import KeyRow


class LogMeasure:
    """Measures one key's log. Ascending offsets read and decode each log row once between two pauses. Call `pause`
    before others may change the log."""

    def __init__(self, state: State, key: KeyRow) -> None:
        self._cost = 0
        self._key = key
        self._log = state.tables.log
        self._rows = LogRows(self._log, key)
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
        """Returns when the message was published; 0 at the head."""
        found = self._rows.at(offset)
        return 0 if found is None else found.header.time_ms

    def bytes_below(self, offset: int) -> int:
        """Returns the body bytes of the messages o < offset, with those trimmed since the log was last empty."""
        found = self._rows.at(offset)
        if found is None:
            return self._key.body_bytes
        if offset <= found.first:
            return found.header.body_bytes_before
        if self._sized is not found:
            self._sizes = [0, *accumulate(map(len, found.opened().bodies))]
            self._sized = found
            self._cost += found.header.messages // SIZED_PER_COST
        return found.header.body_bytes_before + self._sizes[offset - found.first]

    def pause(self) -> None:
        """Forgets what was read, before others may change the log: a chunk may have megabytes."""
        self._sized, self._sizes = None, []
        self._cost += self._rows.cost
        self._rows = LogRows(self._log, self._key)
