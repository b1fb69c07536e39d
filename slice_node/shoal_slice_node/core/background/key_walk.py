"""Walks slowly over the keys after a start, to find those that keep messages which every binding may have passed.

Trims are found when cursors advance. If a key's cursors advanced before a crash, and it was not trimmed yet, they may
not advance again. So every key of the checkpoint that keeps messages is looked at once. Later changes are noted as they
come.
"""

from __future__ import annotations

from itertools import islice

from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import KEYS_WALKED_PER_TURN
from shoal_slice_node.core.rows.key_row import ID, is_kept


class KeyWalk:
    """Walks over the keys once. `done`: every key was looked at."""

    def __init__(self, state: State) -> None:
        self._rows = state.tables.key
        self._position = b""
        self.done = False

    def turn(self) -> list[bytes]:
        """Reads the next few rows; returns the ids of their keys that keep messages."""
        if self.done:
            return []
        rows = list(islice(self._rows.scan_below(start=self._position), KEYS_WALKED_PER_TURN))
        if len(rows) < KEYS_WALKED_PER_TURN:
            self.done = True
        else:
            self._position = rows[-1][0] + b"\x00"
        return [row[ID] for _, row in rows if is_kept(row)]
