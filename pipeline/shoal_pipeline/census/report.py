"""Writes the census as one page: it holds everything and fetches nothing, and is dark or light as the reader's system
is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from shoal_pipeline.census.load_table import load_table
from shoal_pipeline.census.notes import shown_time
from shoal_pipeline.census.outcome import Census, HotKey, PlaceFigures
from shoal_pipeline.census.plots import by_name, by_rank, over_time, short, size_histogram, svg
from shoal_pipeline.limits import BAR_NAMES_MAX, HOTTEST_PLACES

_PLACES = {"memberships": "most memberships", "churn": "most joins and leaves", "messages": "most messages"}
_HEAT = {"members": "most members", "churn": "most joins and leaves", "messages": "most messages"}


def report_page(census: Census) -> str:
    """Returns the page as HTML."""
    style = resources.files("shoal_pipeline.census").joinpath("report.css").read_text(encoding="utf-8")
    parts = [
        f"<h1>Census</h1><p class=lead>{_lead(census)}</p>",
        *(f"<p class=note>{escape(note)}</p>" for note in census.notes),
        f"<div class=wide>{_load(census)}</div>",
        "<h2>Over time</h2>",
        f"<div class=plots>{''.join(_time_plots(census))}</div>",
        "<h2>Group sizes</h2>",
        f"<div class=plots>{''.join(_size_plots(census))}</div>",
        "<h2>Hottest keys</h2><p class=lead>Members: the most a key had at any moment, so more than at an interval's"
        " end. Changes: its joins and leaves.</p>",
        f"<div class=tables>{''.join(_hot(census, by) for by in _HEAT)}</div>",
        "<h2>Where it lies</h2>",
        "<p class=lead>Keys and memberships as of the fullest interval's end, changes and messages over all.</p>",
        _places(census),
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Shoal census</title>'
        f"<style>{style}</style><main>{''.join(parts)}</main></html>\n"
    )


def _lead(census: Census) -> str:
    begin_ms, count = min(one.first_ms for one in census.slices), len(census.intervals)
    until = census.complete_until_ms
    complete = "" if until == census.last_ms else f"; all slices up to {shown_time(until)}"
    return (
        f"{escape(census.archive)}: {shown_time(begin_ms)} to {shown_time(census.last_ms)} UTC{complete}; {count:,}"
        f" {'interval' if count == 1 else 'intervals'} of {_length(census.interval_ms)}; fullest from"
        f" {shown_time(census.intervals[census.fullest].start_ms)}"
    )


def _load(census: Census) -> str:
    heads = ("", "fullest interval", "mean", "highest")
    rows = [(row.name, row.fullest, row.mean, row.highest) for row in load_table(census)]
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
    largest = ("largest", lambda one: one.size_max)
    yield svg("largest", over_time("Members of the largest key, at an interval's end", census, largest))


def _hot(census: Census, by: str) -> str:
    def cells(hot: HotKey) -> tuple[str, ...]:
        return hot.key, f"{hot.members_max:,}", f"{hot.churn:,}", f"{hot.messages:,}"

    keys = [hot for hot in census.hottest if hot.by == by]
    if not keys:
        return ""
    caption = f"<caption>{_HEAT[by]}</caption>"
    return _table(("key", "members", "changes", "messages"), [cells(hot) for hot in keys], caption)


def _places(census: Census) -> str:
    """Shows where the load is: plots, the hottest partitions by name, and how uneven it is."""
    if not census.places:
        return "<p class=note>the archive does not say which partitions there are</p>"
    slices: dict[str, int] = dict.fromkeys(sorted({place.slice for place in census.places}), 0)
    for place in census.places:
        slices[place.slice] += place.memberships
    over_slices = (
        by_name("Memberships by slice", slices)
        if len(slices) <= BAR_NAMES_MAX
        else by_rank("Memberships by slice", "slices", list(slices.values()))
    )
    memberships, churn = ([getattr(place, name) for place in census.places] for name in ("memberships", "churn"))
    plots = (
        svg("partitions", by_rank("Memberships by partition", "partitions", memberships)),
        svg("changes", by_rank("Joins and leaves by partition", "partitions", churn)),
        svg("slices", over_slices),
    )
    hot = "".join(_hot_places(census, figure) for figure in ("memberships", "churn", "messages"))
    return f"<div class=plots>{''.join(plots)}</div>{_skew(census)}<div class=tables>{hot}</div>"


def _skew(census: Census) -> str:
    rows = [
        (f"{skew.figure} over {skew.over}s", f"{skew.places:,}", short(skew.mean), short(skew.max),
         f"{skew.max_by_mean:.2f}", f"{skew.gini:.2f}")
        for skew in census.skews
    ]  # fmt: skip
    heads = ("", "places", "mean", "largest", "largest / mean", "Gini")
    return f"<div class=wide>{_table(heads, rows)}</div>"


def _hot_places(census: Census, figure: str) -> str:
    def cells(place: PlaceFigures) -> tuple[str, ...]:
        figures = (place.keys, place.memberships, place.churn, place.messages)
        return f"{place.partition} of {place.slice}", *(f"{one:,}" for one in figures)

    hot = [place for place in census.places if getattr(place, figure)]
    hot.sort(key=lambda place: (-getattr(place, figure), place.slice, place.partition))
    if not hot:
        return ""
    caption = f"<caption>partitions with {_PLACES[figure]}</caption>"
    heads = ("partition", "keys", "memberships", "changes", "messages")
    return _table(heads, [cells(place) for place in hot[:HOTTEST_PLACES]], caption)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _length(length_ms: int) -> str:
    for unit_ms, name in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second")):
        if length_ms % unit_ms == 0:
            count = length_ms // unit_ms
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{length_ms} ms"
