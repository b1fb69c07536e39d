"""Which parts of queues are left from a life that is over. Pure: no clock, no calls.

A drop ends a queue at its home first and elsewhere after that; one that dies in between leaves parts. They hold
messages for ever, and count in receipts. A part is looked at before its home is asked, so what the home says then is
newer: if it knows a newer incarnation, the part's life is over, whatever goes on meanwhile.

A home that does not know the queue, or only an older life of it, has dropped it, or lost it: it may have begun anew
with empty or old data (`--accept-empty`), and nothing that a home says tells one from the other. The parts then hold
the only copy of messages that were acknowledged. They are dropped only where an operator says so: `unknown_too`.

It is dropped only when it was found so twice, with a pause in between, and by its incarnation: a newer life of the
queue is never harmed. A part whose incarnation is not known could not be told from a newer one: it is counted and left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal import Part

Homes = Mapping[bytes, int | None]
"""What homes say: a queue's incarnation, 0 if not known, None if there is no such queue. Asked after the parts."""


def is_over(part: Part, homes: Homes) -> bool:
    """Whether its home knows a newer life of the part's queue."""
    return 0 < part.incarnation < (homes.get(part.queue) or 0)


def is_unknown(part: Part, homes: Homes) -> bool:
    """Whether its home does not know the part's life: it was dropped, or the home lost it. A queue that no home was
    asked for is not judged."""
    if part.queue not in homes or not part.incarnation:
        return False
    at_home = homes[part.queue]
    return at_home is None or 0 < at_home < part.incarnation


def is_doubtful(part: Part, homes: Homes) -> bool:
    """Whether the part is of no queue that its home knows, and cannot be told from a newer one."""
    return not part.incarnation and homes.get(part.queue, 0) is None


class Suspects:
    """Parts that were found over once, with the time. At most `parts_max`: others are found in a later round.

    `unknown_too`: those that their home does not know count as over.
    """

    def __init__(self, parts_max: int, pause_s: float, unknown_too: bool = False) -> None:
        self._unknown_too = unknown_too
        self._parts_max = parts_max
        self._pause_s = pause_s
        self._since_s: dict[Part, float] = {}
        """In the order in which they were found."""
        self._map_version = 0

    def __len__(self) -> int:
        return len(self._since_s)

    def _is_over(self, part: Part, homes: Homes) -> bool:
        return is_over(part, homes) or (self._unknown_too and is_unknown(part, homes))

    def found(self, parts: Iterable[Part], homes: Homes, now_s: float) -> None:
        """Notes those that are over. One that is noted already keeps its time."""
        for part in parts:
            if len(self._since_s) < self._parts_max and self._is_over(part, homes):
                self._since_s.setdefault(part, now_s)

    def due(self, now_s: float, count_max: int) -> list[Part]:
        """Returns those to look at again, the oldest first."""
        due = [part for part, since_s in self._since_s.items() if now_s - since_s >= self._pause_s]
        return due[:count_max]

    def settle(self, looked_at: Iterable[Part], parts: Iterable[Part], homes: Homes) -> list[Part]:
        """The second look. Returns those to drop: they are there as before, and over as before. The others are
        cleared."""
        there = set(parts)
        ended = [part for part in looked_at if part in there and part in self._since_s and self._is_over(part, homes)]
        for part in looked_at:
            self._since_s.pop(part, None)
        return ended

    def follow_map(self, version: int) -> None:
        """Homes may be others with a newer map: what was found by the old one is not held against any part."""
        if version != self._map_version:
            self._map_version = version
            self._since_s.clear()
