"""Draws the course of a storm: what is answered each moment, what is still bound, and what the others notice of it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shoal_loadtest.limits import STORM_PLOT_BIN_S
from shoal_loadtest.storm import DROPS, UNBINDS, Course
from shoal_loadtest.timings import percentile_of

_STORMS = {UNBINDS: "#4c78a8", DROPS: "#e45756"}
_OTHERS, _QUIET_LINE = "#555555", "#999999"


def plot(course: Course, path: Path) -> None:
    """Writes the picture; `path`'s ending says its form (.png, .svg)."""
    figure = Figure(figsize=(10, 7.5), layout="constrained")
    rates, bound, latencies = figure.subplots(3, 1, sharex=True)
    zero_s = next(iter(course.phases.values()))
    _rates(rates, course, zero_s)
    _bindings(bound, course, zero_s)
    _latencies(latencies, course, zero_s)
    for axes in (rates, bound, latencies):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(0, course.end_s - zero_s)
        for phase, color in _STORMS.items():
            begin_s, end_s = course.span(phase)
            axes.axvspan(begin_s - zero_s, end_s - zero_s, color=color, alpha=0.15, linewidth=0)
    latencies.set_xlabel("seconds")
    figure.savefig(path, dpi=110)


def _rates(axes: Axes, course: Course, zero_s: float) -> None:
    for phase, color in _STORMS.items():
        begin_s, end_s = course.span(phase)
        sums: defaultdict[int, int] = defaultdict(int)
        for at_s, operations in course.answers:
            if begin_s <= at_s <= end_s:
                sums[int((at_s - zero_s) / STORM_PLOT_BIN_S)] += operations
        places = sorted(sums)
        axes.bar(
            [place * STORM_PLOT_BIN_S for place in places],
            [sums[place] / STORM_PLOT_BIN_S / 1000 for place in places],
            width=STORM_PLOT_BIN_S,
            align="edge",
            color=color,
            label=f"{phase}, {end_s - begin_s:.2f} s",
        )
    axes.set_ylabel("acknowledged,\n1,000 a second")
    axes.legend(frameon=False)


def _bindings(axes: Axes, course: Course, zero_s: float) -> None:
    axes.plot(
        [look.at_s - zero_s for look in course.looks], [look.bindings / 1e6 for look in course.looks], color=_OTHERS
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("bindings kept,\nmillions")


def _latencies(axes: Axes, course: Course, zero_s: float) -> None:
    """Draws each publish as a point, and the p99 of each second as a line."""
    bins: defaultdict[int, list[float]] = defaultdict(list)
    for due_s, late_s in course.publishes:
        bins[int(due_s - zero_s)].append(late_s * 1000)
    axes.plot(
        [due_s - zero_s for due_s, _ in course.publishes],
        [late_s * 1000 for _, late_s in course.publishes],
        ".",
        markersize=2,
        color=_QUIET_LINE,
        label="each publish of others",
    )
    seconds = sorted(bins)
    axes.step(
        seconds,
        [percentile_of(bins[second], 99) for second in seconds],
        where="post",
        color=_OTHERS,
        label="p99 of each second",
    )
    axes.set_yscale("log")
    axes.set_ylabel("latency, ms")
    axes.legend(frameon=False)
