"""The population is what the evaluation measured, and the same every time."""

from __future__ import annotations

from collections import Counter

import pytest

from shoal_loadtest.limits import MEMBERSHIPS_PER_QUEUE, QUEUES_MIN
from shoal_loadtest.population import Population, key_name, queue_name


@pytest.mark.parametrize("queues", [QUEUES_MIN, 2_500, 20_000])
def test_every_queue_has_nine_different_keys(queues: int) -> None:
    population = Population(queues)

    for queue in range(queues):
        assert len(set(population.keys_of(queue))) == MEMBERSHIPS_PER_QUEUE


def test_group_sizes_follow_the_evaluation() -> None:
    population = Population(50_000)
    sizes = Counter(key for queue in range(population.queues) for key in population.keys_of(queue))

    assert len(sizes) == population.keys
    assert sum(sizes.values()) == population.memberships
    assert max(sizes.values()) == 785
    mean = population.memberships / population.keys
    deviation = (sum(size * size for size in sizes.values()) / len(sizes) - mean * mean) ** 0.5
    assert 4.2 < mean < 5.2
    assert 10 < deviation < 16


def test_names_are_distinct_and_36_characters() -> None:
    names = {*map(queue_name, range(20_000)), *map(key_name, range(20_000))}

    assert len(names) == 40_000
    assert {len(name) for name in names} == {36}


def test_same_queue_has_same_keys_in_every_process() -> None:
    assert Population(QUEUES_MIN).keys_of(7) == Population(QUEUES_MIN).keys_of(7)
    assert Population(QUEUES_MIN).keys_of(0)[0] == key_name(0)
