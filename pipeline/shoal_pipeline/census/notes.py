"""Makes the notes of a census about its archive: which figures lack something, and what was left out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shoal_pipeline.census.interval import Grid
from shoal_pipeline.limits import NOTE_SLICES_MAX

if TYPE_CHECKING:
    from shoal_pipeline.census.requests import Overview


def notes_of(overview: Overview, grid: Grid) -> Iterator[str]:
    for one in overview.spans:
        if one.first_lsn > 1:
            yield (
                f"the archive of slice {one.slice} begins at LSN {one.first_lsn}: memberships from before are unknown,"
                " and not counted"
            )
    yield from _early_ends(overview, grid)
    for name in sorted(overview.ownerless):
        yield f"slice {name} does not say which partitions it owns: all of its requests are counted"
    if overview.damaged:
        yield (
            f"damaged places in the archive: {overview.damaged:,}; records lost there: {overview.records_lost:,}, and"
            " more if the end of a segment is gone"
        )
    if overview.repeats:
        yield f"{overview.repeats:,} frames were sent again and are counted once"


def _early_ends(overview: Overview, grid: Grid) -> Iterator[str]:
    """Notes archives of slices that end early. Segments close when they are full or old, or when their node stops, so
    archives end at different times. This shows in the figures only where they end in different intervals."""
    early = [one for one in overview.spans if grid.number_of(one.last_ms) < grid.count - 1]
    if early:
        early.sort(key=lambda one: (one.last_ms, one.slice))
        named = ", ".join(f"{one.slice} at {shown_time(one.last_ms)}" for one in early[:NOTE_SLICES_MAX])
        more = f" and {len(early) - NOTE_SLICES_MAX} more" if len(early) > NOTE_SLICES_MAX else ""
        yield (
            f"archives end at different times: the last at {shown_time(overview.last_ms)} UTC, that of {named}{more};"
            " from there on figures lack what these slices did, if they did anything"
        )


def shown_time(at_ms: int) -> str:
    """Returns a time as people read it, in UTC."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
