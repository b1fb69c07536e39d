"""The checker's first half: decides which offsets each binding must be given. Pure.

A bind returns the offset from which messages will be seen, an unbind the first that will not. Offsets of a key are
consecutive. So every offset between the two must come, once, in order, and nothing else. Arrays by place (town.py) take
16 bytes per binding, whatever happens.

    closed --open--> opening --opened(start)--> watching --close(end)--> closing --> done --forget--> closed

Deliveries that come before the bind's answer are kept, and looked at when the start is known.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shoal_loadtest.residents.limits import EARLY_MAX, FAULT_CASES_MAX, MISSING_MAX

LOST: Final = "lost"
DOUBLED: Final = "doubled"
MISORDERED: Final = "misordered"
OUTSIDE: Final = "outside"
CHANGED: Final = "changed"
FAULT_KINDS: Final = (LOST, DOUBLED, MISORDERED, OUTSIDE, CHANGED)
"""`outside`: a message from before a bind, from after an unbind, or for a queue that is no member. `changed`: another
message than the one that has this offset."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Describes one fault. `where`: queue and key."""

    kind: str
    where: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.detail}"


class Faults:
    """Counts all faults, and keeps the first."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.cases: list[Fault] = []

    def add(self, kind: str, where: str, detail: str, count: int = 1) -> None:
        self.counts[kind] += count
        if len(self.cases) < FAULT_CASES_MAX:
            self.cases.append(Fault(kind, where, detail))


class Windows:
    """Checks the offsets of each binding. `who(place)` names a place's queue and key."""

    def __init__(self, places: int, faults: Faults, who: Callable[[int], str]) -> None:
        self._start = array("Q", bytes(8 * places))
        self._next = array("Q", bytes(8 * places))
        """The offset that must come next, by place; 0: no window, or its start is not known yet."""
        self._end: dict[int, int] = {}
        self._early: dict[int, list[tuple[int, int, int]]] = {}
        self._missing: dict[int, set[int]] = {}
        """The offsets that were passed over, by place: they may come late (misordered) or never (lost)."""
        self._missing_count = 0
        self._faults = faults
        self._who = who
        self.redelivered = 0
        """The repeats that the broker marked as such."""
        self.seen = 0
        """The messages seen, counted once for each binding."""

    def open(self, place: int) -> None:
        """Opens a window: a bind is about to be sent."""
        self._early[place] = []

    def opened(self, place: int, start: int) -> None:
        self._start[place] = self._next[place] = start
        for first, end, redelivered in self._early.pop(place, []):
            self.saw(place, first, end, redelivered)

    def close(self, place: int, end: int) -> None:
        """Closes a window: the queue is unbound, and nothing from `end` on may come."""
        self._end[place] = end
        if self._next[place] > end:
            self._faults.add(OUTSIDE, self._who(place), f"offset {end} came, the first after the unbind")

    def done(self, place: int) -> bool:
        """Returns whether all messages before the window's end have come."""
        return self._next[place] >= self._end.get(place, 0) and place not in self._missing

    def forget(self, place: int) -> None:
        """Forgets a binding that is over. What is missing before its end counts as lost; without an end, what was
        passed over."""
        end = self._end.pop(place, self._next[place])
        if self._next[place]:
            self.miss(place, end)
        self._start[place] = self._next[place] = 0
        self._early.pop(place, None)
        self._missing_count -= len(self._missing.pop(place, ()))

    def start(self, place: int) -> int:
        """Returns the offset from which the place is bound; 0: not known, or no window."""
        return self._start[place]

    def finish(self) -> None:
        """Ends the check: nothing more comes, so what was passed over counts as lost."""
        for place in list(self._missing):
            self.miss(place, self._next[place])

    def watching(self, place: int, offset: int) -> bool:
        """Returns whether this offset must come, or have come, at this place."""
        if not self._next[place] or offset < self._start[place]:
            return False
        end = self._end.get(place)
        return end is None or offset < end

    def came(self, place: int, offset: int) -> bool:
        return offset < self._next[place] and offset not in self._missing.get(place, ())

    def miss(self, place: int, end: int) -> None:
        """Counts as lost, once, each offset below `end` that has not come: none of them comes any more."""
        if self._next[place] < end:
            lost = f"offsets {self._next[place]} to {end - 1} did not come"
            self._faults.add(LOST, self._who(place), lost, end - self._next[place])
            self._next[place] = end
        missing = self._missing.get(place, set())
        gone = {offset for offset in missing if offset < end}
        for offset in sorted(gone):
            self._faults.add(LOST, self._who(place), f"offset {offset} did not come; later ones did")
        missing -= gone
        self._missing_count -= len(gone)
        if not missing:
            self._missing.pop(place, None)

    def saw(self, place: int, first: int, end: int, redelivered: int) -> None:
        """Notes that offsets first <= offset < end came for the place's queue. `redelivered`: the broker's mark of a
        repeat."""
        expected = self._next[place]
        if first == expected and place not in self._end:
            self._next[place] = end
            self.seen += end - first
            return
        if not expected:
            self._not_open(place, first, end, redelivered)
            return
        for offset in range(first, end):
            self._saw_one(place, offset, redelivered)

    def _not_open(self, place: int, first: int, end: int, redelivered: int) -> None:
        early = self._early.get(place)
        if early is None or len(early) >= EARLY_MAX:
            self._faults.add(OUTSIDE, self._who(place), f"offset {first} came; the queue is not bound")
        else:
            early.append((first, end, redelivered))

    def _saw_one(self, place: int, offset: int, redelivered: int) -> None:
        expected = self._next[place]
        missing = self._missing.get(place)
        if offset >= self._end.get(place, offset + 1):
            self._faults.add(OUTSIDE, self._who(place), f"offset {offset} came; unbound at {self._end[place]}")
        elif offset >= expected:
            self._next[place] = offset + 1
            self.seen += 1
            self._pass_over(place, expected, offset)
        elif offset < self._start[place]:
            self._faults.add(OUTSIDE, self._who(place), f"offset {offset} came; bound from {self._start[place]}")
        elif missing and offset in missing:
            missing.discard(offset)
            self._missing_count -= 1
            if not missing:
                del self._missing[place]
            self.seen += 1
            self._faults.add(MISORDERED, self._who(place), f"offset {offset} came after {expected - 1}")
        elif redelivered:
            self.redelivered += 1
        else:
            self._faults.add(DOUBLED, self._who(place), f"offset {offset} came again, not marked as redelivered")

    def _pass_over(self, place: int, expected: int, offset: int) -> None:
        for missing in range(expected, offset):
            if self._missing_count >= MISSING_MAX:
                self._faults.add(LOST, self._who(place), f"offset {missing} did not come before {offset}")
            else:
                self._missing.setdefault(place, set()).add(missing)
                self._missing_count += 1
