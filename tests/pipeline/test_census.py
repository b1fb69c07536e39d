"""The census against counts made without Spark: over years in an archive made here, and of a real cluster's life."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import BadCall, Conflict
from shoal_local.cluster import LocalCluster
from shoal_ops.replay.run import Replay
from shoal_ops.replay.run import Source as ReplaySource
from shoal_pipeline.census import job
from shoal_pipeline.census.compute import take_census
from shoal_pipeline.census.outcome import Census
from shoal_pipeline.census.report import report_page
from shoal_pipeline.census.requests import read_rows
from tests.folders import NewFolder

from .archives import SliceArchive, binds, declares, drops, publishes, unbinds
from .real_events import (
    CHURN,
    DATA,
    PARTITIONS,
    SLICES,
    Count,
    channel_events,
    churn_events,
    count,
    slice_of,
    write_archive,
)

QUARTER_MS = 90 * 86_400_000
JOB_S = 400
"""A job of its own starts a JVM: seconds, or minutes where many others work."""

pytestmark = pytest.mark.timeout(JOB_S + 50)


def census_of(spark: SparkSession, root: Path, interval_ms: int) -> Census:
    return take_census(read_rows(spark, str(root), {}), str(root), interval_ms, lambda _: None)


def size_classes(members: dict[bytes, set[bytes]]) -> dict[tuple[int, int], int]:
    found: Counter[tuple[int, int]] = Counter()
    for size in map(len, members.values()):
        low, high = 1, 1
        while size > high:
            low, high = high + 1, 2 * high
        found[low, high] += size > 0
    return {bounds: keys for bounds, keys in found.items() if keys}


@pytest.fixture(scope="module")
def years(spark: SparkSession, module_folder: NewFolder) -> tuple[Census, Count]:
    """Eight years of real memberships, a quarter an interval, in two slices' archives."""
    root = module_folder("years")
    events = list(churn_events())
    write_archive(root, events)
    census = census_of(spark, root, QUARTER_MS)
    return census, count(events, [one.start_ms for one in census.intervals])


def test_every_interval_equals_the_plain_count(years: tuple[Census, Count]) -> None:
    census, plain = years
    assert len(census.intervals) == len(plain.intervals) > 30
    for number, figures in enumerate(census.intervals):
        expected = asdict(plain.intervals[number])
        assert {name: getattr(figures, name) for name in expected} == pytest.approx(expected), f"interval {number}"
        assert figures.start_ms % QUARTER_MS == 0
        assert QUARTER_MS / 2000 <= figures.seconds <= QUARTER_MS * 3 / 2000
    middle = census.intervals[5]
    assert middle.seconds == QUARTER_MS / 1000
    assert middle.membership_churn_per_s == pytest.approx((middle.binds + middle.unbinds) / middle.seconds)
    assert middle.groups_per_resident == pytest.approx(middle.memberships / middle.online_queues)
    assert census.intervals[census.fullest].memberships == max(one.memberships for one in census.intervals)
    assert any("sent again" in note for note in census.notes)


def test_the_size_histogram_equals_the_plain_count(years: tuple[Census, Count]) -> None:
    census, plain = years
    last = len(census.intervals) - 1
    sizes = {(size.size_from, size.size_to): size.keys for size in census.sizes if size.number == last}
    assert sizes == size_classes(plain.members)


def test_the_hottest_keys_are_those_of_the_plain_count(years: tuple[Census, Count]) -> None:
    census, plain = years
    for by, counts in (("members", plain.members_max), ("churn", plain.churn), ("messages", plain.messages)):
        hottest = [hot for hot in census.hottest if hot.by == by]
        expected = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: len(hottest)]
        assert [hot.key.encode() for hot in hottest] == [key for key, _ in expected]
        assert [hot.rank for hot in hottest] == list(range(1, 21))
        for hot in hottest:
            key = hot.key.encode()
            assert hot.members_max == plain.members_max[key]
            assert (hot.members, hot.churn, hot.messages) == (
                len(plain.members[key]),
                plain.churn[key],
                plain.messages[key],
            )


def test_partitions_and_slices_add_up_and_their_skew_is_told(years: tuple[Census, Count]) -> None:
    census, plain = years
    assert len(census.places) == PARTITIONS
    churn: Counter[tuple[str, int]] = Counter()
    for group, changes in plain.churn.items():
        churn[SLICES[slice_of(group)], crc32(group) % PARTITIONS] += changes
    assert {(place.slice, place.partition): place.churn for place in census.places if place.churn} == dict(churn)
    assert sum(place.memberships for place in census.places) == census.intervals[census.fullest].memberships
    skew = next(skew for skew in census.skews if (skew.over, skew.figure) == ("partition", "churn"))
    assert skew.max_by_mean == pytest.approx(max(churn.values()) / (sum(churn.values()) / PARTITIONS))
    values = [churn[place.slice, place.partition] for place in census.places]
    pairs = sum(abs(one - other) for one in values for other in values)
    assert skew.gini == pytest.approx(pairs / (2 * PARTITIONS * sum(values)))


