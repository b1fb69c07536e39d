"""Who owned a partition when: from records of ownership, and as a join that does not grow with slices and versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from shoal_contract.partition_hash import partition_of
from shoal_pipeline.census.compute import take_census
from shoal_pipeline.census.ownership import FOR_EVER, Owned, Tenure, tenures
from shoal_pipeline.census.requests import read_rows

from .archives import SliceArchive, binds, declares

SLICES = 2
VERSIONS = 300
PARTITIONS = 16


def owned(name: str, lsn: int, *partitions: int) -> Owned:
    return Owned(name, lsn, frozenset(partitions))


def test_a_partition_is_held_from_the_record_that_names_it_to_the_one_that_does_not() -> None:
    records = [owned("s1", 1, 1, 2), owned("s1", 9, 2, 3), owned("s1", 20, 2, 3), owned("s1", 30, 1, 3)]
    assert sorted(tenures(records, frozenset())) == [
        Tenure("s1", 1, 1, 9),
        Tenure("s1", 1, 30, FOR_EVER),
        Tenure("s1", 2, 1, 30),
        Tenure("s1", 3, 9, FOR_EVER),
    ]


def test_an_incomplete_archives_first_word_holds_for_what_lies_before_it() -> None:
    records = [owned("s1", 50, 1), owned("s1", 60, 2), owned("s2", 50, 3)]
    assert list(tenures(records, frozenset({"s1"}))) == [
        Tenure("s1", 1, 0, 60),
        Tenure("s1", 2, 60, FOR_EVER),
        Tenure("s2", 3, 50, FOR_EVER),
    ]


def test_a_slice_that_owns_nothing_holds_nothing() -> None:
    assert list(tenures([owned("s1", 1)], frozenset())) == []


@pytest.mark.long
def test_a_census_of_hundreds_of_changes_of_owners_counts_what_each_owned(spark: SparkSession, tmp_path: Path) -> None:
    """Two keys go to and fro between slices; after each change both slices are asked to bind a new queue to both keys,
    one by one: each takes the one that it owns then."""
    keys = (b"key-0", b"key-1")
    places = [partition_of(key, PARTITIONS) for key in keys]
    assert places[0] != places[1]
    for index in range(SLICES):
        archive = SliceArchive(tmp_path, f"s{index}")
        for version in range(VERSIONS):
            owned_now = (version + index) % SLICES
            archive.own(version * 1_000, PARTITIONS, [places[owned_now]])
            queue = b"q-%d" % version
            archive.change(version * 1_000, declares(queue), *(binds(queue, key) for key in keys))
        archive.cut()
    census = take_census(read_rows(spark, str(tmp_path), {}), "archive", 86_400_000, lambda _: None)
    (figures,) = census.intervals
    assert (figures.memberships, figures.keys, figures.binds) == (SLICES * VERSIONS, len(keys), SLICES * VERSIONS)
    assert sorted((place.slice, place.partition) for place in census.places) == sorted(
        (f"s{index}", places[(VERSIONS - 1 + index) % SLICES]) for index in range(SLICES)
    )
