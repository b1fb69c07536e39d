"""Decides which parts of queues are left from a life that is over. Pure: no clock, no calls.

A drop ends a queue at its home first, and on other slices after that; a drop that is interrupted in between leaves
parts there. They hold messages for ever, and receipts count them. A part is looked at before its home is asked, so the
home's answer is newer: if it knows a newer incarnation, the part's life is over, whatever happens meanwhile.

A home that does not know the queue, or only an older life of it, has dropped the queue or lost it. It may have begun
anew with empty or old data (`--accept-empty`), and its answer does not tell the two cases apart. If the home lost the
queue, its parts hold the only copy of messages that were acknowledged. They are dropped only where an operator says so:
`unknown_too`.

A part is dropped only when it was found to be over twice, with a pause in between, and only by its incarnation: a newer
life of the queue is never harmed. A part without a known incarnation could be of a newer life: it is counted and left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal import Part

Homes = Mapping[bytes, int | None]
"""The answers of homes: each queue's incarnation; 0 if not known, None if there is no such queue. Homes are asked after
the parts."""


def is_over(part: Part, homes: Homes) -> bool:
    """Returns whether the home knows a newer life of the part's queue."""
    return 0 < part.incarnation < (homes.get(part.queue) or 0)


def is_unknown(part: Part, homes: Homes) -> bool:
    """Returns whether the home does not know the part's life: the queue was dropped, or the home lost it. False for a
    queue whose home was not asked."""
    if part.queue not in homes or not part.incarnation:
        return False
    at_home = homes[part.queue]
    return at_home is None or 0 < at_home < part.incarnation


def is_doubtful(part: Part, homes: Homes) -> bool:
    """Returns whether the home knows no such queue, and the part's incarnation is not known: the part may be of a newer
    queue."""
    return not part.incarnation and homes.get(part.queue, 0) is None


class Suspects:
    """Keeps the parts that were found to be over once, with the time. At most `parts_max`: others are found in a later
    round.

    `unknown_too`: parts whose life their home does not know count as over too.
    """

    def __init__(self, parts_max: int, pause_s: float, unknown_too: bool = False) -> None:
        self._unknown_too = unknown_too
        self._parts_max = parts_max
        self._pause_s = pause_s
        self._since_s: dict[Part, float] = {}
        """The time at which each part was found to be over, oldest first."""
        self._map_version = 0

    def __len__(self) -> int:
        return len(self._since_s)

    def _is_over(self, part: Part, homes: Homes) -> bool:
        return is_over(part, homes) or (self._unknown_too and is_unknown(part, homes))

    def found(self, parts: Iterable[Part], homes: Homes, now_s: float) -> None:
        """Notes the parts that are over. A part that is noted already keeps its time."""
        for part in parts:
            if len(self._since_s) < self._parts_max and self._is_over(part, homes):
                self._since_s.setdefault(part, now_s)

    def due(self, now_s: float, count_max: int) -> list[Part]:
        """Returns the parts to look at again, the oldest first."""
        due = [part for part, since_s in self._since_s.items() if now_s - since_s >= self._pause_s]
        return due[:count_max]

    def settle(self, looked_at: Iterable[Part], parts: Iterable[Part], homes: Homes) -> list[Part]:
        """Takes the second look. Returns the parts to drop: they are still there, and still over. All parts looked at
        are forgotten."""
        there = set(parts)
        ended = [part for part in looked_at if part in there and part in self._since_s and self._is_over(part, homes)]
        for part in looked_at:
            self._since_s.pop(part, None)
        return ended

    def follow_map(self, version: int) -> None:
        """Forgets all parts when the map is another: their homes may be others now."""
        if version != self._map_version:
            self._map_version = version
            self._since_s.clear()
