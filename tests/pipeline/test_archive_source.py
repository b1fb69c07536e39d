"""The data source `shoal` over archives: rows, filters, streams, damage. Archives are as slice nodes write them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import BadCall, Corrupt, Malformed
from shoal_contract.journal_record import LEFT_OUT, SET_ASIDE
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from shoal_pipeline.archive.folder import Span, first_time_ms, list_spans
from shoal_pipeline.archive.records import find_partitions
from shoal_pipeline.archive.wanted import Wanted, choose_spans
from shoal_pipeline.failure import typed
from shoal_slice_node.core.apply.records import (
    Acked,
    Due,
    Farewell,
    Kind,
    Trim,
    encode_acks,
    encode_due,
    encode_farewells,
    encode_reclaim,
    encode_trims,
)
from shoal_slice_node.core.rows.due_row import delayed_key
from shoal_slice_node.core.rows.farewell_row import letter_key
from shoal_slice_node.core.rows.ids import key_id, queue_id

from .archives import SliceArchive, binds, declares, drops_unused, publishes, unbinds

PARTITIONS = 16
HOUR_MS = 3_600_000
PRODUCER = bytes(range(16))


def load(spark: SparkSession, root: Path, **options: str) -> DataFrame:
    return spark.read.format("shoal").options(**options).load(str(root))


def told(rows: Sequence[Any], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in rows]


def small_archive(root: Path) -> SliceArchive:
    archive = SliceArchive(root)
    archive.own(1_000, PARTITIONS, (1, 2))
    archive.change(2_000, declares(b"anna", b"b\xff"), binds(b"anna", b"x", b"y"), producer=PRODUCER, sequence=7)
    archive.change(
        3_000, publishes(b"x", encode_chunk([b"12345", b"678"]), b"\xff not a chunk"), unbinds(b"anna", b"y")
    )
    archive.add(Kind.ACKS, 4_000, encode_acks([Acked(queue_id(1), key_id(5, 1), 10, 12)], 3))
    archive.add(Kind.TRIM, 4_000, encode_trims([Trim(key_id(6, 1), 12, 3)]))
    archive.add(Kind.RECLAIM, 4_000, encode_reclaim([b"kxxxxxxxx"]))
    offset = wire.Binds(queues=[b"anna", b"ben"], keys=[b"x", b"z"], start=wire.START_OFFSET, start_value=9)
    bulk = wire.Imports(queues=[b"carl", b"dora"], key_counts=[2, 0], keys=[b"x", b"y"], starts=[0, 3])
    acks = wire.TransactionAcks(queues=[b"anna", b"ben"], keys=[b"x", b"z"], lows=[9, 1], tos=[12, 2])
    drops = drops_unused(b"kept", b"anna", used=1)
    archive.change(5_000, wire.Step(binds=offset), wire.Step(imports=bulk), drops, wire.Step(acks=acks))
    archive.change(6_000, wire.Step(configures=wire.Configures(keys=[b"z"])))
    archive.add(99, 6_000, b"of a later version")
    archive.add(Kind.DUE, 6_000, encode_due([Due(delayed_key(6_000, 1), b"x"), Due(delayed_key(6_000, 2), b"y")]))
    bye = wire.Farewells(queues=[b"anna", b"ben"], keys=[b"x", b"y"], chunks=[encode_chunk([b"bye"])] * 2, after_s=9)
    archive.change(6_000, wire.Step(farewells=bye), wire.Step(farewells=wire.Farewells(queues=[b"ben"])))
    said = [Farewell(b"q12345678", b"anna", b"x"), Farewell(letter_key(9, 0), b"", b"y")]
    archive.add(Kind.FAREWELL, 6_000, encode_farewells(said, 11))
    archive.cut()
    return archive


def test_rows_say_what_the_records_say(spark: SparkSession, tmp_path: Path) -> None:
    small_archive(tmp_path)
    rows = load(spark, tmp_path).orderBy("lsn", "step", "request", "partition").collect()
    x, y, z = (partition_of(key, PARTITIONS) for key in (b"x", b"y", b"z"))
    columns = ("lsn", "kind", "queue", "key", "partition", "offset", "messages", "size", "step", "request")
    expected = [
        (1, "own", None, None, 1, None, 16, None, 0, 0),
        (1, "own", None, None, 2, None, 16, None, 0, 1),
        (2, "declare", "anna", None, None, None, None, None, 0, 0),
        (2, "declare", "b\\xff", None, None, None, None, None, 0, 1),
        (2, "bind", "anna", "x", x, None, None, None, 1, 0),
        (2, "bind", "anna", "y", y, None, None, None, 1, 0),
        (3, "publish", None, "x", x, None, 2, 8, 0, 0),
        (3, "publish", None, "x", x, None, None, None, 0, 1),
        (3, "unbind", "anna", "y", y, None, None, None, 1, 0),
        (4, "ack", None, None, 5, 10, 2, None, 0, 0),
        (5, "trim", None, None, 6, 12, None, None, 0, 0),
        (6, "reclaim", None, None, None, None, None, None, 0, 0),
        (7, "bind", "anna", "x", x, 9, None, None, 0, 0),
        (7, "bind", "ben", "z", z, 9, None, None, 0, 1),
        (7, "import", "carl", "x", x, None, None, None, 1, 0),
        (7, "import", "carl", "y", y, 3, None, None, 1, 0),
        (7, "import", "dora", None, None, None, None, None, 1, 1),
        (7, "drop", "anna", None, None, None, None, None, 2, 0),
        (7, "ack", "anna", "x", x, 9, 3, None, 3, 0),
        (7, "ack", "ben", "z", z, 1, 1, None, 3, 1),
        (8, "configure", None, "z", z, None, None, None, 0, 0),
        (9, "other", None, None, None, None, None, None, 0, 0),
        (10, "due", None, "x", x, None, None, None, 0, 0),
        (10, "due", None, "y", y, None, None, None, 0, 1),
        (11, "farewell", "anna", "x", x, None, 1, 3, 0, 0),
        (11, "farewell", "ben", "y", y, None, 1, 3, 0, 1),
        (11, "farewell", "ben", None, None, None, None, None, 1, 0),
        (12, "said", "anna", "x", x, 11, None, None, 0, 0),
        (12, "said", None, "y", y, 11, None, None, 0, 1),
    ]
    key = lambda row: (row[0], row[8], row[9], str(row[3]))  # noqa: E731
    assert sorted(told(rows, *columns), key=key) == sorted(expected, key=key)
    assert {row["slice"] for row in rows} == {"s01"}
    assert {(row["producer"], row["sequence"]) for row in rows if row["lsn"] == 2} == {(PRODUCER, 7)}
    assert {(row["producer"], row["sequence"]) for row in rows if row["lsn"] == 3} == {(None, None)}
    times = spark.sql("select 1").sparkSession.conf.get("spark.sql.session.timeZone")
    assert times == "UTC"
    seconds = load(spark, tmp_path).selectExpr("cast(max(time) as double)").collect()[0][0]
    assert seconds == 6.0


def test_a_schema_of_the_readers_own_takes_fewer_columns_and_names_as_bytes(
    spark: SparkSession, tmp_path: Path
) -> None:
    small_archive(tmp_path)
    schema = StructType([StructField("queue", BinaryType()), StructField("lsn", LongType())])
    rows = spark.read.format("shoal").schema(schema).load(str(tmp_path)).where("queue is not null").collect()
    assert (b"b\xff", 2) in {(bytes(row["queue"]), row["lsn"]) for row in rows}


def hours(root: Path, slice_name: str = "s01") -> None:
    """Five segments, ten hours apart."""
    archive = SliceArchive(root, slice_name)
    archive.own(0, PARTITIONS)
    for hour in range(0, 50, 10):
        archive.change(hour * HOUR_MS + 1, declares(b"queue %d" % hour), binds(b"queue %d" % hour, b"x"))
        archive.cut()


def at(hour: int) -> str:
    return f"timestamp '{datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%d %H:%M:%S}'"


def test_what_an_operator_set_aside_did_nothing(spark: SparkSession, tmp_path: Path) -> None:
    archive = SliceArchive(tmp_path)
    archive.own(1_000, 4)
    archive.add(99, 2_000, b"of a newer version", SET_ASIDE)
    archive.change(3_000, declares(b"anna"))
    archive.add(Kind.CHANGE, 4_000, b"cut in its head", SET_ASIDE)
    archive.add(Kind.DUE, 5_000, b"\x09cut", SET_ASIDE)
    archive.add(Kind.TRIM, 6_000, b"", SET_ASIDE | LEFT_OUT)
    archive.add(Kind.RECLAIM, 7_000, b"", SET_ASIDE)
    archive.cut()
    found = {(row.lsn, row.kind) for row in load(spark, tmp_path).collect()}
    assert found == {(1, "own"), (3, "declare"), (7, "reclaim")}


def test_filters_on_time_kind_and_slice_are_handed_down(spark: SparkSession, tmp_path: Path) -> None:
    hours(tmp_path, "s01")
    hours(tmp_path, "s02")
    where = f"kind in ('bind', 'unbind') and slice = 's02' and time >= {at(15)} and time < {at(35)}"
    chosen = load(spark, tmp_path).where(where)
    rows = chosen.orderBy("time").collect()
    assert told(rows, "queue", "kind", "slice") == [("queue 20", "bind", "s02"), ("queue 30", "bind", "s02")]
    plan = chosen._jdf.queryExecution().executedPlan().toString()
    assert "BatchScan" in plan and "Filter (" not in plan
    assert chosen.rdd.getNumPartitions() == 3, "segments far from the wanted times are not planned"
    assert load(spark, tmp_path).where("kind = 'bind' and queue = 'queue 0'").count() == 2


def test_segments_within_the_clock_slack_are_still_read(tmp_path: Path) -> None:
    hours(tmp_path)
    spans = list_spans(tmp_path)
    assert [first_time_ms(span) for span in spans] == [0, 10 * HOUR_MS + 1, *(h * HOUR_MS + 1 for h in (20, 30, 40))]
    late = choose_spans(spans, Wanted(from_us=int(30.5 * HOUR_MS) * 1000))
    assert [span.first_lsn for span in late] == [spans[n].first_lsn for n in (2, 3, 4)]
    assert find_partitions(spans) == PARTITIONS


def test_heads_are_read_several_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a file system far away needs it: here no head is read until five are being read."""
    hours(tmp_path)
    together = threading.Barrier(5)

    def slow(span: Span) -> int | None:
        together.wait(30)
        return first_time_ms(span)

    monkeypatch.setattr("shoal_pipeline.archive.folder.first_time_ms", slow)
    chosen = choose_spans(list_spans(tmp_path), Wanted(from_us=int(30.5 * HOUR_MS) * 1000))
    assert len(chosen) == 3


