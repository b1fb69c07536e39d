"""Says of each parcel which numbered nacks of its session were taken before it was put on its way.

A client that gives messages back, as it has no room, must not hand out what is behind them before they come again; and
copies of them that were on their way by then are none of those that come again. Both tell an earlier number.
"""

from __future__ import annotations

from collections import deque


class NacksTaken:
    """Keeps the numbers of one session's nacks, each with the last parcel that waited when they were taken: at most one
    more than parcels wait. `last_parcel`: nothing more may join it, or one before it: the last of them, or one that may
    name a handle which has another queue now."""

    __slots__ = ("_later", "_number", "last_parcel")

    def __init__(self) -> None:
        self.last_parcel = 0
        self._number = 0
        self._later: deque[tuple[int, int]] | None = None
        """The number of a parcel, and that of the nacks which all later parcels tell. Made when it is first needed."""

    def add(self, number: int, last_parcel: int) -> None:
        """Notes that nacks were taken. `last_parcel`: the number of the last parcel that waits; 0: none does."""
        if not last_parcel:
            self._later, self._number = None, max(number, self.before(self.last_parcel + 1))
            return
        self.last_parcel = max(self.last_parcel, last_parcel)
        if self._later is None:
            self._later = deque()
        while self._later and self._later[-1][0] >= last_parcel:  # What waited behind it was withdrawn.
            number = max(number, self._later.pop()[1])
        self._later.append((last_parcel, number))

    def close_parcels(self, last_parcel: int) -> None:
        """Lets nothing more join this parcel, or one before it."""
        self.last_parcel = max(self.last_parcel, last_parcel)

    def before(self, parcel: int) -> int:
        """Returns the number of the last nacks that were taken before a parcel was put on its way; 0: there were none.
        Parcels are asked for in the order of their numbers."""
        while self._later and self._later[0][0] < parcel:
            self._number = max(self._number, self._later.popleft()[1])
        return self._number
