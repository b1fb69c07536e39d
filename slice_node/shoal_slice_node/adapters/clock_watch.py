"""Says when this machine's clock is behind the newest record: its times stand still until the clock has come there, and
so does the time to live of all that is published meanwhile (GAPS.md). Not here: what expires (core)."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from shoal_slice_node.adapters.limits import CLOCK_BEHIND_MS

_log = logging.getLogger(__name__)


class ClockWatch:
    """Compares the clock with the records' times, and logs each change once. `behind_ms`: how far it is behind as of
    the last look; 0: it is not, or less than CLOCK_BEHIND_MS."""

    def __init__(self) -> None:
        self.behind_ms = 0
        self._record_ms = 0

    def look(self, wall_ms: int, record_ms: int) -> None:
        """Compares the clock with the records: `record_ms` is the time of the newest, Unix time as `wall_ms` is."""
        was_ms, behind_ms = self.behind_ms, record_ms - wall_ms
        self.behind_ms = behind_ms if behind_ms >= CLOCK_BEHIND_MS else 0
        self._record_ms = record_ms
        if self.behind_ms and not was_ms:
            _log.warning("%s", self.trouble)
        elif was_ms and not self.behind_ms:
            _log.info("this machine's clock has come to the time of the newest record: times go on")

    @property
    def trouble(self) -> str:
        """Says what is wrong, as a sentence; "" if nothing is."""
        if not self.behind_ms:
            return ""
        then = datetime.fromtimestamp(self._record_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return (
            f"this machine's clock is {self.behind_ms // 1000} s behind the newest record: messages with a time to live"
            f" keep it until the clock has come to {then} UTC"
        )
