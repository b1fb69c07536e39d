"""Finds keys whose history has messages that are too old: walks over table `history`, again and again.

Nothing else looks at a key to which nothing happens. The leader's clock decides, and a key is found a little late.
"""

from __future__ import annotations

from itertools import islice

from shoal_slice_node.core.apply.key_options import has_old_history
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import HISTORIES_PER_TURN, HISTORIES_REST_MS


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
        key_ids = [key_id for key_id, _ in islice(tables.history.scan(start=self._position), HISTORIES_PER_TURN)]
        for key_id in key_ids:
            self._position = key_id + b"\x00"
            key = self._state.key_by_id(key_id)
            if key is not None and has_old_history(tables, key[1], wall_ms):
                found.append(key_id)
        if len(key_ids) < HISTORIES_PER_TURN:
            self._position = b""
            self._rests_until_ms = now_ms + HISTORIES_REST_MS
        return found
