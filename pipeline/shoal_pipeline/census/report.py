"""The census as one page: everything in it, nothing fetched, dark or light as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources

from shoal_pipeline.census.load_table import load_table
from shoal_pipeline.census.outcome import Census, HotKey
from shoal_pipeline.census.plots import by_place, over_time, short, size_histogram, svg

_HEAT = {"members": "most members", "churn": "most joins and leaves", "messages": "most messages"}


def report_page(census: Census) -> str:
    """HTML."""
    style = resources.files("shoal_pipeline.census").joinpath("report.css").read_text(encoding="utf-8")
    parts = [
        f"<h1>Census</h1><p class=lead>{_lead(census)}</p>",
        *(f"<p class=note>{escape(note)}</p>" for note in census.notes),
        f"<div class=wide>{_load(census)}</div>",
        "<h2>Over time</h2>",
        f"<div class=plots>{''.join(_time_plots(census))}</div>",
        "<h2>Group sizes</h2>",
        f"<div class=plots>{''.join(_size_plots(census))}</div>",
        "<h2>Hottest keys</h2><p class=lead>Members: the most a key had. Changes: its joins and leaves.</p>",
        f"<div class=tables>{''.join(_hot(census, by) for by in _HEAT)}</div>",
        "<h2>Skew</h2>",
        _skew(census),
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Shoal census</title>'
        f"<style>{style}</style><main>{''.join(parts)}</main></html>\n"
    )


def _lead(census: Census) -> str:
    first, last = census.intervals[0], census.intervals[-1]
    end_ms = last.start_ms + census.interval_ms
    return (
        f"{escape(census.archive)}: {_time(first.start_ms)} to {_time(end_ms)} UTC in {len(census.intervals):,}"
        f" {'interval' if len(census.intervals) == 1 else 'intervals'} of {_length(census.interval_ms)}; fullest from"
        f" {_time(census.intervals[census.fullest].start_ms)}"
    )


def _load(census: Census) -> str:
    heads = ("", "fullest interval", "mean", "highest", "the evaluation's")
    rows = [(row.name, row.fullest, row.mean, row.highest, row.evaluation) for row in load_table(census)]
    return _table(heads, rows)


def _time_plots(census: Census) -> Iterable[str]:
    yield svg("online", over_time("Online queues", census, ("queues", lambda one: one.online_queues)))
    yield svg("memberships", over_time("Memberships", census, ("memberships", lambda one: one.memberships)))
    yield svg("keys", over_time("Keys in use", census, ("keys", lambda one: one.keys)))
    joins = ("joins", lambda one: one.binds / one.seconds), ("leaves", lambda one: one.unbinds / one.seconds)
    yield svg("churn", over_time("Membership churn per second", census, *joins))
    keys = (
        ("first member", lambda one: one.keys_begun / one.seconds),
        (
            "last member gone",
            lambda one: one.keys_ended / one.seconds,
        ),
    )
    yield svg("groups", over_time("Group churn per second", census, *keys))
    yield svg("messages", over_time("Messages per second", census, ("messages", lambda one: one.messages_per_s)))


def _size_plots(census: Census) -> Iterable[str]:
    sizes = [size for size in census.sizes if size.number == census.fullest]
    if sizes:
        yield svg("sizes", size_histogram("Keys by members, in the fullest interval", sizes))
    mean = ("mean", lambda one: one.size_mean), ("deviation", lambda one: one.size_stddev)
    yield svg("mean", over_time("Members of a key: mean and deviation", census, *mean))
    yield svg("largest", over_time("Members of the largest key", census, ("largest", lambda one: one.size_max)))


def _hot(census: Census, by: str) -> str:
    def cells(hot: HotKey) -> tuple[str, ...]:
        return hot.key, f"{hot.members_max:,}", f"{hot.churn:,}", f"{hot.messages:,}"

    keys = [hot for hot in census.hottest if hot.by == by]
    if not keys:
        return ""
    caption = f"<caption>{_HEAT[by]}</caption>"
    return _table(("key", "members", "changes", "messages"), [cells(hot) for hot in keys], caption)


def _skew(census: Census) -> str:
    if not census.places:
        return "<p class=note>the archive does not say which partitions there are</p>"
    rows = [
        (f"{skew.figure} over {skew.over}s", f"{skew.places:,}", short(skew.mean), short(skew.max),
         f"{skew.max_by_mean:.2f}", f"{skew.gini:.2f}")
        for skew in census.skews
    ]  # fmt: skip
    heads = ("", "places", "mean", "largest", "largest / mean", "Gini")
    slices: dict[str, int] = {}
    for place in census.places:
        slices[place.slice] = slices.get(place.slice, 0) + place.memberships
    plots = (
        svg("partitions", by_place("Memberships by partition", "partitions, largest first",
                                   [place.memberships for place in census.places])),
        svg("changes", by_place("Joins and leaves by partition", "partitions, largest first",
                                [place.churn for place in census.places])),
        svg("slices", by_place("Memberships by slice", "slices, largest first", list(slices.values()))),
    )  # fmt: skip
    return f"<div class=plots>{''.join(plots)}</div><div class=wide>{_table(heads, rows)}</div>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _length(length_ms: int) -> str:
    for unit_ms, name in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second")):
        if length_ms % unit_ms == 0:
            count = length_ms // unit_ms
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{length_ms} ms"
