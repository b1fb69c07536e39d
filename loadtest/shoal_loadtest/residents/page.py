"""Writes the report page: verdict, figures and plots over time as SVG, in one HTML file that needs no other."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, log10
from pathlib import Path

from shoal_loadtest.residents.core.figures import Figures, Point, thinned
from shoal_loadtest.residents.limits import POINTS_MAX
from shoal_loadtest.residents.summary import Summary

_PLOTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("Memberships", "per second", ("binds/s", "unbinds/s")),
    ("Groups", "per second", ("founded/s", "ended/s")),
    ("Messages sent", "per second", ("messages/s",)),
    ("Deliveries", "per second", ("deliveries/s",)),
    ("Residents", "online", ("residents online", "residents wanted")),
    ("Bind and unbind", "ms", ("bind p50", "bind p99", "unbind p50", "unbind p99")),
    ("Publish, from the moment due to the receipt", "ms", ("publish p50", "publish p99")),
    ("Delivery, from the moment due to arrival", "ms", ("delivery p50", "delivery p99")),
    ("CPU", "% of a core", ("slices CPU %", "generators CPU %", "locust CPU %", "redirector CPU %")),
    ("Memory", "MB resident", ("slices MB", "generators MB", "locust MB", "redirector MB")),
)
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#ff7f0e")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 560, 220, 64, 24
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1180px; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; } td, th { padding: .2em .8em .2em 0; text-align: left; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } .kept { color: #1a7f37; } .missed { color: #b3261e; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(520px, 1fr)); gap: 1em; }
figure { margin: 0; } figcaption { font-weight: 600; } svg { width: 100%; height: auto; }
text { font-size: 11px; fill: currentColor; } .axis { stroke: currentColor; opacity: .25; }
@media (prefers-color-scheme: dark) { body { background: #16181c; color: #ddd; } }
"""


def write_page(path: Path, summary: Summary, figures: Figures) -> None:
    plots = "".join(_figure(title, unit, names, figures) for title, unit, names in _PLOTS)
    head = f"Shoal load test: scale {summary.setting.scale:g}, {escape(summary.setting.shape)}"
    path.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{head}</title><style>{_STYLE}</style>'
        f"<h1>{head}: {_mark(summary.passed, 'passed', 'failed')}</h1>{_people(summary)}{_levels(summary)}"
        f"<div class=plots><div>{_latencies(summary)}</div><div>{_usage(summary)}</div></div>"
        f"<div class=plots>{plots}</div>"
        '<p>Locust\'s own report of the same run: <a href="locust.html">locust.html</a>; all figures:'
        ' <a href="summary.json">summary.json</a>.</p></html>\n',
        encoding="utf-8",
    )


def _people(summary: Summary) -> str:
    people = summary.population
    return (
        f"<p>{people.residents:,} residents online, {people.groups:,} groups, {people.memberships:,} memberships; group"
        f" sizes mean {people.group_size_mean}, deviation {people.group_size_deviation}, largest"
        f" {people.group_size_max}. Warm-up {summary.warm_up_s:g} s, then measured for {summary.measured_s:g} s."
        f" {people.consumed_share:.1%} of the residents checked {summary.checked:,} messages;"
        f" {summary.redelivered:,} were marked repeats; slices started again: {summary.restarts}.</p>"
    )


def _levels(summary: Summary) -> str:
    rows = [f"<tr><td>{escape(text)}<td>{_mark(kept, 'kept', 'missed')}" for text, kept in summary.levels]
    told = [*summary.cases, *summary.failures, *([summary.broken] if summary.broken else [])]
    problems = "".join(f"<li class=missed>{escape(problem)}" for problem in told)
    return f"<h2>Service levels</h2><table>{''.join(rows)}</table><ul>{problems}</ul>"


def _latencies(summary: Summary) -> str:
    rows = []
    for name, latency in summary.latencies.items():
        values = "".join(f"<td class=n>{value:,.1f}" for value in latency.percentiles_ms.values())
        rows.append(f"<tr><td>{escape(name)}<td class=n>{latency.count:,}{values}<td class=n>{latency.longest_ms:,.1f}")
    head = "<tr><th>ms<th>count<th>p50<th>p95<th>p99<th>p99.9<th>longest"
    return f"<h2>Latencies</h2><table>{head}{''.join(rows)}</table>"


def _usage(summary: Summary) -> str:
    rows = [
        f"<tr><td>{escape(name)}<td class=n>{used.mean:,.0f}<td class=n>{used.peak:,.0f}"
        for name, used in summary.usage.items()
    ]
    head = "<tr><th>CPU: 100 is a core; MB resident<th>mean<th>peak"
    return f"<h2>Processes</h2><table>{head}{''.join(rows)}</table>"


def _mark(good: bool, yes: str, no: str) -> str:
    return f"<span class={'kept' if good else 'missed'}>{yes if good else no}</span>"


def _figure(title: str, unit: str, names: Sequence[str], figures: Figures) -> str:
    lines = [(name, thinned(figures.lines[name], POINTS_MAX)) for name in names if figures.lines.get(name)]
    if not lines:
        return ""
    top = _round_up(max(1e-9, *(point.value for _, points in lines for point in points)))
    end_s = max(1e-9, *(point.at_s for _, points in lines for point in points))
    drawn = "".join(_line(points, top, end_s, colour) for (_, points), colour in zip(lines, _COLOURS, strict=False))
    legend = "".join(
        f'<text x="{_LEFT + 130 * index}" y="12" style="fill:{colour}">{escape(name)}</text>'
        for index, ((name, _), colour) in enumerate(zip(lines, _COLOURS, strict=False))
    )
    caption = f"<figcaption>{escape(title)} ({escape(unit)})</figcaption>"
    return f'<figure>{caption}<svg viewBox="0 0 {_WIDTH} {_HEIGHT}">{_axes(top, end_s)}{drawn}{legend}</svg></figure>'


def _axes(top: float, end_s: float) -> str:
    drawn = []
    for part in (0, 0.5, 1):
        y = _y(top * part, top)
        drawn.append(f'<line class=axis x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_tick(top * part)}</text>')
        x = _x(end_s * part, end_s)
        anchor = {0: "start", 0.5: "middle", 1: "end"}[part]
        drawn.append(f'<text x="{x:.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{end_s * part:,.0f} s</text>')
    return "".join(drawn)


def _round_up(value: float) -> float:
    """Returns the next higher number that reads well on an axis."""
    unit = 10.0 ** floor(log10(value))
    return next(step * unit for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * unit >= value)


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _line(points: Sequence[Point], top: float, end_s: float, colour: str) -> str:
    path = " ".join(f"{_x(point.at_s, end_s):.1f},{_y(point.value, top):.1f}" for point in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.3"/>'


def _x(at_s: float, end_s: float) -> float:
    return _LEFT + (_WIDTH - _LEFT) * at_s / end_s


def _y(value: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - 20) * value / top
