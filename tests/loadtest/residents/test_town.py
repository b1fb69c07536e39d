"""The population is the evaluation's, stays so while residents come and go, and is the same for the same seed."""

from __future__ import annotations

import random
from collections import Counter
from math import sqrt

import pytest

from shoal_loadtest.residents.core.load import Load, load_at, part_of
from shoal_loadtest.residents.core.names import group_of, key_name, queue_name, resident_of
from shoal_loadtest.residents.core.sessions import SESSION_S_MEAN
from shoal_loadtest.residents.core.town import NOBODY, Town
from shoal_loadtest.residents.limits import (
    GROUP_CHURN_PER_S,
    GROUP_SIZE_MAX,
    GROUPS,
    MEMBERSHIP_CHURN_PER_S,
    MEMBERSHIPS,
    RESIDENTS,
)

SMALL = 0.1


def peopled(load: Load, seed: int = 1, part: int = 0, parts: int = 1) -> Town:
    town = Town(load, random.Random(seed), part, parts)
    for seat in range(town.seats):
        town.sit(seat)
    return town


@pytest.fixture(scope="module")
def whole() -> Town:
    """Scale 1. Tests leave it as they found it, but for who sits where."""
    return peopled(load_at(1))


def test_population_has_the_evaluations_figures(whole: Town) -> None:
    groups, memberships, squares, largest = whole.sizes()
    mean = memberships / groups

    assert whole.seats == RESIDENTS
    assert memberships == MEMBERSHIPS
    assert groups == pytest.approx(GROUPS, rel=0.005)
    assert mean == pytest.approx(4.77, rel=0.01)
    assert sqrt(squares / groups - mean * mean) == pytest.approx(13.1, rel=0.02)
    assert GROUP_SIZE_MAX * 0.97 < largest <= GROUP_SIZE_MAX
    assert memberships / whole.seats == pytest.approx(9.3, abs=0.05)


def test_four_times_the_load_has_sizes_of_the_same_distribution() -> None:
    town = Town(load_at(4), random.Random(1))
    sizes = Counter(town.group(place) for place in range(town.places))
    mean = town.places / town.groups

    assert town.memberships == round(4 * MEMBERSHIPS)
    assert max(sizes.values()) == GROUP_SIZE_MAX
    assert mean == pytest.approx(4.8, rel=0.01)
    deviation = sqrt(sum(size * size for size in sizes.values()) / town.groups - mean * mean)
    assert deviation == pytest.approx(13.2, rel=0.02)


def test_group_churn_follows_from_membership_churn(whole: Town) -> None:
    """An hour's tenth of sessions ending and residents moving, in the proportions of the load."""
    load, source = load_at(1), random.Random(2)
    logins_per_s = load.residents / SESSION_S_MEAN
    whole.churn.clear()
    changes, seconds = 0, 360
    for _ in range(seconds):
        for _ in range(round(logins_per_s)):
            seat = source.randrange(whole.seats)
            changes += len(whole.places_of(seat))
            whole.stand_up(seat)
            changes += len(whole.sit(seat))
        for _ in range(round(load.moves_per_s)):
            seat = source.randrange(whole.seats)
            if (place := whole.pick_to_leave(seat)) != NOBODY:
                whole.leave(seat, place)
                changes += 1 + (whole.join(seat) != NOBODY)

    assert changes / seconds == pytest.approx(MEMBERSHIP_CHURN_PER_S, rel=0.05)
    assert sum(whole.churn.values()) / seconds == pytest.approx(GROUP_CHURN_PER_S, rel=0.05)
    assert whole.sizes()[1] == pytest.approx(MEMBERSHIPS, rel=0.001)


def test_nobody_is_twice_in_a_group() -> None:
    town = peopled(load_at(0.01))

    for seat in range(town.seats):
        groups = [town.group(place) for place in town.places_of(seat)]
        assert len(set(groups)) == len(groups)
        assert all(town.place_in(seat, group) in town.places_of(seat) for group in groups)
        assert town.seat_of(resident_of(town.queue(seat))) == seat


def test_same_seed_gives_the_same_town_and_another_gives_another() -> None:
    def told(town: Town) -> list[list[bytes]]:
        return [town.keys(town.places_of(seat)) for seat in range(town.seats)]

    assert told(peopled(load_at(0.01), seed=7)) == told(peopled(load_at(0.01), seed=7))
    assert told(peopled(load_at(0.01), seed=7)) != told(peopled(load_at(0.01), seed=8))


def test_leaving_and_standing_up_give_back_every_place() -> None:
    town = peopled(load_at(0.01))
    for seat in range(town.seats):
        town.stand_up(seat)

    assert town.sizes() == (0, 0, 0, 0)
    assert all(town.members(group) == [] for group in range(town.groups))
    for seat in range(town.seats):
        town.sit(seat)
    assert town.sizes()[1] == town.memberships


def test_a_group_that_ended_for_good_comes_back_under_another_name() -> None:
    town = peopled(load_at(0.01))
    before = [town.key(group) for group in range(town.groups)]
    for seat in range(town.seats):
        town.stand_up(seat)
    changed = [group for group in range(town.groups) if town.key(group) != before[group]]

    assert town.groups * 0.4 < len(changed) < town.groups * 0.6
    assert all(town.generation(group) == 1 for group in changed)


def test_who_logs_out_is_away_until_others_have_come() -> None:
    town = peopled(load_at(0.01))
    gone = resident_of(town.queue(3))
    town.stand_up(3)
    town.sit(3)

    assert resident_of(town.queue(3)) != gone
    assert town.seat_of(gone) == NOBODY


def test_parts_share_no_name() -> None:
    load = part_of(load_at(0.02), 2)
    towns = [peopled(load, part=part, parts=2) for part in (0, 1)]
    queues = [{town.queue(seat) for seat in range(town.seats)} for town in towns]
    keys = [{town.key(group) for group in range(town.groups)} for town in towns]

    assert not queues[0] & queues[1]
    assert not keys[0] & keys[1]
    assert towns[0].seat_of(resident_of(towns[1].queue(0))) == NOBODY
    assert towns[0].group_numbered(group_of(towns[1].key(0))[0]) == NOBODY


def test_names_are_36_characters_and_can_be_read_back() -> None:
    for number in (0, 1, 68_000 * 125):
        assert len(queue_name(number)) == len(key_name(number, 3)) == 36
        assert resident_of(queue_name(number)) == number
        assert group_of(key_name(number, 3)) == (number, 3)
