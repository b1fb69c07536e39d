"""Trim: a key's log rows go when every binding has passed them.

The leader looks for each key's lowest cursor and journals it; applying that is here, so replicas agree. A look costs
one row for each binding, so it is made only after as many moves as the key has bindings: O(1) for each move, nothing
in memory for keys at rest, and nothing to rebuild after a start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from shoal_slice_node.core.queues import Queue
from shoal_slice_node.core.records import Trim, decode_trims
from shoal_slice_node.core.rows.detail_row import decode_detail, detail_key
from shoal_slice_node.core.rows.key_row import encode_key
from shoal_slice_node.core.rows.queue_cursor import read_cursor
from shoal_slice_node.core.rows.small_rows import BOUND_BACK
from shoal_slice_node.core.state import State
from shoal_slice_node.limits import RECOUNT_MEMBERS_PER_TURN, TRIM_DELAY_MS

_NOTHING_NEEDED = 1 << 63


def apply_trims(state: State, payload: bytes) -> None:
    """A trim below what is kept, or of a vanished key, changes nothing."""
    for key_id, low, looked_at_lsn in decode_trims(payload):
        found = state.key_by_id(key_id)
        if found is None:
            continue
        if _bound_back_since(state, key_id, looked_at_lsn):
            state.effects.moved.append(key_id)
            continue
        full_name, key = found
        low = min(low, key.head)
        if low > key.low:
            state.kept.trimmed(key, low)
            state.tables.log.trim(key_id, key.low, low)
            key = key._replace(low=low)
            state.tables.key.put(full_name, encode_key(key))
        state.vanish_if_empty(full_name, key)


def _bound_back_since(state: State, key_id: bytes, lsn: int) -> bool:
    """Whether a binding came to need messages below the head after the look began: it may have been missed."""
    row = state.tables.reclaim.get(BOUND_BACK + key_id)
    if row is None:
        return False
    if int.from_bytes(row, "big") > lsn:
        return True
    state.tables.reclaim.delete(BOUND_BACK + key_id)
    return False


@dataclass(slots=True)
class _Recount:
    """A look for the lowest cursor, in steps: live bindings, then ended ones, so that one which ends meanwhile is seen.
    `after`: members up to here are counted."""

    looked_at_lsn: int
    lowest: int
    after: bytes = b""
    ended: bool = False


class Trimmer:
    """Which keys may be trimmed, and to where. Of the leader only; forgetting it loses nothing but time."""

    def __init__(self, state: State) -> None:
        self._state = state
        # Keys with moves since their last look: moves, and when the first was.
        self._moves: dict[bytes, tuple[int, int]] = {}
        self._recounts: dict[bytes, _Recount] = {}

    def moved(self, key_ids: Iterable[bytes], now_ms: int) -> None:
        moves = self._moves
        for key_id in key_ids:
            count, since = moves.get(key_id, (0, now_ms))
            moves[key_id] = (count + 1, since)

    @property
    def pending(self) -> bool:
        return bool(self._moves or self._recounts)

    def turn(self, now_ms: int, keys_max: int = 256) -> list[Trim]:
        """Trims found in one bounded turn."""
        budget = RECOUNT_MEMBERS_PER_TURN
        for key_id in self._due(now_ms, keys_max):
            del self._moves[key_id]
            self._start(key_id)
        trims: list[Trim] = []
        for key_id in list(self._recounts):
            if budget <= 0:
                break
            budget -= self._step(key_id, budget, trims)
        return trims

    def _due(self, now_ms: int, keys_max: int) -> list[bytes]:
        due: list[bytes] = []
        for key_id, (count, since) in self._moves.items():
            if len(due) >= keys_max:
                break
            if key_id in self._recounts:
                continue  # What moved while a look is under way may have been missed by it: another one follows.
            if now_ms - since >= TRIM_DELAY_MS or count >= self._state.tables.binding.count(key_id):
                due.append(key_id)
        return due

    def _start(self, key_id: bytes) -> None:
        found = self._state.key_by_id(key_id)
        if found is not None:
            self._recounts[key_id] = _Recount(self._state.lsn, found[1].head)

    def _step(self, key_id: bytes, budget: int, trims: list[Trim]) -> int:
        """Reads up to `budget` members; returns how many it read, at least 1."""
        recount = self._recounts[key_id]
        table = self._state.tables.ended if recount.ended else self._state.tables.binding
        members = table.members(key_id, recount.after, budget)
        for queue_id in members:
            recount.lowest = min(recount.lowest, self._cursor(queue_id, key_id, recount.ended))
        if len(members) == budget:
            recount.after = members[-1]
        elif not recount.ended:
            recount.ended, recount.after = True, b""
        else:
            del self._recounts[key_id]
            self._finish(key_id, recount, trims)
        return len(members) + 1

    def _cursor(self, queue_id: bytes, key_id: bytes, ended: bool) -> int:
        if ended:
            row = self._state.tables.detail.get(detail_key(queue_id, key_id))
            assert row is not None, f"binding {queue_id.hex()} of key {key_id.hex()} ended without a detail row"
            return decode_detail(row).cursor
        row = self._state.tables.queue.get(queue_id)
        if row is None:
            return _NOTHING_NEEDED  # A dropped queue that is still being reclaimed.
        cursor = read_cursor(row, key_id)
        if cursor is None:
            return Queue.decode(self._state.tables, queue_id, row).bucket(key_id).cursor(key_id)
        return cursor

    def _finish(self, key_id: bytes, recount: _Recount, trims: list[Trim]) -> None:
        found = self._state.key_by_id(key_id)
        if found is None:
            return
        key = found[1]
        low = min(recount.lowest, key.head)
        if key.low < low < key.head:
            low = next(self._state.tables.log.read(key_id, key.low, low))[0]
        if low > key.low or key.low == key.head:
            trims.append(Trim(key_id, low, recount.looked_at_lsn))
