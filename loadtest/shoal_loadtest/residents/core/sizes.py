"""Computes how many places each group has: quantiles of a lognormal, cut off at the evaluation's largest group."""

from __future__ import annotations

from array import array
from math import floor, log
from statistics import NormalDist

from shoal_loadtest.residents.limits import (
    GROUP_SIZE_LOG_DEVIATION,
    GROUP_SIZE_LOG_MEAN,
    GROUP_SIZE_MAX,
    GROUPS_FOR_LARGEST,
)


def first_places(groups: int) -> array[int]:
    """Returns the first place of each group: group g has the places from item g to before item g + 1. Groups are in
    order of size. There are `groups` + 1 items."""
    sizes = NormalDist(GROUP_SIZE_LOG_MEAN, GROUP_SIZE_LOG_DEVIATION)
    lowest, highest = sizes.cdf(log(0.5)), sizes.cdf(log(GROUP_SIZE_MAX + 0.5))
    firsts = array("I", [0])
    place = group = 0
    for size in range(1, GROUP_SIZE_MAX + 1):
        below = (sizes.cdf(log(size + 0.5)) - lowest) / (highest - lowest)
        until = groups if size == GROUP_SIZE_MAX else floor(groups * below + 0.5)
        if until == groups and groups >= GROUPS_FOR_LARGEST and size < GROUP_SIZE_MAX:
            until -= 1
        count = until - group
        firsts.extend(range(place + size, place + size * count + 1, size))
        place += size * count
        group = until
    return firsts
