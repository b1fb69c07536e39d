"""What Locust is told to do, over time."""

from __future__ import annotations

import pytest

from shoal_loadtest.residents.core.shapes import SHAPES, stage_at
from shoal_loadtest.residents.limits import CROWDS


def crowds(shape: str, *elapsed_s: float) -> list[int | None]:
    stages = [stage_at(shape, elapsed, 100.0) for elapsed in elapsed_s]
    return [None if stage is None else stage.crowds for stage in stages]


def test_steady_keeps_everyone_until_the_end() -> None:
    assert crowds("steady", 0, 50, 99.9, 100) == [CROWDS, CROWDS, CROWDS, None]


def test_login_rush_brings_the_other_half() -> None:
    assert crowds("login-rush", 0, 19, 20, 99, 100) == [CROWDS // 2, CROWDS // 2, CROWDS, CROWDS, None]


def test_region_restart_sends_very_many_away_and_back_at_once() -> None:
    assert crowds("region-restart", 0, 19, 20, 39, 40, 99) == [CROWDS, CROWDS, 60, 60, CROWDS, CROWDS]
    stage = stage_at("region-restart", 20, 100.0)
    assert stage is not None
    assert stage.per_s >= CROWDS * 0.4


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_ends_with_everyone_and_never_wants_more_than_all(shape: str) -> None:
    assert [stage.at_share for stage in SHAPES[shape]] == sorted(stage.at_share for stage in SHAPES[shape])
    assert SHAPES[shape][0].at_share == 0
    assert SHAPES[shape][-1].crowds == CROWDS
    assert all(0 < stage.crowds <= CROWDS and stage.per_s > 0 for stage in SHAPES[shape])
