"""Intervals cover the archive without a gap, and none is so little covered that its rate means nothing."""

from __future__ import annotations

import random

import pytest

from shoal_contract.errors import BadCall
from shoal_pipeline.census.interval import Grid, make_grid, parse_interval


def parts(grid: Grid) -> list[tuple[int, float]]:
    return [(grid.begin_ms(number), grid.seconds(number)) for number in range(grid.count)]


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "expected"),
    [
        (0, 61_000, [(0, 10.0), (10_000, 10.0), (20_000, 10.0), (30_000, 10.0), (40_000, 10.0), (50_000, 11.0)]),
        (0, 65_000, [*((n * 10_000, 10.0) for n in range(6)), (60_000, 5.0)]),
        (9_900, 35_000, [(0, 10.1), (20_000, 10.0), (30_000, 5.0)]),
        (5_000, 20_000, [(0, 5.0), (10_000, 10.0)]),
        (9_000, 11_000, [(0, 2.0)]),
        (9_999, 10_000, [(0, 1.0)]),
        (3_000, 3_018, [(0, 1.0)]),
    ],
)
def test_a_part_that_is_hardly_covered_belongs_to_its_neighbour(
    first_ms: int, last_ms: int, expected: list[tuple[int, float]]
) -> None:
    assert parts(Grid(first_ms, last_ms, 10_000)) == expected


def test_one_message_a_second_is_one_message_a_second_in_every_interval() -> None:
    grid = Grid(0, 61_000, 10_000)
    sent = [grid.number_of(second * 1_000) for second in range(62)]
    rates = [sent.count(number) / grid.seconds(number) for number in range(grid.count)]
    assert all(0.9 < rate < 1.2 for rate in rates), rates


def test_every_time_is_in_the_interval_that_covers_it() -> None:
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    for _ in range(2_000):
        first = chance.randrange(100_000)
        grid = Grid(first, first + chance.randrange(100_000), chance.choice((1_000, 7_000, 10_000, 60_000)))
        begins = [grid.begin_ms(number) for number in range(grid.count)]
        assert begins == sorted(set(begins)), seed
        covered = sum(grid.seconds(number) for number in range(grid.count))
        assert covered == pytest.approx((grid.last_ms - grid.first_ms) / 1000) or covered == 1, seed
        at = chance.randrange(grid.first_ms, grid.last_ms + 1)
        number = grid.number_of(at)
        assert begins[number] <= at or number == 0, seed
        assert number == grid.count - 1 or at < begins[number + 1], seed
        if grid.count > 1:
            least = min(grid.seconds(number) for number in range(grid.count))
            assert least >= grid.length_ms / 2000, seed


def test_times_of_another_clock_count_into_the_ends() -> None:
    grid = Grid(10_000, 40_000, 10_000)
    assert (grid.number_of(0), grid.number_of(99_000)) == (0, grid.count - 1)


def test_lengths_are_chosen_or_refused() -> None:
    assert make_grid(0, 3_600_000, None).length_ms == 60_000
    assert parse_interval("7d") == 604_800_000
    for text in ("0s", "10", "x", "-1m"):
        with pytest.raises(BadCall, match="needs a number"):
            parse_interval(text)
    with pytest.raises(BadCall, match="choose a longer one"):
        make_grid(0, 10_000_000, 1_000)
