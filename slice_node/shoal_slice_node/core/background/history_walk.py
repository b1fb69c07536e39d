"""Finds keys whose history has messages that are too old: walks over table `history`, again and again.

Nothing else looks at a key to which nothing happens. The leader's clock decides, and a key is found a little late.
"""

from __future__ import annotations

from itertools import islice, takewhile

from shoal_slice_node.core.apply.key_options import history_floor
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import HISTORIES_PER_TURN, HISTORIES_REST_MS
from shoal_slice_node.core.rows.history_row import EXPIRING


class HistoryWalk:
    """Keeps the walk's place."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._position = b""
        self._rests_until_ms = 0

    def turn(self, now_ms: int, wall_ms: int) -> list[bytes]:
        """Returns keys to trim. `now_ms`: the time of a clock that only grows; `wall_ms`: the machine's."""
        if now_ms < self._rests_until_ms:
            return []
        tables = self._state.tables
        found: list[bytes] = []
        rows = islice(tables.history.scan(start=self._position), HISTORIES_PER_TURN)
        key_ids = [row_key for row_key, _ in takewhile(lambda row: not row[0].startswith(EXPIRING), rows)]
        for key_id in key_ids:
            self._position = key_id + b"\x00"
            key = self._state.key_by_id(key_id)
            if key is not None and history_floor(tables, key[1], wall_ms) > key[1].low:
                found.append(key_id)
        if len(key_ids) < HISTORIES_PER_TURN:
            self._position = b""
            self._rests_until_ms = now_ms + HISTORIES_REST_MS
        return found
