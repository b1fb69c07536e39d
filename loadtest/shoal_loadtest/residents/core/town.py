"""Keeps which resident of the town has which seat, and is in which groups. Seats are online residents; places are
memberships.

Every seat has its own number of places to take; every place belongs to one group for good. So the sizes of groups and
the memberships per resident stay the same, however often residents come and go. A resident that logs in takes a seat
and free places; logging out gives both back, and another resident comes later.

Belongs here: seats, places, names, the counts of churn. Not here: what a broker knows of it, time.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter, deque
from collections.abc import Sequence

from shoal_loadtest.residents.core.chance import Chance
from shoal_loadtest.residents.core.load import Load
from shoal_loadtest.residents.core.names import key_name, queue_name
from shoal_loadtest.residents.core.sizes import first_places
from shoal_loadtest.residents.limits import (
    GROUP_ENDS_SHARE,
    GROUPS_EMPTY_SHARE,
    LEAVE_ANYWHERE_SHARE,
    MEMBERSHIPS_SPREAD,
    PLACE_PICKS_MAX,
    PLACES_FREE_SHARE,
    RESIDENTS_PER_SEAT,
)

NOBODY = -1


class Town:
    """Keeps one generator's part of the population. `part` of `parts` keeps its names apart from other generators'."""

    def __init__(self, load: Load, chance: Chance, part: int = 0, parts: int = 1) -> None:
        self.seats = load.residents
        self._chance = chance
        self._part, self._parts = part, parts
        self._firsts = first_places(round(load.groups * (1 + GROUPS_EMPTY_SHARE)))
        self.groups = len(self._firsts) - 1
        self.places = self._firsts[-1]
        self._group = array("I")
        """The group of each place."""
        for group, (first, end) in enumerate(itertools.pairwise(self._firsts)):
            self._group.extend([group] * (end - first))
        self.memberships = min(load.memberships, int(self.places * (1 - PLACES_FREE_SHARE)))
        """The number of memberships when every seat is taken."""
        self._generation = array("H", bytes(2 * self.groups))
        self._members = array("H", bytes(2 * self.groups))
        """The number of places taken in each group."""
        self._free = array("I", range(self.places))
        self._seat_of_place = array("i", [NOBODY]) * self.places
        self._places: list[array[int]] = [array("I") for _ in range(self.seats)]
        """The places taken by each seat; empty where the seat is free."""
        residents = max(self.seats + 2, int(self.seats * RESIDENTS_PER_SEAT))
        self._resident = array("i", [NOBODY]) * self.seats
        self._seat = array("i", [NOBODY]) * residents
        self._away = deque(range(residents))
        """Residents that are away; the one longest away comes next."""
        self.churn: Counter[str] = Counter()
        """`founded` and `ended`: groups that gained a first member, and groups that lost their last one."""

    # Residents and their places

    def resident(self, seat: int) -> int:
        """Returns the resident of a seat; NOBODY where it is free."""
        return self._resident[seat]

    def seat_of(self, resident: int) -> int:
        """Returns the seat of a resident; NOBODY if the resident is away. `resident`: the number in a queue's name."""
        number, part = divmod(resident, self._parts)
        return self._seat[number] if part == self._part and number < len(self._seat) else NOBODY

    def queue(self, seat: int) -> bytes:
        assert self._resident[seat] != NOBODY
        return queue_name(self._resident[seat] * self._parts + self._part)

    def places_of(self, seat: int) -> Sequence[int]:
        return self._places[seat]

    def place_in(self, seat: int, group: int) -> int:
        """Returns the seat's place in a group; NOBODY if it is no member."""
        first, end = self._firsts[group], self._firsts[group + 1]
        for place in self._places[seat]:
            if first <= place < end:
                return place
        return NOBODY

    def members(self, group: int) -> list[tuple[int, int]]:
        """Returns (seat, place) of each member."""
        places = range(self._firsts[group], self._firsts[group + 1])
        return [(seat, place) for place in places if (seat := self._seat_of_place[place]) != NOBODY]

    def group(self, place: int) -> int:
        return self._group[place]

    def group_numbered(self, number: int) -> int:
        """Returns the group of the number in a key's name; NOBODY if it is not this town's."""
        group, part = divmod(number, self._parts)
        return group if part == self._part and group < self.groups else NOBODY

    def generation(self, group: int) -> int:
        return self._generation[group]

    def key(self, group: int) -> bytes:
        return key_name(group * self._parts + self._part, self._generation[group])

    def keys(self, places: Sequence[int]) -> list[bytes]:
        return [self.key(self.group(place)) for place in places]

    def sizes(self) -> tuple[int, int, int, int]:
        """Returns (groups with a member, memberships, sum of squares, largest) now; may be called in another thread."""
        counts = Counter(self._members[:])
        del counts[0]
        memberships = sum(members * groups for members, groups in counts.items())
        squares = sum(members * members * groups for members, groups in counts.items())
        return counts.total(), memberships, squares, max(counts, default=0)

    def who(self, place: int) -> str:
        """Returns, for people, the binding that a place is now."""
        seat = self._seat_of_place[place]
        queue = self.queue(seat).decode() if seat != NOBODY else "nobody"
        return f"queue {queue}, key {self.key(self.group(place)).decode()}"

    # Coming and going

    def sit(self, seat: int) -> Sequence[int]:
        """Gives the seat to the next resident, with places in groups. Returns the places."""
        assert self._resident[seat] == NOBODY
        resident = self._away.popleft()
        self._resident[seat] = resident
        self._seat[resident] = seat
        for _ in range(self._places_wanted(seat)):
            self.join(seat)
        return self._places[seat]

    def join(self, seat: int) -> int:
        """Takes a free place in a group that the seat is not in, and returns it. Returns NOBODY if none was found."""
        for _ in range(PLACE_PICKS_MAX if self._free else 0):
            index = self._chance.randrange(len(self._free))
            place = self._free[index]
            group = self.group(place)
            if self.place_in(seat, group) == NOBODY:
                self._free[index] = self._free[-1]
                self._free.pop()
                self._take(seat, place, group)
                return place
        return NOBODY

    def pick_to_leave(self, seat: int) -> int:
        """Returns a place that the seat's resident leaves in mid-session; NOBODY if there is none."""
        places = self._places[seat]
        if not places:
            return NOBODY
        picked = places[self._chance.randrange(len(places))]
        if self._chance.random() < LEAVE_ANYWHERE_SHARE:
            return picked
        other = places[self._chance.randrange(len(places))]
        # Groups are numbered in order of size, and so are places.
        return max(picked, other)

    def leave(self, seat: int, place: int) -> None:
        """Gives a place back."""
        self._places[seat].remove(place)
        self._give(place)

    def stand_up(self, seat: int) -> None:
        """Frees the seat: its resident goes and gives all places back."""
        resident = self._resident[seat]
        assert resident != NOBODY
        for place in self._places[seat]:
            self._give(place)
        self._places[seat] = array("I")
        self._resident[seat] = NOBODY
        self._seat[resident] = NOBODY
        self._away.append(resident)

    def _places_wanted(self, seat: int) -> int:
        """Returns the places that a seat wants. One of two neighbouring seats gets as many more than the mean as the
        other gets less: in all exactly `memberships`."""
        mean = (seat + 1) * self.memberships // self.seats - seat * self.memberships // self.seats
        if seat | 1 >= self.seats:
            return mean
        more = (seat >> 1) % MEMBERSHIPS_SPREAD
        return max(1, mean + (more if seat & 1 else -more))

    def _take(self, seat: int, place: int, group: int) -> None:
        self._places[seat].append(place)
        self._seat_of_place[place] = seat
        if not self._members[group]:
            self.churn["founded"] += 1
        self._members[group] += 1

    def _give(self, place: int) -> None:
        group = self.group(place)
        self._free.append(place)
        self._seat_of_place[place] = NOBODY
        self._members[group] -= 1
        if not self._members[group]:
            self.churn["ended"] += 1
            if self._chance.random() < GROUP_ENDS_SHARE:
                self._generation[group] = (self._generation[group] + 1) & 0xFFFF
