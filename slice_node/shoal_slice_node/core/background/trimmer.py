"""Finds which keys may be trimmed, and to which offset. Only the leader does this; forgetting it costs only time.

A scan of a key costs one row for each binding. So it is made after as many advances of cursors as the key has bindings,
or after TRIM_DELAY_MS. It also finds the binding with the lowest cursor: while this cursor stays, later scans cost one
row. A turn is O(rows it reads), however many keys wait; nothing is kept for keys at rest, and nothing is rebuilt after
a start.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shoal_contract.options import PLAIN
from shoal_slice_node.core.apply.cursors import cursor_of_ended, cursor_of_live
from shoal_slice_node.core.apply.key_options import history_floor
from shoal_slice_node.core.apply.lookups import row_start
from shoal_slice_node.core.apply.records import Trim
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import (
    CURSOR_SCANS_MAX,
    HISTORY_ROWS_PER_LOOK,
    LOWEST_NOTED_MAX,
    LOWEST_NOTED_MEMBERS_MIN,
    SCAN_MEMBERS_PER_STEP,
    SCAN_MEMBERS_PER_TURN,
    TRIM_DELAY_MS,
)
from shoal_slice_node.core.rows.key_row import KeyRow
from shoal_slice_node.core.rows.small_rows import RECLAIM_ENDED


@dataclass(slots=True)
class _CursorScan:
    """Searches a key's lowest cursor in steps: live bindings, then ended ones, so that a binding which ends meanwhile
    is seen. `after`: members up to here are counted. `holder`: the queue with the lowest cursor; b"": none is below
    the head, and `lowest` is the head. `low`: the key's, when the search began."""

    looked_at_lsn: int
    lowest: int
    low: int
    holder: bytes = b""
    holder_ended: bool = False
    after: bytes = b""
    ended: bool = False
    members: int = 0


