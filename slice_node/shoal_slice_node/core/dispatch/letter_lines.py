"""Keeps letters in lines, one for each key that they go to: a key that takes none holds up no other.

A line in which a letter failed pauses, and is then tried with one letter at a time, until one succeeds. Each pause is
twice as long as the one before. Memory: what waits, and one line for each key with letters.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from shoal_slice_node.core.limits import LETTER_AGAIN_MS, LETTER_AGAIN_MS_MAX, LETTERS_PER_LINE

Item = TypeVar("Item")


class _Line(Generic[Item]):
    """Holds what waits for one key. `under_way`: how many of its letters are being sent. `pauses`: nothing is given
    until the pause is over."""

    __slots__ = ("_pause_ms", "_waiting", "pauses", "under_way")

    def __init__(self) -> None:
        self._waiting: deque[Item] = deque()
        self._pause_ms = 0
        """How long the last pause was; 0: the last letter succeeded."""
        self.pauses = False
        self.under_way = 0

    @property
    def is_open(self) -> bool:
        """Returns whether the line may give an item."""
        most = 1 if self._pause_ms else LETTERS_PER_LINE
        return bool(self._waiting) and not self.pauses and self.under_way < most

    @property
    def fails(self) -> bool:
        """Returns whether its last letter failed, as far as is known."""
        return self._pause_ms > 0

    @property
    def is_over(self) -> bool:
        """Returns whether nothing is left to be done for the line's key."""
        return not (self._waiting or self.under_way or self.pauses)

    def add(self, item: Item) -> None:
        self._waiting.append(item)

    def add_first(self, item: Item) -> None:
        self._waiting.appendleft(item)

    def take_all_but_last(self) -> list[Item]:
        """Takes out all that waits but the last item. Returns what it took out."""
        if len(self._waiting) < 2:
            return []
        last = self._waiting.pop()
        left, self._waiting = self._waiting, deque((last,))
        return list(left)

    def take_all(self) -> list[Item]:
        """Takes out all that waits. Returns it."""
        left, self._waiting = self._waiting, deque()
        return list(left)

    def take(self) -> Item:
        self.under_way += 1
        return self._waiting.popleft()

    def end(self) -> None:
        """Notes that an item that was taken is not under way any more."""
        self.under_way -= 1

    def begin_pause(self) -> int:
        """Returns how long the line pauses now."""
        self._pause_ms = min(LETTER_AGAIN_MS_MAX, 2 * self._pause_ms or LETTER_AGAIN_MS)
        self.pauses = True
        return self._pause_ms

    def end_pause(self) -> None:
        self.pauses = False

    def forget_pauses(self) -> None:
        """Notes that a letter succeeded: the next pause is a short one."""
        self._pause_ms = 0


class LetterLines(Generic[Item]):
    """Keeps the lines. `now_ms`, here and below: the time of a clock that only grows."""

    def __init__(self) -> None:
        self._lines: dict[bytes, _Line[Item]] = {}
        """Maps a key to its line, which stays while letters of it wait or are under way, or it pauses."""
        self._open: OrderedDict[bytes, None] = OrderedDict()
        """The keys whose lines may give a letter, in turn."""
        self._pauses: list[tuple[int, int, bytes]] = []
        """A heap: when a pause is over, a number of its own, the key. One for each line that pauses."""
        self._serial = count()
        self._items = 0

    @property
    def items(self) -> int:
        """Returns how many items wait or are under way."""
        return self._items

    def add(self, key: bytes, item: Item) -> None:
        """Lets an item wait, behind the others of its key."""
        self._items += 1
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
        line.add(item)
        self._look_at(key, line)

    def add_first(self, key: bytes, item: Item) -> None:
        """Lets an item wait before the others of its key, of which one was just taken."""
        line = self._lines[key]
        line.add_first(item)
        self._look_at(key, line)

    def ready(self, now_ms: int) -> bool:
        """Returns whether `take` has an item."""
        return bool(self._open) or bool(self._pauses and self._pauses[0][0] <= now_ms)

    def take(self, now_ms: int) -> Item | None:
        """Returns the next item, of each key in turn; None: none may be sent now. `succeeded`, `left_out` or `failed`
        must be called for it."""
        self._end_pauses(now_ms)
        if not self._open:
            return None
        key, _ = self._open.popitem(last=False)
        line = self._lines[key]
        item = line.take()
        self._look_at(key, line)
        return item

    def succeeded(self, key: bytes) -> None:
        """Notes that an item that was taken is where it belongs: its key takes others."""
        self._lines[key].forget_pauses()
        self.ended(key)

    def ended(self, key: bytes) -> None:
        """Notes that an item that was taken is not to be sent any more."""
        self._items -= 1
        line = self._lines[key]
        line.end()
        self._look_at(key, line)

    def failed(self, key: bytes, item: Item, now_ms: int) -> None:
        """Lets an item that was taken wait again, behind the others. Its line pauses."""
        line = self._lines[key]
        line.end()
        line.add(item)
        if not line.pauses:  # Several that failed at once make one pause.
            heappush(self._pauses, (now_ms + line.begin_pause(), next(self._serial), key))
        self._look_at(key, line)

    def is_failing(self, key: bytes) -> bool:
        """Returns whether the key has a line in which the last letter failed."""
        line = self._lines.get(key)
        return line is not None and line.fails

    def forget_others(self, key: bytes) -> list[Item]:
        """Forgets what waits in a line in which a letter has just failed, but that letter. Returns what it forgot."""
        forgotten = self._lines[key].take_all_but_last()
        self._items -= len(forgotten)
        return forgotten

    def forget_paused(self) -> list[Item]:
        """Forgets what waits in the line whose pause ends first, and that it pauses. Returns what it forgot: nothing,
        if no line pauses."""
        if not self._pauses:
            return []
        _, _, key = heappop(self._pauses)
        line = self._lines[key]
        forgotten = line.take_all()
        self._items -= len(forgotten)
        line.end_pause()
        self._look_at(key, line)
        return forgotten

    def _end_pauses(self, now_ms: int) -> None:
        while self._pauses and self._pauses[0][0] <= now_ms:
            _, _, key = heappop(self._pauses)
            line = self._lines[key]
            line.end_pause()
            self._look_at(key, line)

    def _look_at(self, key: bytes, line: _Line[Item]) -> None:
        """Finds out if the line may give an item, and forgets it if it has none."""
        if line.is_open:
            self._open[key] = None
            return
        self._open.pop(key, None)
        if line.is_over:
            del self._lines[key]
