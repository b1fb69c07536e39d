"""How much a stretch of a key's log holds: body bytes by subtraction, exact at every offset."""

from __future__ import annotations

from itertools import accumulate

from shoal_slice_node.core.apply.log_rows import LogRows, StoredChunk
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import SIZED_PER_COST
from shoal_slice_node.core.rows.key_row import KeyRow


class LogMeasure:
    """Of one key. Offsets that ascend read each log row once, and decode it once: neighbours share what was read.

    `cost`: counts up by what was decoded, in the units of READ_ROWS_PER_STEP. `pause` before others may change the log.
    """

    def __init__(self, state: State, key: KeyRow) -> None:
        self.cost = 0
        self._key = key
        self._rows = LogRows(state.tables.log, key)
        self._sized: StoredChunk | None = None
        self._sizes: list[int] = []
        """Of `_sized`: body bytes before each of its messages."""

    def bytes_between(self, low: int, high: int) -> int:
        """Body bytes of the messages low <= o < high."""
        low_bytes = self.bytes_below(low)
        return self.bytes_below(high) - low_bytes

    def time_of(self, offset: int) -> int:
        """When the message was published; 0 at the head."""
        found = self._rows.at(offset)
        return 0 if found is None else found.header.time_ms

    def bytes_below(self, offset: int) -> int:
        """Body bytes of the messages o < offset, those included that are gone since the log was last empty."""
        found = self._rows.at(offset)
        if found is None:
            return self._key.body_bytes
        if offset <= found.first:
            return found.header.body_bytes_before
        if self._sized is not found:
            self._sizes = [0, *accumulate(map(len, found.opened().bodies))]
            self._sized = found
            self.cost += found.header.messages // SIZED_PER_COST
        return found.header.body_bytes_before + self._sizes[offset - found.first]

    def pause(self) -> None:
        """The log may change before the next question."""
        self._rows.pause()