class Trimmer:
    """Is told which keys' cursors advanced; says in bounded turns what may be trimmed."""

    def __init__(self, state: State) -> None:
        self.wall_ms = 0
        """The machine's time, as it was told last: the age of a history is counted by it."""
        self._state = state
        self._advances: dict[bytes, tuple[int, int]] = {}
        """Keys with cursors that advanced since their last scan began: (how often, time of the first in ms)."""
        self._waiting: deque[tuple[bytes, int]] = deque()
        """(key, since), ascending; stale where `_advances` says otherwise."""
        self._touched: dict[bytes, None] = {}
        """Keys with advances that were not yet compared with their number of bindings."""
        self._scans: OrderedDict[bytes, _CursorScan] = OrderedDict()
        self._lowest: OrderedDict[bytes, tuple[bytes, bool]] = OrderedDict()
        """The binding that was lowest at a key's last scan: (queue id, whether it had ended). In the order of the
        scans."""
        self._void: list[bytes] = []

    def take_void(self) -> list[bytes]:
        """Returns the ended bindings that searches met and of whose backlogs their keys keep nothing, as RECLAIM
        records name them."""
        void, self._void = self._void, []
        return void

    def advanced(self, key_ids: Iterable[bytes], now_ms: int) -> None:
        advances, touched = self._advances, self._touched
        for key_id in key_ids:
            found = advances.get(key_id)
            if found is None:
                advances[key_id] = (1, now_ms)
                self._waiting.append((key_id, now_ms))
            else:
                advances[key_id] = (found[0] + 1, found[1])
            touched[key_id] = None

    @property
    def noted(self) -> list[bytes]:
        """Returns the keys with cursors that advanced, and those that are scanned now."""
        return [*self._scans, *self._advances]

    @property
    def pending(self) -> bool:
        return bool(self._advances or self._scans)

    def turn(self, now_ms: int) -> list[Trim]:
        """Returns the trims found by reading about SCAN_MEMBERS_PER_TURN rows. Several scans take turns, so that the
        scan of a large key does not hold up the others."""
        budget = SCAN_MEMBERS_PER_TURN
        due = self._due(now_ms)
        trims: list[Trim] = []
        while budget > 0:
            if len(self._scans) < CURSOR_SCANS_MAX and (key_id := next(due, None)) is not None:
                budget -= self._start(key_id)
            elif self._scans:
                key_id, scan = self._scans.popitem(last=False)
                budget -= self._step(key_id, scan, trims)
            else:
                break
        return trims

    def _due(self, now_ms: int) -> Iterator[bytes]:
        """Yields the keys to scan. A scan may miss what advances while it is under way: another scan follows."""
        for _ in range(min(len(self._touched), SCAN_MEMBERS_PER_TURN)):
            key_id, _none = self._touched.popitem()
            found = self._advances.get(key_id)
            if found is None or key_id in self._scans:
                continue
            if found[0] >= self._state.tables.binding.count(key_id):
                yield key_id
        while self._waiting and now_ms - self._waiting[0][1] >= TRIM_DELAY_MS:
            key_id, since = self._waiting.popleft()
            count, first = self._advances.get(key_id, (0, -1))
            if first != since:
                continue
            if key_id in self._scans:
                self._advances[key_id] = (count, now_ms)
                self._waiting.append((key_id, now_ms))
            else:
                yield key_id

    def _start(self, key_id: bytes) -> int:
        """Starts a scan, if one is needed. Returns about how many rows this read."""
        del self._advances[key_id]
        found = self._state.key_by_id(key_id)
        if found is None:
            self._lowest.pop(key_id, None)
            return 1
        key = found[1]
        tables = self._state.tables
        if key.low == key.head and tables.binding.count(key_id) and not tables.ended.count(key_id):
            return 1
        if self._is_held(key):
            return 2
        if key.options.keeps_history and self._history_low(key) <= key.low:
            return HISTORY_ROWS_PER_LOOK
        self._scans[key_id] = _CursorScan(self._state.lsn, key.head, key.low)
        return 1

    def _history_low(self, key: KeyRow) -> int:
        """Returns how far the key's history may be trimmed, as far as is known now."""
        return row_start(self._state.tables, key, history_floor(self._state.tables, key, self.wall_ms))

    def _is_held(self, key: KeyRow) -> bool:
        """Returns whether the binding that was lowest still needs the first row of the log."""
        queue_id, ended = self._lowest.get(key.id, (b"", False))
        if not queue_id:
            return False
        read = cursor_of_ended if ended else cursor_of_live
        cursor = read(self._state.tables, queue_id, key.id, key.low)
        return cursor is not None and row_start(self._state.tables, key, cursor) <= key.low

    def _step(self, key_id: bytes, scan: _CursorScan, trims: list[Trim]) -> int:
        """Reads some members; returns how many, at least 1."""
        tables = self._state.tables
        table, read = (tables.ended, cursor_of_ended) if scan.ended else (tables.binding, cursor_of_live)
        members = table.members(key_id, scan.after, SCAN_MEMBERS_PER_STEP)
        for queue_id in members:
            cursor = read(tables, queue_id, key_id, scan.low)
            if cursor is None and scan.ended:
                self._void.append(RECLAIM_ENDED + queue_id + key_id)
            elif cursor is None:
                dropped = tables.queue.get(queue_id) is None  # and still being reclaimed
                assert dropped, f"a member of key {key_id.hex()} has no binding: queue {queue_id.hex()}"
            elif cursor < scan.lowest:
                scan.lowest, scan.holder, scan.holder_ended = cursor, queue_id, scan.ended
        scan.members += len(members)
        if len(members) == SCAN_MEMBERS_PER_STEP:
            scan.after = members[-1]
        elif not scan.ended:
            scan.ended, scan.after = True, b""
        else:
            self._finish(key_id, scan, trims)
            return len(members) + 1
        self._scans[key_id] = scan
        return len(members) + 1

    def _finish(self, key_id: bytes, scan: _CursorScan, trims: list[Trim]) -> None:
        self._lowest.pop(key_id, None)
        found = self._state.key_by_id(key_id)
        if found is None:
            return
        if scan.holder and scan.members >= LOWEST_NOTED_MEMBERS_MIN:
            self._lowest[key_id] = (scan.holder, scan.holder_ended)
            if len(self._lowest) > LOWEST_NOTED_MAX:
                self._lowest.popitem(last=False)
        key = found[1]
        low = row_start(self._state.tables, key, min(scan.lowest, key.head))
        if key.options.keeps_history:
            low = min(low, self._history_low(key))
        empty = key.low == key.head and key.options == PLAIN and not self._state.tables.binding.count(key_id)
        if low > key.low or empty:
            trims.append(Trim(key_id, low, scan.looked_at_lsn))
