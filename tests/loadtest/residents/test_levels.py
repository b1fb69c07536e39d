"""The verdict: each level can be missed, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from shoal_loadtest.residents.core.figures import Figures, Histogram, Point, thinned
from shoal_loadtest.residents.core.levels import Ended, levels
from shoal_loadtest.residents.core.load import load_at
from shoal_loadtest.residents.core.windows import FAULT_KINDS

LOAD = load_at(4)
ENDED = Ended(
    shape="steady",
    seconds=300,
    faults={},
    restarts=0,
    failures=0,
    online_share=1.0,
    present_share=1.0,
    moving_s=10,
    moved=500_000,
)


def good() -> Figures:
    figures = Figures()
    samples = {name: [5.0] * 1000 for name in ("bind", "unbind", "publish", "delivery")}
    churn = round(LOAD.membership_churn_per_s * 300 / 2)
    groups = round(LOAD.group_churn_per_s * 300 / 2)
    counts = {"binds": churn, "unbinds": churn, "founded": groups, "ended": groups, "deliveries": 9}
    figures.measured(samples, {**counts, "messages": round(LOAD.messages_per_s * 300)})
    return figures


def missed(figures: Figures, ended: Ended) -> list[str]:
    return [level.name for level in levels(LOAD, figures, ended) if not level.kept]


@pytest.mark.parametrize("shape", ["steady", "login-rush", "region-restart"])
def test_a_good_run_keeps_all(shape: str) -> None:
    assert missed(good(), replace(ENDED, shape=shape)) == []


@pytest.mark.parametrize("kind", FAULT_KINDS)
def test_one_fault_is_enough(kind: str) -> None:
    assert missed(good(), replace(ENDED, faults={kind: 1})) == [f"messages {kind}"]


def test_unmarked_repeats_are_no_fault_where_a_slice_restarted() -> None:
    assert missed(good(), replace(ENDED, faults={"doubled": 5}, restarts=1)) == []


@pytest.mark.parametrize("name", ["bind", "unbind", "publish", "delivery"])
def test_slow_calls_miss_their_level_unless_slack_is_given(name: str) -> None:
    figures = good()
    figures.measured({name: [400.0] * 20}, {})

    assert missed(figures, ENDED) == [f"{name} p99"]
    assert missed(figures, replace(ENDED, slack=10)) == []


CHANGES: dict[str, Callable[[Figures], None]] = {
    "messages": lambda figures: figures.counts.subtract({"messages": 2_000}),
    "membership churn": lambda figures: figures.counts.subtract({"binds": 40_000}),
    "group churn": lambda figures: figures.counts.subtract({"founded": 5_000}),
    "messages delivered": lambda figures: figures.counts.subtract({"deliveries": 9}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_rate_not_reached_misses_its_level(name: str) -> None:
    figures = good()
    CHANGES[name](figures)

    assert missed(figures, ENDED) == [name]


def test_failed_calls_absent_residents_and_slow_crowds_are_missed() -> None:
    assert missed(good(), replace(ENDED, failures=1)) == ["failed calls"]
    assert missed(good(), replace(ENDED, online_share=0.9)) == ["residents online"]
    assert missed(good(), replace(ENDED, shape="login-rush", moving_s=100)) == ["binds and unbinds of crowds"]


def test_who_is_away_says_nothing() -> None:
    figures = good()
    figures.counts["messages"] = figures.counts["messages"] * 8 // 10
    rush = replace(ENDED, shape="region-restart", present_share=0.8)

    assert missed(figures, rush) == []
    assert missed(figures, replace(rush, present_share=0.9)) == ["messages"]


def test_short_runs_may_scatter_but_not_stay_away() -> None:
    load = load_at(1)
    figures = Figures()
    short = replace(ENDED, seconds=10)

    def rate(messages: int) -> bool:
        figures.counts["messages"] = messages
        return next(level for level in levels(load, figures, short) if level.name == "messages").kept

    assert rate(60)  # Of 86 expected, whose deviation is 9.
    assert not rate(40)


def test_percentiles_are_exact_to_a_class() -> None:
    histogram = Histogram()
    histogram.add(float(value) for value in range(1, 1001))

    assert histogram.percentile_ms(50) == pytest.approx(500, rel=0.03)
    assert histogram.percentile_ms(99) == pytest.approx(990, rel=0.03)
    assert histogram.percentile_ms(100) == histogram.longest_ms == 1000
    assert Histogram().percentile_ms(99) == 0


def test_points_are_rates_and_percentiles_of_their_second() -> None:
    figures = Figures()
    figures.measured({"bind": [10.0]}, {"binds": 30})
    figures.point(2.0, {"residents online": 5.0})
    figures.measured({"bind": [20.0]}, {"binds": 30})
    figures.point(3.0, {})

    assert [point.value for point in figures.lines["binds/s"]] == [15, 30]
    assert [round(point.value) for point in figures.lines["bind p99"]] == [10, 20]
    assert figures.lines["residents online"] == [Point(2.0, 5.0)]


def test_thinned_lines_keep_their_peaks() -> None:
    points = [Point(float(number), 100.0 if number == 501 else 1.0) for number in range(1000)]

    assert len(thinned(points, 100)) == 100
    assert max(point.value for point in thinned(points, 100)) == 100
    assert thinned(points, 1000) == points