def test_nodes_of_one_slice_are_merged_so_that_each_lsn_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    for node, cuts in (("n01", (4, 9)), ("n02", (4, 6, 9)), ("n03", (2,))):
        archive = SliceArchive(tmp_path, "s01", node)
        for lsn in range(1, max(cuts) + 1):
            archive.change(lsn, declares(b"queue %d" % lsn))
            if lsn in cuts:
                archive.cut()
    rows = load(spark, tmp_path).orderBy("lsn").collect()
    assert told(rows, "lsn", "queue") == [(lsn, f"queue {lsn}") for lsn in range(1, 10)]


def flip(path: Path, what: bytes) -> int:
    """The byte that is not as it was."""
    data = bytearray(path.read_bytes())
    position = data.index(what)
    data[position] ^= 4
    path.write_bytes(bytes(data))
    return position


def test_damage_is_told_with_its_place_or_skipped_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    archive = SliceArchive(tmp_path)
    for lsn in range(1, 7):
        archive.change(lsn * 1000, declares(b"queue %d" % lsn))
        if lsn == 4:
            first = archive.cut()
    last = archive.cut()
    flip(first, b"queue 2")
    flip(first, b"queue 3")
    with pytest.raises(Exception, match="damaged") as caught:
        load(spark, tmp_path).collect()
    error = typed(caught.value)
    assert isinstance(error, Corrupt) and f"journal record 2 is damaged: {first}, byte " in str(error)
    flip(last, b"queue 6")
    rows = load(spark, tmp_path, damage="skip").orderBy("lsn").collect()
    assert told(rows, "lsn", "kind", "messages") == [
        (1, "declare", None),
        (2, "damaged", 1),
        (3, "damaged", 1),
        (4, "declare", None),
        (5, "declare", None),
        (6, "damaged", 1),
    ]