async def _life(folder: Path, archive: Path) -> None:
    """Real chat and churn through real processes; the memberships stay; then a clean stop."""
    sources = [ReplaySource(DATA / "linux-channel.events.tsv.gz"), ReplaySource(CHURN, publish_after_churn=True)]
    async with LocalCluster(folder, slices=2, archive=archive) as cluster:
        report = await Replay(cluster.redirector, sources, keep=True).run()
    assert report.mismatches == 0


@pytest.fixture(scope="module")
def life(module_folder: NewFolder) -> Path:
    folder = module_folder("life")
    asyncio.run(asyncio.wait_for(_life(folder / "cluster", folder / "archive"), 150))
    return folder


def _whole(found: dict[str, Any]) -> dict[str, Any]:
    """Stocks of the last interval, sums of what happened: the same if the run met the end of an interval."""
    last: dict[str, Any] = found["intervals"][-1]
    flows = ("binds", "unbinds", "keys_begun", "keys_ended", "messages", "message_bytes")
    return last | {name: sum(interval[name] for interval in found["intervals"]) for name in flows}


def _java_light() -> dict[str, str]:
    """A short job need not be compiled for long."""
    return os.environ | {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1", "PYSPARK_PYTHON": sys.executable}


def _run(*command: str) -> tuple[int, str, str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_S, env=_java_light(), check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.long
def test_the_census_of_a_real_cluster_equals_the_counts_of_the_event_files(life: Path, tmp_path: Path) -> None:
    out, report = tmp_path / "out", tmp_path / "report.html"
    command = [sys.executable, "-m", "shoal_ops", "pipeline", "census", str(life / "archive"), "--json"]
    code, text, told = _run(*command, "--interval", "365d", "--out", str(out), "--report", str(report))
    assert code == 0, told
    assert "replaying joins and leaves" in told
    others = [line for line in told.splitlines() if not line.startswith(("shoal pipeline: ", "NOTE: Picked up JDK"))]
    assert [line for line in others if "jdk.incubator" not in line] == [], "Spark's log is not for users"
    census = json.loads(text)
    whole = _whole(census)
    channel = count(list(channel_events()), [0])
    churn = count([*churn_events()], [0])
    plain = [channel.intervals[0], churn.intervals[0]]
    for name in ("keys", "memberships", "binds", "unbinds", "keys_begun", "keys_ended", "messages", "message_bytes"):
        assert whole[name] == sum(getattr(one, name) for one in plain), name
    assert whole["online_queues"] == len(channel.users) + len(churn.users)
    assert whole["size_max"] == max(one.size_max for one in plain)
    sizes = [len(members) for members in chain(channel.members.values(), churn.members.values()) if members]
    mean = sum(sizes) / len(sizes)
    assert whole["size_mean"] == pytest.approx(mean)
    assert whole["size_stddev"] == pytest.approx((sum((size - mean) ** 2 for size in sizes) / len(sizes)) ** 0.5)
    hottest = next(hot for hot in census["hottest"] if (hot["by"], hot["rank"]) == ("messages", 1))
    assert (hottest["key"].rpartition(".")[2], hottest["messages"]) == ("##linux", channel.intervals[0].messages)
    assert len(census["places"]) == 4096 and {place["slice"] for place in census["places"]} == {"s01", "s02"}
    assert census["notes"] == []
    tables = {table.name: parquet.read_table(table).to_pylist() for table in out.iterdir() if table.is_dir()}
    assert sorted(tables) == ["hottest", "intervals", "places", "sizes", "skew", "slices"]
    assert [row["memberships"] for row in tables["intervals"]] == [one["memberships"] for one in census["intervals"]]
    page = report.read_text(encoding="utf-8")
    assert page.count("<svg") >= 11 and "##linux" in page and f"{whole['memberships']:,}" in page
    assert "http" not in page.replace("http://www.w3.org/", ""), "it fetches nothing"


@pytest.mark.long
def test_the_same_job_runs_under_spark_submit(life: Path) -> None:
    import pyspark

    import shoal_pipeline.__main__ as program

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    local = ["--master", "local[2]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    local += ["--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.sql.shuffle.partitions=2"]
    command = [str(submit), *local, str(program.__file__), "census", str(life / "archive"), "--interval", "365d"]
    code, text, told = _run(*command)
    assert code == 0, told
    lines = dict(line.rsplit(maxsplit=3)[:2] for line in text.splitlines()[1:])
    plain = [count(list(channel_events()), [0]), count([*churn_events()], [0])]
    assert lines["memberships"] == f"{sum(one.intervals[0].memberships for one in plain):,}"


def test_up_to_when_each_slice_is_archived_is_told(spark: SparkSession, tmp_path: Path) -> None:
    """One slice closed a segment after 20 s, the other after 60: each has a message a second."""
    for name, until in (("s01", 20), ("s02", 60)):
        archive = SliceArchive(tmp_path, name)
        archive.own(0, 16)
        archive.change(1, declares(b"q"), binds(b"q", b"key of " + name.encode()))
        for second in range(1, until + 1):
            archive.change(second * 1_000, publishes(b"key of " + name.encode(), encode_chunk([b"x"])))
        archive.cut()
    census = census_of(spark, tmp_path, 10_000)
    ends = [(one.slice, one.first_ms, one.last_ms) for one in census.slices]
    assert ends == [("s01", 0, 20_000), ("s02", 0, 60_000)]
    assert census.complete_until_ms == 20_000
    (note,) = census.notes
    assert "the last at 1970-01-01 00:01:00 UTC, that of s01 at 1970-01-01 00:00:20" in note
    assert [one.messages for one in census.intervals] == [18, 20, 11, 10, 10, 11]
    assert max(one.messages_per_s for one in census.intervals) == 2
    assert "all slices up to 1970-01-01 00:00:20" in report_page(census)


def test_an_archive_of_nothing_yet_is_an_error_only_if_it_should_be(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []

    def run(*words: str) -> int:
        parser = argparse.ArgumentParser()
        job.add_arguments(parser)
        return job.run(parser.parse_args([str(tmp_path), *words]), spark, said.append)

    with pytest.raises(BadCall, match="no records yet"):
        run()
    assert run("--allow-empty", "--out", str(tmp_path / "out")) == 0
    assert "no records yet" in said[-1] and not (tmp_path / "out").exists()
    assert capsys.readouterr().out == ""


@pytest.mark.long
def test_a_census_goes_to_files_of_its_day_and_replaces_only_its_own(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = SliceArchive(tmp_path / "archive")
    archive.own(0, 16)
    archive.change(1_000, declares(b"anna"), binds(b"anna", b"red"))
    archive.cut()
    parser = argparse.ArgumentParser()
    job.add_arguments(parser)
    outputs = ["--dated", "--out", f"{tmp_path}/tables-%Y", "--report", f"{tmp_path}/c-%Y.html"]
    given = parser.parse_args([str(tmp_path / "archive"), *outputs])
    for _ in range(2):
        assert job.check(given, print) is None
        assert job.run(given, spark, lambda _: None) == 0
    year = f"{datetime.now(UTC):%Y}"
    assert {path.name for path in tmp_path.iterdir()} == {"archive", f"tables-{year}", f"c-{year}.html"}
    assert "memberships" in capsys.readouterr().out
    (tmp_path / f"tables-{year}" / "precious.txt").touch()
    with pytest.raises(Conflict, match=r"it has precious\.txt"):
        job.check(given, print)
    with pytest.raises(Conflict, match=r"it has precious\.txt"):
        job.run(given, spark, lambda _: None)


def test_what_an_archive_cannot_tell_is_noted(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadCall, match="no records yet"):
        census_of(spark, tmp_path, 1000)
    late = SliceArchive(tmp_path, "s01", first_lsn=50)
    late.change(5_000, declares(b"lost"))
    late.change(6_000, binds(b"anna", b"red"), binds(b"ben", b"red"), unbinds(b"ben", b"blue"))
    late.own(7_000, 16)
    late.change(8_000, binds(b"carl", b"red"), drops(b"ben"))
    path = late.cut()
    path.write_bytes(path.read_bytes().replace(b"lost", b"gone"))
    silent = SliceArchive(tmp_path, "s02")
    silent.change(9_000, declares(b"dora"), binds(b"dora", b"green"))
    silent.cut()
    rows = read_rows(spark, str(tmp_path), {"damage": "skip"})
    census = take_census(rows, "archive", 10_000, lambda _: None)
    assert census.notes == (
        "the archive of slice s01 begins at LSN 50: memberships from before are unknown, and not counted",
        "slice s02 does not say which partitions it owns: all of its requests are counted",
        "damaged places in the archive: 1; records lost there: 1, and more if the end of a segment is gone",
    )
    (figures,) = census.intervals
    assert (figures.start_ms, figures.seconds) == (0, 3.0)
    assert (figures.online_queues, figures.keys, figures.memberships) == (3, 2, 3)
    assert (figures.binds, figures.unbinds, figures.size_max) == (4, 1, 2)


def test_an_interval_too_short_for_the_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    write_archive(tmp_path, [*churn_events()][:2] + [*churn_events()][-2:])
    with pytest.raises(BadCall, match="choose a longer one"):
        census_of(spark, tmp_path, 1000)
