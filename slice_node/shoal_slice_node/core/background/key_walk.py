"""Walks slowly over the keys, to find those that keep messages which every binding may have passed: once after a start,
and again where keys were passed over.

Trims are found when cursors advance. If a key's cursors advanced before a crash, and it was not trimmed yet, they may
not advance again. So every key of the checkpoint that keeps messages is looked at once. Later changes are noted as they
come, as far as there is room (trimmer.py). A key that was passed over is found by a walk over a checkpoint that has
what its cursors advanced by; the walk begins again until one has.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import KEYS_WALKED_PER_TURN
from shoal_slice_node.core.rows.key_row import ID, NEW, is_kept

_SHIFT = 61
"""The first turn of each walk reads so many rows more than that of the walk before, so that in each other keys are the
first of a turn: these find room where there is little."""


class KeyWalk:
    """Walks over the keys. `done`: every key was looked at. `checkpoint_lsn`: returns up to which record the checkpoint
    has everything; tables without one have everything."""

    def __init__(self, state: State) -> None:
        self.checkpoint_lsn: Callable[[], int] = lambda: state.lsn
        self._rows = state.tables.key
        self._ended = state.tables.ended
        self._position = b""
        self._began_lsn = 0
        """What the checkpoint had when the walk began."""
        self._passed_over = 0
        """How often keys had been passed over then."""
        self._walks = 0
        self.done = False

    def begin_again(self, passed_over: int, last_lsn: int) -> None:
        """Begins again if the last walk may have missed keys that were passed over. `passed_over`: how often some were,
        the last time with the record `last_lsn`."""
        if self.done and (passed_over != self._passed_over or last_lsn > self._began_lsn):
            self._position, self.done = b"", False
        if not self._position:
            self._passed_over = passed_over

    def turn(self) -> list[bytes]:
        """Reads the next few rows; returns the ids of their keys that keep messages, or ended bindings."""
        if self.done:
            return []
        rows_max = KEYS_WALKED_PER_TURN
        if not self._position:
            self._began_lsn = self.checkpoint_lsn()
            rows_max = 1 + _SHIFT * self._walks % KEYS_WALKED_PER_TURN
            self._walks += 1
        rows = list(islice(self._rows.scan_below(start=self._position), rows_max))
        if len(rows) < rows_max:
            self.done = True
        else:
            self._position = rows[-1][0] + b"\x00"
        return [row[ID] for name, row in rows if self._may_be_trimmed(name, row)]

    def _may_be_trimmed(self, name: bytes, row: bytes) -> bool:
        """Returns whether the key keeps messages, or ended bindings. `row`: what the checkpoint has of it."""
        if is_kept(row):
            now = self._rows.get(name)
            return now is not None and is_kept(now)
        return row[0] != NEW and self._ended.count(row[ID]) > 0
