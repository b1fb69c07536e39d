"""Draws the plots of a census as SVG for a page. Matplotlib draws in stand-in colours, which the page's style replaces.

Text stays text. Belongs here: what is drawn. Not here: the page (report.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from shoal_pipeline.census.outcome import Census, IntervalFigures, SizeCount
from shoal_pipeline.limits import MARKED_POINTS_MAX, UPRIGHT_NAMES_MAX

_COLOURS = {
    "#010101": "var(--ink)",
    "#020202": "var(--faint)",
    "#030303": "var(--first)",
    "#040404": "var(--second)",
    "#050505": "var(--grid)",
}
INK, FAINT, FIRST, SECOND, GRID = _COLOURS
_FONT = "DejaVu Sans"  # matplotlib's own font, to measure text; the page uses the reader's
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "font.family": _FONT,
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": GRID,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "ytick.left": False,
    "lines.linewidth": 1.8,
}
Figures = Callable[[IntervalFigures], float]
Draw = Callable[[Axes], None]


def svg(name: str, draw: Draw, width: float = 5.6, height: float = 2.5) -> str:
    """Returns one plot as SVG. `name` keeps its ids apart from those of the page's other plots. Sizes are in inches of
    72 points."""
    style: Any = {**_STYLE, "svg.hashsalt": name}
    with mpl.rc_context(style):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        target = StringIO()
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    found = target.getvalue()
    text = found[found.index("<svg") :]
    for colour, variable in _COLOURS.items():
        text = text.replace(colour, variable)
    text = text.replace(f"'{_FONT}'", "system-ui")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    return re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img">', text, count=1)


def over_time(title: str, census: Census, *lines: tuple[str, Figures]) -> Draw:
    """Returns a plot of one or two lines; of two, each has a name. The time in which not all slices are archived is
    shaded."""
    times = [_moment(figures.start_ms) for figures in census.intervals]
    marker = "o" if len(times) <= MARKED_POINTS_MAX else ""
    complete, last = _moment(census.complete_until_ms), _moment(census.last_ms)
    shaded = complete < times[-1]

    def draw(axes: Axes) -> None:
        for (name, figure), colour in zip(lines, (FIRST, SECOND), strict=False):
            values = [figure(figures) for figures in census.intervals]
            axes.plot(times, values, color=colour, label=name, marker=marker, markersize=3)  # type: ignore[arg-type]
        if shaded:
            axes.axvspan(complete, last, color=GRID, linewidth=0, zorder=0)  # type: ignore[arg-type]
        axes.set_title(title)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(short))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        _time_axis(axes, times)
        if len(lines) > 1:
            _legend(axes)

    return draw


def _time_axis(axes: Axes, times: Sequence[datetime]) -> None:
    """Sets up the time axis. A single moment gets a label: matplotlib finds no ticks around it, and warns about
    that."""
    if len(times) == 1:
        axes.set_xticks(times, [f"{times[0]:%Y-%m-%d %H:%M:%S}"])  # type: ignore[arg-type]
        return
    locator = AutoDateLocator(maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def size_histogram(title: str, sizes: Sequence[SizeCount]) -> Draw:
    """Returns a histogram of the sizes of one interval."""

    def draw(axes: Axes) -> None:
        names = [
            f"{one.size_from}" if one.size_from == one.size_to else f"{one.size_from}-{one.size_to}" for one in sizes
        ]
        bars = axes.bar(names, [one.keys for one in sizes], color=FIRST, width=0.8)
        axes.bar_label(bars, [short(one.keys) for one in sizes], padding=2, fontsize=9)
        axes.set_title(title)
        axes.set_xlabel("members")
        axes.margins(y=0.15)
        axes.yaxis.set_major_formatter(FuncFormatter(short))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        if len(names) > 8:
            axes.tick_params(axis="x", labelsize=8)

    return draw


def by_rank(title: str, label: str, values: Sequence[int]) -> Draw:
    """Returns a plot of the places that are not empty, largest first, with the mean of all as a line. Both axes are
    logarithmic: next to a few places with a thousand times the mean, nothing else could be seen."""

    def draw(axes: Axes) -> None:
        ordered = [value for value in sorted(values, reverse=True) if value]
        empty = len(values) - len(ordered)
        axes.step(range(1, len(ordered) + 1), ordered, where="mid", color=FIRST, marker="o", markersize=2)
        if ordered:
            axes.axhline(sum(values) / len(values), color=SECOND, label="mean of all")
            axes.set_xscale("log")
            axes.set_yscale("log")
            _legend(axes)
        axes.set_title(title)
        axes.set_xlabel(f"{label}, largest first; {empty:,} of {len(values):,} have none" if empty else label)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(short))
            axis.set_minor_formatter(NullFormatter())

    return draw


def by_name(title: str, values: Mapping[str, int]) -> Draw:
    """Returns a plot with a bar for each place, by its name, and the mean as a line."""

    def draw(axes: Axes) -> None:
        axes.bar(list(values), list(values.values()), color=FIRST, width=0.8)
        axes.axhline(sum(values.values()) / len(values), color=SECOND, label="mean")
        axes.set_title(title)
        axes.yaxis.set_major_formatter(FuncFormatter(short))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        if len(values) > UPRIGHT_NAMES_MAX:
            axes.tick_params(axis="x", labelsize=8, labelrotation=90)
        _legend(axes)

    return draw


def _moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def _legend(axes: Axes) -> None:
    """Puts the legend beside the title, where no line is."""
    shape: dict[str, Any] = {"frameon": False, "fontsize": 9, "ncols": 2, "handlelength": 1.2, "columnspacing": 1.0}
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2, **shape)


def short(value: float, _: object = None) -> str:
    """Returns 1234567 as 1.23M, 3210.5 as 3,210, 0.01234 as 0.0123."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            scale = 1e3 if name == "k" else unit
            return f"{value / scale:.3g}{name}" if abs(value) / scale < 999.5 else f"{value / scale:,.0f}{name}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
