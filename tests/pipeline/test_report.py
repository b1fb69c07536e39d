"""The census's page, of made figures: places have names, and a few large ones leave the others to be seen."""

from __future__ import annotations

import re

import pytest
from matplotlib.figure import Figure

from shoal_pipeline.census.load_table import load_table
from shoal_pipeline.census.outcome import Census, HotKey, IntervalFigures, PlaceFigures, SliceSpan
from shoal_pipeline.census.plots import by_name, by_rank, short
from shoal_pipeline.census.report import report_page

PARTITIONS = 4096


def census() -> Census:
    """Two slices; one partition has nearly everything, as real data has it."""
    figures = IntervalFigures(0, 60.0, 900, 40, 6_000, 150.0, 9.5, 1_320, 70, 50, 3, 2, 3_210, 99_000)
    places = [PlaceFigures(f"s0{1 + number % 2}", number, 1, 2, 3, 4) for number in range(0, PARTITIONS, 64)]
    places += [PlaceFigures("s02", 77, 5, 1_276, 900, 800)]
    empty = [PlaceFigures("s01", number, 0, 0, 0, 0) for number in range(PARTITIONS - len(places))]
    spans = (SliceSpan("s01", 0, 60_000, 1), SliceSpan("s02", 0, 60_000, 1))
    hottest = (HotKey("members", 1, "room", 1_773, 1_320, 20, 30, 40),)
    return Census("archive", 60_000, spans, (figures,), 0, (), hottest, (*places, *empty), (), ())


def test_places_are_named_hottest_first() -> None:
    page = report_page(census())
    tables = [re.findall(r"<td>([^<]*)</td>", table) for table in re.findall(r"<table>(?:(?!<table>).)*", page)]
    hottest = [table[0] for table in tables if table and table[0].endswith(" of s02")]
    assert hottest == ["77 of s02"] * 3, "by memberships, by changes, by messages"
    plot = page[page.index("Memberships by slice") - 20_000 :]
    assert ">s01<" in plot and ">s02<" in plot
    assert "evaluation" not in page.lower()


def test_a_few_large_places_leave_the_others_to_be_seen() -> None:
    axes = Figure().add_subplot()
    by_rank("Memberships by partition", "partitions", [place.memberships for place in census().places])(axes)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert "4,031 of 4,096 have none" in axes.get_xlabel()
    axes = Figure().add_subplot()
    by_name("Memberships by slice", {"s01": 62, "s02": 1_340})(axes)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["s01", "s02"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3210.5, "3,210"),
        (3200, "3,200"),
        (11_500, "11.5k"),
        (999_900, "1,000k"),
        (1_234_567, "1.23M"),
        (0.01234, "0.0123"),
    ],
)
def test_numbers_are_written_in_one_way(value: float, shown: str) -> None:
    assert short(value) == shown


def test_two_figures_of_the_largest_group_say_of_when_they_are() -> None:
    (row,) = [row for row in load_table(census()) if row.name.startswith("group size, largest")]
    assert (row.name, row.highest) == ("group size, largest at an interval's end", "1,320")
    assert "the most a key had at any moment" in report_page(census())
