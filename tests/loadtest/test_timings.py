"""Percentiles by nearest rank; stalls only while something is outstanding."""

from __future__ import annotations

import time
from array import array

from shoal_loadtest.timings import Timings, percentile


def test_percentile_is_nearest_rank() -> None:
    values = array("d", range(100, 0, -1))

    assert percentile(values, 0) == 1
    assert percentile(values, 50) == 51
    assert percentile(values, 99) == 100
    assert percentile(values, 100) == 100
    assert percentile(array("d"), 99) == 0


def test_idle_time_is_no_stall() -> None:
    timings = Timings()
    timings.begin()
    timings.answered(timings.sent())
    time.sleep(0.05)
    timings.answered(timings.sent())

    assert timings.stall_s < 0.04
    assert len(timings) == 2


def test_time_without_answers_is_a_stall() -> None:
    timings = Timings()
    timings.begin()
    first, second = timings.sent(), timings.sent()
    timings.answered(first)
    time.sleep(0.05)
    timings.answered(second)

    assert timings.stall_s >= 0.05


def test_only_the_counted_stretch_counts() -> None:
    timings = Timings()
    timings.answered(timings.sent())
    timings.begin()
    timings.answered(timings.sent())
    timings.end()
    timings.answered(timings.sent())

    assert len(timings) == 1
