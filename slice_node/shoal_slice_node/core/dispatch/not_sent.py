"""Lists the parcels of one session that were not sent, by key and offset: once it is asked for, and only then.

A question looks at the parcels of the offsets that it is about, however many wait. Not here: what an attachment was not
sent (unsent.py).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice, takewhile
from typing import NamedTuple

from shoal_slice_node.core.dispatch.parcels import Parcel, Slot

Found = tuple[Slot, Parcel]


class _OfKey(NamedTuple):
    """Lists the parcels of one key. `slots` ascend, so by their first offsets."""

    slots: list[Slot]
    parcels: dict[Slot, Parcel]


class NotSent:
    """Lists parcels that were not sent. Invariant: while the session is open, `_by_key` has no parcel that does not
    wait for it."""

    __slots__ = (
        "_by_key",
        "_freed_bytes",
        "_kept_bytes",
        "_left_behind",
        "_listed_to",
        "_longest",
        "_to_list",
        "_to_list_to",
        "not_listed",
        "waited",
    )

    def __init__(self) -> None:
        self._by_key: dict[bytes, _OfKey] | None = None
        self._listed_to = 0
        """The number of the last parcel that is listed."""
        self._longest = 0
        """How many offsets a parcel has, at most."""
        self._to_list: Iterator[Slot] | None = None
        """What waits for an open session, while it is listed in steps: parcels up to the number `_to_list_to`."""
        self._to_list_to = 0
        self._left_behind: Iterator[Found] = iter(())
        """What waited when the session closed, and is not listed yet."""
        self.not_listed = 0
        """How many parcels these are."""
        self.waited = 0
        """How many waited when the session closed."""
        self._freed_bytes = 0
        """What was freed of them and `take_freed` has not returned."""
        self._kept_bytes = 0
        """The memory of those of them that are listed."""

    def close(self, waiting: dict[Slot, Parcel]) -> None:
        """Notes that the session has ended, and what waited for it."""
        self._by_key = self._to_list = None
        self._left_behind, self.waited, self.not_listed = iter(waiting.items()), len(waiting), len(waiting)

    def list_left_behind(self, parcels_max: int) -> bool:
        """Lists some of the parcels that waited when the session closed. Returns whether there are more."""
        for slot, parcel in islice(self._left_behind, parcels_max):
            cost_bytes = parcel.cost_bytes
            parcel.drop_chunk()
            self._add(slot, parcel)
            kept_bytes = parcel.cost_bytes if parcel.is_owed else 0
            self._kept_bytes += kept_bytes
            self._freed_bytes += cost_bytes - kept_bytes
        self.not_listed -= min(parcels_max, self.not_listed)
        return self.not_listed > 0

    def take_freed(self, held_bytes: int) -> int:
        """Returns how much memory was freed since the last call, of what waited when the session closed. `held_bytes`:
        what counts for the session, with what its transport had; once all is listed that is freed, too."""
        freed_bytes, self._freed_bytes = self._freed_bytes, 0
        return freed_bytes if self.not_listed else held_bytes - self._kept_bytes

    def forget_left_behind(self) -> None:
        """Forgets what waited when the session closed."""
        self._by_key = None
        self.waited = self._kept_bytes = 0

    def list_some(self, waiting: dict[Slot, Parcel], parcels_max: int) -> bool:
        """Lists some of the parcels that wait for an open session, if more are not listed than `parcels_max`. Returns
        False if it need not be called again before `list_new`."""
        if self._to_list is None:
            newest = next(reversed(waiting.values())).number if len(waiting) > parcels_max else 0
            if newest - self._listed_to <= parcels_max:
                return False
            self._to_list, self._to_list_to = iter(list(waiting)), newest
        some = list(islice(self._to_list, parcels_max))
        for slot in some:
            parcel = waiting.get(slot)  # Another one may have the place of one that left.
            if parcel is not None and self._listed_to < parcel.number <= self._to_list_to:
                self._listed_to = parcel.number
                self._add(slot, parcel)
        if not some:
            self._to_list = None
        return True

    def list_new(self, waiting: dict[Slot, Parcel]) -> None:
        """Lists those of the parcels that wait for an open session which have joined since the last call."""
        new = list(takewhile(lambda slot: waiting[slot].number > self._listed_to, reversed(waiting)))
        for slot in reversed(new):
            self._listed_to = waiting[slot].number
            self._add(slot, waiting[slot])

    def _add(self, slot: Slot, parcel: Parcel) -> None:
        """Lists one. Live chunks are not owed: they are left out."""
        if not parcel.is_owed:
            return
        if self._by_key is None:
            self._by_key = {}
        of_key = self._by_key.get(slot[0])
        if of_key is None:
            of_key = self._by_key[slot[0]] = _OfKey([], {})
        of_key.parcels[slot] = parcel
        insort(of_key.slots, slot)
        self._longest = max(self._longest, parcel.to - parcel.low)

    def leaves(self, slot: Slot, is_last: bool) -> None:
        """Forgets a parcel that leaves, or that brings nothing to any queue. `is_last`: nothing waits any more."""
        if self._by_key is None:
            return
        if is_last:
            self._by_key = None
            self._longest = 0
            return
        of_key = self._by_key.get(slot[0])
        if of_key is not None and of_key.parcels.pop(slot, None) is not None:
            del of_key.slots[bisect_left(of_key.slots, slot)]
            if not of_key.slots:
                del self._by_key[slot[0]]

    def between(self, key_id: bytes, first: int, to: int) -> tuple[list[Found], int]:
        """Returns the listed parcels of a key with any of the offsets first <= o < to, by their first offsets; and how
        many were looked at."""
        of_key = None if self._by_key is None else self._by_key.get(key_id)
        if of_key is None:
            return [], 0
        slots, parcels = of_key
        begin = bisect_left(slots, (key_id, first - self._longest, 0, 0, 0, 0))
        end = bisect_left(slots, (key_id, to, 0, 0, 0, 0))
        return [(slot, parcels[slot]) for slot in slots[begin:end] if slot[2] > first], end - begin
