"""Computes which queue is a member of which key. Nothing is stored, so a hundred million memberships need no memory.

Belongs here: names and memberships as pure arithmetic. Not here: how they get into a slice (prepared.py).
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from math import gcd, log, sqrt
from statistics import NormalDist

from shoal_loadtest.limits import (
    GROUP_SIZE_DEVIATION,
    GROUP_SIZE_MAX,
    GROUP_SIZE_MEAN,
    MEMBERSHIPS_PER_QUEUE,
)

_GOLDEN = (sqrt(5) - 1) / 2
_SPREAD = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


class Population:
    """Computes a population of `queues` queues with nine memberships each, over keys whose sizes are lognormal with the
    evaluation's figures.

    The memberships of queue q have the numbers 9 q ... 9 q + 8. A golden-ratio step modulo their count maps numbers to
    places, which puts a queue's nine far apart. Places belong to keys in order of size. So both directions cost O(1)
    and no memory.
    """

    def __init__(self, queues: int) -> None:
        self.queues = queues
        self.memberships = queues * MEMBERSHIPS_PER_QUEUE
        counts = _keys_of_size(self.memberships)
        self.keys = sum(counts)
        self._first_places: list[int] = []
        self._first_keys: list[int] = []
        place = key = 0
        for size, count in enumerate(counts, 1):
            self._first_places.append(place)
            self._first_keys.append(key)
            place += size * count
            key += count
        assert place == self.memberships
        self._step = _coprime_near(int(self.memberships * _GOLDEN), self.memberships)

    def keys_of(self, queue: int) -> list[bytes]:
        """Returns the names of the nine keys of queue number `queue`."""
        first = queue * MEMBERSHIPS_PER_QUEUE
        return [self._key_at(number * self._step % self.memberships) for number in range(first, first + 9)]

    def _key_at(self, place: int) -> bytes:
        size = bisect_right(self._first_places, place)
        return key_name(self._first_keys[size - 1] + (place - self._first_places[size - 1]) // size)


def queue_name(number: int) -> bytes:
    """Returns a name of 36 characters that looks like a UUID; names are scattered, as real ones are."""
    return _name(number, 4)


def key_name(number: int) -> bytes:
    """Returns a name like those of `queue_name`, and never the same as one of them."""
    return _name(number, 5)


def _name(number: int, version: int) -> bytes:
    scattered = number * _SPREAD & _WORD
    digits = b"%016x" % scattered
    return b"%b-%b-%d%b-8000-%012x" % (digits[:8], digits[8:12], version, digits[12:15], number)


def _keys_of_size(memberships: int) -> list[int]:
    """Returns how many keys have 1, 2, ... members: together exactly `memberships`, with at least one key of the
    largest size."""
    variance = log(1 + (GROUP_SIZE_DEVIATION / GROUP_SIZE_MEAN) ** 2)
    sizes = NormalDist(log(GROUP_SIZE_MEAN) - variance / 2, sqrt(variance))
    keys = memberships / GROUP_SIZE_MEAN
    below = [0.0, *(sizes.cdf(log(size + 0.5)) for size in range(1, GROUP_SIZE_MAX)), 1.0]
    counts = [round(keys * (above - under)) for under, above in itertools.pairwise(below)]
    counts[-1] = max(1, counts[-1])
    over = sum(size * count for size, count in enumerate(counts, 1)) - memberships
    for size in range(GROUP_SIZE_MAX - 1, 1, -1):
        taken = min(counts[size - 1], max(0, over) // size)
        counts[size - 1] -= taken
        over -= taken * size
    counts[0] -= over
    assert counts[0] >= 0
    return counts


def _coprime_near(number: int, modulus: int) -> int:
    while gcd(number, modulus) != 1:
        number += 1
    return number