def test_a_missing_segment_is_damage(spark: SparkSession, tmp_path: Path) -> None:
    hours(tmp_path)
    list_spans(tmp_path)[1].path.unlink()
    with pytest.raises(Exception, match="a segment is missing"):
        load(spark, tmp_path).collect()
    lost = load(spark, tmp_path, damage="skip").where("kind = 'damaged'").collect()
    assert told(lost, "lsn", "messages") == [(3, 1)]


def test_a_last_segment_without_a_record_is_damage(spark: SparkSession, tmp_path: Path) -> None:
    hours(tmp_path)
    last = list_spans(tmp_path)[-1]
    last.path.write_bytes(b"")
    with pytest.raises(Exception, match="holds no record: a copy that broke off") as caught:
        load(spark, tmp_path).collect()
    assert isinstance(typed(caught.value), Corrupt)
    lost = load(spark, tmp_path, damage="skip").where("kind = 'damaged'").collect()
    assert told(lost, "lsn", "messages", "size") == [(last.first_lsn, 0, 0)]


def test_a_file_that_has_no_segments_name_is_named(spark: SparkSession, tmp_path: Path) -> None:
    hours(tmp_path)
    stray = list_spans(tmp_path)[0].path.with_name("zzzzzzzzzzzzzzzz.journal")
    stray.touch()
    for read in (lambda: list_spans(tmp_path), lambda: load(spark, tmp_path).collect()):
        with pytest.raises(Exception, match=r"zzzzzzzzzzzzzzzz\.journal has no segment's name") as caught:
            read()
        assert isinstance(typed(caught.value), Malformed)
    stray.rename(stray.with_suffix(".journal.partial"))
    assert load(spark, tmp_path).count() > 0


