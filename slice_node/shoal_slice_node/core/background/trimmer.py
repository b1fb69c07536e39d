"""Finds which keys may be trimmed, and to which offset. Only the leader does this; forgetting it costs only time.

A scan of a key costs one row for each binding. So it is made after as many advances of cursors as the key has bindings,
or after TRIM_DELAY_MS. It also finds the binding with the lowest cursor: while this cursor stays, later scans cost one
row. A turn is O(rows it reads), however many keys wait; nothing is kept for keys at rest, and nothing is rebuilt after
a start. Which key is scanned next: scan_lines.py.

What is noted of keys is bounded. Where more advance, they are passed over: a walk over all keys finds them, and what
it finds comes before what advances meanwhile (key_walk.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence

from shoal_contract.options import PLAIN
from shoal_slice_node.core.apply.cursors import cursor_of_ended, cursor_of_live
from shoal_slice_node.core.apply.key_options import history_floor
from shoal_slice_node.core.apply.lookups import row_start
from shoal_slice_node.core.apply.records import Trim
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.background.scan_lines import CursorScan, ScanLines
from shoal_slice_node.core.limits import (
    ADVANCED_NOTED_MANY,
    ADVANCED_NOTED_MAX,
    FULL_LOOKED_AT_MAX,
    FULL_LOOKED_AT_MEMBERS_MAX,
    FULL_LOOKED_AT_STEPS_MAX,
    FULL_NOTED_MAX,
    HISTORY_ROWS_PER_LOOK,
    KEYS_WALKED_PER_TURN,
    LOWEST_NOTED_MAX,
    LOWEST_NOTED_MEMBERS_MIN,
    SCAN_MEMBERS_PER_STEP,
    SCAN_MEMBERS_PER_TURN,
    SCANS_LINED_PER_TURN,
    TRIM_DELAY_MS,
)
from shoal_slice_node.core.rows.key_row import KeyRow
from shoal_slice_node.core.rows.small_rows import RECLAIM_ENDED


class Trimmer:
    """Is told which keys' cursors advanced; says in bounded turns what may be trimmed."""

    def __init__(self, state: State) -> None:
        self.wall_ms = 0
        """The machine's time, as it was told last: the age of a history is counted by it."""
        self.passed_over = self.passed_over_lsn = 0
        """How often keys advanced that were not noted; and up to which record."""
        self._state = state
        self._advances: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        """Keys with cursors that advanced since their last scan began, and that wait in no line: (how often, time of
        the first in ms). Ascending by this time."""
        self._touched: dict[bytes, None] = {}
        """Those with advances that were not yet compared with their number of bindings."""
        self._full: OrderedDict[bytes, None] = OrderedDict()
        """Keys that had no room for a publish since the last turn, or that it did not come to."""
        self._found: OrderedDict[bytes, Trim] = OrderedDict()
        """What may be trimmed of full keys that were looked at."""
        self._were_full: OrderedDict[bytes, None] = OrderedDict()
        """Full keys of which nothing could be trimmed when they were looked at, the latest ones."""
        self._lines = ScanLines()
        self._lowest: OrderedDict[bytes, tuple[bytes, bool]] = OrderedDict()
        """The binding that was lowest at a key's last scan: (queue id, whether it had ended). In the order of the
        scans."""
        self._void: dict[bytes, None] = {}

    def take_void(self) -> list[bytes]:
        """Returns the ended bindings that searches met and of whose backlogs their keys keep nothing, as RECLAIM
        records name them."""
        void, self._void = list(self._void), {}
        return void

    def advanced(self, key_ids: Collection[bytes], now_ms: int) -> None:
        """Notes keys with cursors that advanced. Where ADVANCED_NOTED_MAX are noted, others are passed over. Those that
        were full are looked at soon."""
        were_full = [key_id for key_id in key_ids if key_id in self._were_full] if self._were_full else ()
        self._note(key_ids, now_ms, ADVANCED_NOTED_MAX)
        for key_id in were_full:
            self._were_full.pop(key_id, None)
        if were_full:
            self.full(were_full, now_ms)

    def walked(self, key_ids: Iterable[bytes], now_ms: int) -> None:
        """Notes keys that a walk over them found. There must be `room_for_walk`."""
        self._note(key_ids, now_ms, ADVANCED_NOTED_MAX + 2 * KEYS_WALKED_PER_TURN)

    def full(self, key_ids: Sequence[bytes], now_ms: int) -> None:
        """Notes keys that had no room for a publish: what is consumed of them is to go soon. A few with few bindings
        are looked at at once: of those that are really full nothing is noted, however many they are."""
        some = list(dict.fromkeys(key_ids))
        later = [key_id for key_id in some[:FULL_LOOKED_AT_MAX] if not self._look_at_full(key_id)]
        later += some[FULL_LOOKED_AT_MAX:]
        if len(self._full) < FULL_NOTED_MAX:
            self._full.update(dict.fromkeys(later))
        # A leader that began lately may not know what was acked before.
        self._note(later, now_ms, ADVANCED_NOTED_MAX + FULL_NOTED_MAX)

    def _look_at_full(self, key_id: bytes) -> bool:
        """Finds what may be trimmed of a full key with few bindings, and notes it. Returns False if it has more, and
        may be full no more."""
        trims: list[Trim] = []
        if self._members(key_id) > FULL_LOOKED_AT_MEMBERS_MAX:
            found = self._state.key_by_id(key_id)
            if found is not None and not self._is_held(found[1]):
                return False
        else:
            scan, _cost = self._start(key_id)
            for _ in range(FULL_LOOKED_AT_STEPS_MAX):
                if scan is not None:
                    scan, _cost = self._step(key_id, scan, trims, FULL_LOOKED_AT_MEMBERS_MAX + 1)
            if scan is not None:  # It had many members before.
                return False
        if trims and len(self._found) < FULL_NOTED_MAX:
            self._found[key_id] = trims[0]
        elif not trims:
            self._were_full[key_id] = None
            self._were_full.move_to_end(key_id)
            if len(self._were_full) > FULL_NOTED_MAX:
                self._were_full.popitem(last=False)
        return True

    def _note(self, key_ids: Iterable[bytes], now_ms: int, noted_max: int) -> None:
        advances, touched, waiting = self._advances, self._touched, self._lines.waiting
        room = noted_max - len(advances) - len(self._lines)
        for key_id in key_ids:
            if key_id in waiting:
                continue  # Its scan begins later.
            found = advances.get(key_id)
            if found is not None:
                advances[key_id] = (found[0] + 1, found[1])
            elif room > 0:
                advances[key_id] = (1, now_ms)
                room -= 1
            else:
                self.pass_over()
                continue
            touched[key_id] = None

    def pass_over(self) -> None:
        """Notes that some key advanced with the last record, or before, and is not noted."""
        self.passed_over += 1
        self.passed_over_lsn = self._state.lsn

    @property
    def room_for_walk(self) -> bool:
        """Returns whether a turn of a walk over the keys has room for what it finds, which comes before what
        advances."""
        return len(self._advances) + len(self._lines) <= ADVANCED_NOTED_MAX + KEYS_WALKED_PER_TURN

    @property
    def noted(self) -> list[bytes]:
        """Returns the keys with cursors that advanced, and those that are scanned now."""
        return [*self._lines, *self._advances]

    @property
    def pending(self) -> bool:
        return bool(self._advances or self._lines or self._found)

    def turn(self, now_ms: int) -> list[Trim]:
        """Returns the trims found by reading about SCAN_MEMBERS_PER_TURN rows, or twice as many while many keys are
        noted; and as many that were found of full keys. Keys take turns, see ScanLines."""
        many = len(self._advances) + len(self._lines) > ADVANCED_NOTED_MANY
        self._line_up(now_ms, SCANS_LINED_PER_TURN * (1 + many))
        budget = SCAN_MEMBERS_PER_TURN * (1 + many)
        trims = [self._found.popitem(last=False)[1] for _ in range(min(len(self._found), budget))]
        while budget > 0 and (line := self._lines.next_line()) is not None:
            left = min(budget, SCAN_MEMBERS_PER_STEP)
            budget -= left
            while left > 0 and line:
                key_id, scan = self._lines.take(line)
                if scan is None:
                    scan, cost = self._start(key_id)
                    left -= cost
                while scan is not None and left > 0:
                    scan, cost = self._step(key_id, scan, trims, left)
                    left -= cost
                if scan is not None:
                    self._lines.put_back(line, key_id, scan)
            budget += left
        return trims

    def _line_up(self, now_ms: int, keys_max: int) -> None:
        """Lines up keys to scan. A scan may miss what advances while it is under way: another scan follows."""
        advances, lines = self._advances, self._lines
        for _ in range(min(len(self._full), keys_max)):
            key_id, _none = self._full.popitem(last=False)
            if key_id in lines:
                lines.hurry(key_id)
            elif key_id in advances:
                self._add(key_id, urgent=True)
        for _ in range(min(len(self._touched), keys_max)):
            key_id, _none = self._touched.popitem()
            if key_id not in lines and advances[key_id][0] >= self._state.tables.binding.count(key_id):
                self._add(key_id, urgent=False)
        for _ in range(min(len(advances), keys_max)):
            key_id, (count, first_ms) = next(iter(advances.items()))
            if now_ms - first_ms < TRIM_DELAY_MS:
                return
            if lines.is_scanned(key_id):
                advances[key_id] = (count, now_ms)
                advances.move_to_end(key_id)
            else:
                self._add(key_id, urgent=False)

    def _add(self, key_id: bytes, urgent: bool) -> None:
        """Lines up a noted key."""
        del self._advances[key_id]
        self._touched.pop(key_id, None)
        if not self._lines.add(key_id, self._members(key_id), urgent):
            self.pass_over()

    def _members(self, key_id: bytes) -> int:
        return self._state.tables.binding.count(key_id) + self._state.tables.ended.count(key_id)

    def _start(self, key_id: bytes) -> tuple[CursorScan | None, int]:
        """Starts a scan, if one is needed. Returns it, and about how many rows this read."""
        found = self._state.key_by_id(key_id)
        if found is None:
            self._lowest.pop(key_id, None)
            return None, 1
        key = found[1]
        tables = self._state.tables
        if key.low == key.head and tables.binding.count(key_id) and not tables.ended.count(key_id):
            return None, 1
        if self._is_held(key):
            return None, 2
        if key.options.keeps_history and self._history_low(key) <= key.low:
            return None, HISTORY_ROWS_PER_LOOK
        return CursorScan(self._state.lsn, key.head, key.low), 1

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

    def _step(
        self, key_id: bytes, scan: CursorScan, trims: list[Trim], members_max: int
    ) -> tuple[CursorScan | None, int]:
        """Reads some members. Returns the scan, None if it is over, and about how many rows this read, at least 1."""
        tables = self._state.tables
        table, read = (tables.ended, cursor_of_ended) if scan.ended else (tables.binding, cursor_of_live)
        members, to = table.members(key_id, scan.after, members_max)
        for queue_id in members:
            cursor = read(tables, queue_id, key_id, scan.low)
            if cursor is None and scan.ended:
                self._void[RECLAIM_ENDED + queue_id + key_id] = None
            elif cursor is None:
                dropped = tables.queue.get(queue_id) is None  # and still being reclaimed
                assert dropped, f"a member of key {key_id.hex()} has no binding: queue {queue_id.hex()}"
            elif cursor < scan.lowest:
                scan.lowest, scan.holder, scan.holder_ended = cursor, queue_id, scan.ended
        scan.members += len(members)
        if to:
            scan.after = to
            return scan, members_max + 1
        if not scan.ended:
            scan.ended, scan.after = True, b""
            return scan, len(members) + 1
        self._finish(key_id, scan, trims)
        return None, len(members) + 1

    def _finish(self, key_id: bytes, scan: CursorScan, trims: list[Trim]) -> None:
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
