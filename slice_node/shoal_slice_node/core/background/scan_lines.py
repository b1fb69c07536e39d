"""Says which key is searched next for its lowest cursor: keys wait in lines, which take turns.

A search costs a row for each binding. So keys of one size stand in one line: those with many bindings hold up others
with as many, and no key that needs a few rows only. A key that had just no room for a publish stands in a line of
its own kind: what is consumed of it goes soon, however many others wait. Not here: the search (trimmer.py).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from shoal_slice_node.core.limits import CURSOR_SCANS_MAX, LINED_MAX, SCAN_SIZES, SCAN_SIZES_BITS


@dataclass(slots=True)
class CursorScan:
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


class ScanLine:
    """Keeps keys of one size: those that wait, in the order in which they came, and those that are searched, in turn.
    `urgent`: they had no room for a publish."""

    __slots__ = ("scans", "size", "urgent", "waiting")

    def __init__(self, size: int, urgent: bool) -> None:
        self.size = size
        self.urgent = urgent
        self.waiting: OrderedDict[bytes, None] = OrderedDict()
        self.scans: OrderedDict[bytes, CursorScan] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self.waiting or self.scans)

    def add(self, key_id: bytes, scan: CursorScan | None) -> None:
        """Puts a key behind the others. `scan`: its search, if that has begun."""
        if scan is None:
            self.waiting[key_id] = None
        else:
            self.scans[key_id] = scan

    def remove(self, key_id: bytes) -> CursorScan | None:
        """Takes a key out. Returns its search, if that has begun."""
        scan = self.scans.pop(key_id, None)
        if scan is None:
            del self.waiting[key_id]
        return scan

    def take(self) -> tuple[bytes, CursorScan | None]:
        """Takes the next key out, and its search, if that has begun."""
        if self.waiting and len(self.scans) < CURSOR_SCANS_MAX:
            return self.waiting.popitem(last=False)
        return self.scans.popitem(last=False)


class ScanLines:
    """Keeps the lines. A key stands in one of them at most."""

    def __init__(self) -> None:
        self._lines = [ScanLine(size, urgent) for urgent in (False, True) for size in range(SCAN_SIZES)]
        self.waiting: dict[bytes, ScanLine] = {}
        """The line of each key whose search has not begun."""
        self._scanned: dict[bytes, ScanLine] = {}
        self._next = 0

    def __len__(self) -> int:
        """Returns how many keys stand in lines."""
        return len(self.waiting) + len(self._scanned)

    def __contains__(self, key_id: bytes) -> bool:
        return key_id in self.waiting or key_id in self._scanned

    def __iter__(self) -> Iterator[bytes]:
        """Yields the keys, those that are searched now first."""
        return chain(self._scanned, self.waiting)

    def is_scanned(self, key_id: bytes) -> bool:
        """Returns whether the key is searched now."""
        return key_id in self._scanned

    def add(self, key_id: bytes, members: int, urgent: bool) -> bool:
        """Lines up a key that stands in no line. Returns False if its line is full: of keys with many bindings only
        LINED_MAX wait, so that they leave the notes of advances to others."""
        assert key_id not in self
        line = self._line(_size_of(members), urgent)
        if line.size and len(line.waiting) >= LINED_MAX:
            return False
        line.add(key_id, None)
        self.waiting[key_id] = line
        return True

    def hurry(self, key_id: bytes) -> None:
        """Moves a key that stands in a line to the line of those that had no room for a publish."""
        lines = self.waiting if key_id in self.waiting else self._scanned
        line = lines[key_id]
        if line.urgent:
            return
        to = lines[key_id] = self._line(line.size, True)
        to.add(key_id, line.remove(key_id))

    def next_line(self) -> ScanLine | None:
        """Returns the line whose turn it is, of those with keys; None: there is none."""
        if not self:
            return None
        lines = self._lines
        while not lines[self._next]:
            self._next = (self._next + 1) % len(lines)
        line = lines[self._next]
        self._next = (self._next + 1) % len(lines)
        return line

    def take(self, line: ScanLine) -> tuple[bytes, CursorScan | None]:
        """Takes the next key out of a line; without a scan its search has not begun. `put_back` returns it."""
        key_id, scan = line.take()
        del (self.waiting if scan is None else self._scanned)[key_id]
        return key_id, scan

    def put_back(self, line: ScanLine, key_id: bytes, scan: CursorScan) -> None:
        """Notes that a key's search goes on. One that turns out larger goes on among the larger ones."""
        to = self._line(max(line.size, _size_of(scan.members)), line.urgent)
        to.add(key_id, scan)
        self._scanned[key_id] = to

    def _line(self, size: int, urgent: bool) -> ScanLine:
        return self._lines[size + SCAN_SIZES * urgent]


def _size_of(members: int) -> int:
    """Returns the number of a key's size: each is 8 times the one before."""
    return min(max(0, members.bit_length() - 1) // SCAN_SIZES_BITS, SCAN_SIZES - 1)