def test_a_folder_that_is_not_there_and_a_wrong_option_are_bad_calls(spark: SparkSession, tmp_path: Path) -> None:
    for options, path in (({}, tmp_path / "none"), ({"damage": "maybe"}, tmp_path), ({"table": "rows"}, tmp_path)):
        with pytest.raises(Exception, match=r"not a folder|it can be") as caught:
            load(spark, path, **options).collect()
        assert isinstance(typed(caught.value), BadCall)
    (tmp_path / "s01").mkdir()
    assert load(spark, tmp_path).count() == 0


def test_a_stream_goes_on_from_its_checkpoint_with_each_record_once(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "archive", str(tmp_path / "out")
    root.mkdir()
    archives = [SliceArchive(root, "s01"), SliceArchive(root, "s02")]

    def grow(number: int) -> None:
        for archive in archives:
            archive.change(number, declares(b"queue %d" % number))
            archive.change(number, declares(b"more %d" % number))
            archive.cut()

    def run() -> list[tuple[Any, ...]]:
        stream = spark.readStream.format("shoal").option("maxSegmentsPerTrigger", "3").load(str(root))
        written = stream.select("slice", "lsn", "queue").writeStream.format("parquet").outputMode("append")
        query = written.option("checkpointLocation", str(tmp_path / "at")).trigger(availableNow=True).start(out)
        assert query.awaitTermination(100)
        assert query.exception() is None
        return sorted(told(spark.read.parquet(out).collect(), "slice", "lsn", "queue"))

    def expected(numbers: int) -> list[tuple[Any, ...]]:
        names = [f"{word} {number}" for number in range(numbers) for word in ("queue", "more")]
        return [(name, lsn, queue) for name in ("s01", "s02") for lsn, queue in enumerate(names, 1)]

    grow(0)
    grow(1)
    assert run() == expected(2)
    # The last segment comes again, longer: a node that was killed while it stopped had not released it.
    grow(2)
    again = SliceArchive(root, "s02", first_lsn=5)
    again.change(2, declares(b"queue 2"))
    again.change(2, declares(b"more 2"))
    assert run() == expected(3)
    again.change(3, declares(b"queue 3"))
    again.change(3, declares(b"more 3"))
    again.cut()
    archives.pop()
    grow(3)
    assert run() == expected(4)
    assert run() == expected(4)
