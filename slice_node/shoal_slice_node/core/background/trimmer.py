"""Finds which keys may be trimmed, and to which offset. Only the leader does this; forgetting it costs only time.

A look at a key costs one row for each binding. So it is made after as many moves of cursors as the key has bindings, or
after TRIM_DELAY_MS. It also finds the binding with the lowest cursor: while this cursor stays, later looks cost one
row. A turn is O(rows it reads), however many keys wait; nothing is kept for keys at rest, and nothing is rebuilt after
a start.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shoal_slice_node.core.apply.cursors import cursor_of_ended, cursor_of_live
from shoal_slice_node.core.apply.lookups import row_start
from shoal_slice_node.core.apply.records import Trim
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import (
    LOOK_MEMBERS_PER_STEP,
    LOOK_MEMBERS_PER_TURN,
    LOOKS_UNDER_WAY_MAX,
    LOWEST_NOTED_MAX,
    LOWEST_NOTED_MEMBERS_MIN,
    TRIM_DELAY_MS,
)
from shoal_slice_node.core.rows.key_row import KeyRow


@dataclass(slots=True)
class _Look:
    """Searches a key's lowest cursor in steps: live bindings, then ended ones, so that a binding which ends meanwhile
    is seen. `after`: members up to here are counted. `holder`: the queue with the lowest cursor; b"": none is below
    the head, and `lowest` is the head."""

    looked_at_lsn: int
    lowest: int
    holder: bytes = b""
    holder_ended: bool = False
    after: bytes = b""
    ended: bool = False
    members: int = 0


class Trimmer:
    """Is told which keys' bindings moved; says in bounded turns what may be trimmed."""

    def __init__(self, state: State) -> None:
        self._state = state
        # Keys with moves since their last look began: (number of moves, time of the first move in ms).
        self._moves: dict[bytes, tuple[int, int]] = {}
        self._waiting: deque[tuple[bytes, int]] = deque()  # (key, since), ascending; stale where _moves says otherwise
        self._touched: dict[bytes, None] = {}  # keys with moves not yet compared with their number of bindings
        self._looks: OrderedDict[bytes, _Look] = OrderedDict()
        # The binding that was lowest at a key's last look: (queue id, whether it had ended). In the order of the looks.
        self._lowest: OrderedDict[bytes, tuple[bytes, bool]] = OrderedDict()

    def moved(self, key_ids: Iterable[bytes], now_ms: int) -> None:
        moves, touched = self._moves, self._touched
        for key_id in key_ids:
            found = moves.get(key_id)
            if found is None:
                moves[key_id] = (1, now_ms)
                self._waiting.append((key_id, now_ms))
            else:
                moves[key_id] = (found[0] + 1, found[1])
            touched[key_id] = None

    @property
    def pending(self) -> bool:
        return bool(self._moves or self._looks)

    def turn(self, now_ms: int) -> list[Trim]:
        """Returns the trims found by reading about LOOK_MEMBERS_PER_TURN rows. Several looks take turns, so that the
        look at a large key does not hold up the others."""
        budget = LOOK_MEMBERS_PER_TURN
        due = self._due(now_ms)
        trims: list[Trim] = []
        while budget > 0:
            if len(self._looks) < LOOKS_UNDER_WAY_MAX and (key_id := next(due, None)) is not None:
                budget -= self._start(key_id)
            elif self._looks:
                key_id, look = self._looks.popitem(last=False)
                budget -= self._step(key_id, look, trims)
            else:
                break
        return trims

    def _due(self, now_ms: int) -> Iterator[bytes]:
        """Yields the keys to look at. A look may miss what moves while it is under way: another look follows."""
        for _ in range(min(len(self._touched), LOOK_MEMBERS_PER_TURN)):
            key_id, _none = self._touched.popitem()
            found = self._moves.get(key_id)
            if found is None or key_id in self._looks:
                continue
            if found[0] >= self._state.tables.binding.count(key_id):
                yield key_id
        while self._waiting and now_ms - self._waiting[0][1] >= TRIM_DELAY_MS:
            key_id, since = self._waiting.popleft()
            count, first = self._moves.get(key_id, (0, -1))
            if first != since:
                continue
            if key_id in self._looks:
                self._moves[key_id] = (count, now_ms)
                self._waiting.append((key_id, now_ms))
            else:
                yield key_id

    def _start(self, key_id: bytes) -> int:
        """Starts a look, if one is needed. Returns about how many rows this read."""
        del self._moves[key_id]
        found = self._state.key_by_id(key_id)
        if found is None:
            self._lowest.pop(key_id, None)
            return 1
        key = found[1]
        if key.low == key.head and self._state.tables.binding.count(key_id):
            return 1
        if self._is_held(key):
            return 2
        self._looks[key_id] = _Look(self._state.lsn, key.head)
        return 1

    def _is_held(self, key: KeyRow) -> bool:
        """Returns whether the binding that was lowest still needs the first row of the log."""
        queue_id, ended = self._lowest.get(key.id, (b"", False))
        if not queue_id:
            return False
        read = cursor_of_ended if ended else cursor_of_live
        cursor = read(self._state.tables, queue_id, key.id)
        return cursor is not None and row_start(self._state.tables, key, cursor) <= key.low

    def _step(self, key_id: bytes, look: _Look, trims: list[Trim]) -> int:
        """Reads some members; returns how many, at least 1."""
        tables = self._state.tables
        table, read = (tables.ended, cursor_of_ended) if look.ended else (tables.binding, cursor_of_live)
        members = table.members(key_id, look.after, LOOK_MEMBERS_PER_STEP)
        for queue_id in members:
            cursor = read(tables, queue_id, key_id)
            if cursor is None:
                dropped = not look.ended and tables.queue.get(queue_id) is None  # and still being reclaimed
                assert dropped, f"a member of key {key_id.hex()} has no binding: queue {queue_id.hex()}"
            elif cursor < look.lowest:
                look.lowest, look.holder, look.holder_ended = cursor, queue_id, look.ended
        look.members += len(members)
        if len(members) == LOOK_MEMBERS_PER_STEP:
            look.after = members[-1]
        elif not look.ended:
            look.ended, look.after = True, b""
        else:
            self._finish(key_id, look, trims)
            return len(members) + 1
        self._looks[key_id] = look
        return len(members) + 1

    def _finish(self, key_id: bytes, look: _Look, trims: list[Trim]) -> None:
        self._lowest.pop(key_id, None)
        found = self._state.key_by_id(key_id)
        if found is None:
            return
        if look.holder and look.members >= LOWEST_NOTED_MEMBERS_MIN:
            self._lowest[key_id] = (look.holder, look.holder_ended)
            if len(self._lowest) > LOWEST_NOTED_MAX:
                self._lowest.popitem(last=False)
        key = found[1]
        low = row_start(self._state.tables, key, min(look.lowest, key.head))
        if low > key.low or (key.low == key.head and not self._state.tables.binding.count(key_id)):
            trims.append(Trim(key_id, low, look.looked_at_lsn))
