"""Bulk load and export through a real cluster: what was loaded is exported, after faults too; bad input is refused."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import shoal
from shoal_contract.errors import BadCall, Conflict, InvalidName, Malformed, ShoalError, Unavailable
from shoal_contract.wire.bulk_pb2 import ImportStatusRequest
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_local.cluster import LocalCluster
from shoal_pipeline.bulk import attempts, export, load
from shoal_pipeline.bulk.runs import Manifest
from shoal_pipeline.failure import typed
from shoal_slice_node.storage.offline import check_path

Pair = tuple[bytes, bytes]


def say_nothing(_: str) -> None:
    pass


def population(queues: int) -> list[Pair]:
    """Small groups, one of everybody, one queue with thousands of keys, odd names, repeats."""
    pairs = [(b"queue-%05d" % number, b"everybody") for number in range(queues)]
    pairs += [(b"queue-%05d" % number, b"group-%d" % (number * 7 % (queues // 3))) for number in range(queues)]
    pairs += [(b"collector", b"key-%d" % number) for number in range(3_500)]
    pairs += [("Zürich 🐟".encode(), b"\xff\x00 raw"), (b"\x00", "村".encode()), (b"q" * 255, b"k" * 255)]
    return pairs + pairs[:100]


def write(path: Path, pairs: Iterable[Pair]) -> Path:
    queues, keys = zip(*pairs, strict=True)
    pq.write_table(pa.table({"queue": pa.array(queues, pa.binary()), "key": pa.array(keys, pa.binary())}), path)
    return path


def loaded(spark: SparkSession, *words: object, say: Callable[[str], None] = say_nothing) -> int:
    parser = argparse.ArgumentParser()
    load.add_arguments(parser)
    return load.run(parser.parse_args(list(map(str, words))), spark, say)


def exported(spark: SparkSession, at: str, folder: Path) -> list[Pair]:
    parser = argparse.ArgumentParser()
    export.add_arguments(parser)
    assert export.run(parser.parse_args([str(folder), "--at", at]), spark, say_nothing) == 0
    rows = spark.read.parquet(str(folder)).collect()
    assert all((row["start"], row["cursor"], row["end"], row["done"]) == (1, 1, None, []) for row in rows)
    return sorted((bytes(row["queue"]), bytes(row["key"])) for row in rows)


@asynccontextmanager
async def cluster_of(folder: Path, slices: int) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(folder, slices=slices) as cluster:
        yield cluster
    for name in cluster.slices:
        report = check_path(folder / name)
        assert report.sound, report.problems


QUEUES = 9_000


@pytest.mark.long
async def test_what_is_loaded_is_exported_and_served_though_a_slice_crashes_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "RETRY_S", 0.5)
    pairs = population(QUEUES)
    source = write(tmp_path / "members.parquet", pairs)
    said: list[str] = []
    async with cluster_of(tmp_path / "cluster", 2) as cluster:
        at = cluster.redirector
        words = (source, "--at", at, "--runs", tmp_path / "runs")
        running = asyncio.create_task(asyncio.to_thread(loaded, spark, *words, say=said.append))
        await import_begun(running, tmp_path / "runs", cluster.addresses["s01"])
        await cluster.crash("s01")
        assert await running == 0, said
        assert f"{len(set(pairs)):,} memberships are loaded and verified" in said[-1]
        assert await asyncio.to_thread(exported, spark, at, tmp_path / "out") == sorted(set(pairs))
        await check_served(at)
        assert await asyncio.to_thread(loaded, spark, *words, say=said.append) == 0
        assert "done and verified" in said[-1]
        with pytest.raises(Conflict, match="--overwrite"):
            await asyncio.to_thread(exported, spark, at, tmp_path / "out")
        await cluster.restart("s02")
        await check_served(at)


async def import_begun(running: asyncio.Task[int], runs: Path, address: str) -> None:
    """Until a slice has a chunk of the load, or the load has ended."""
    async with grpc.aio.insecure_channel(address) as channel:
        while not running.done():
            run = run_of(runs)
            if run and (await BulkServiceStub(channel).ImportStatus(ImportStatusRequest(run=run))).chunk:
                return
            await asyncio.sleep(0.01)


def run_of(runs: Path) -> bytes:
    """Empty before the load has sorted."""
    lines = [path.read_text() for path in runs.glob("manifest/*.txt")]
    return bytes.fromhex(Manifest.decode(lines[0]).run) if lines else b""


async def check_served(at: str) -> None:
    """Members get what is published, wherever their keys are; a queue's own key works; joining and leaving work."""
    async with shoal.connect(at) as broker:
        assert (await broker.publish("everybody", b"hello")).queues == QUEUES
        await broker.publish("key-3000", b"third")
        await broker.send("queue-00017", b"direct")
        assert await drained(broker, "queue-00017") == {("everybody", b"hello"), ("@queue-00017", b"direct")}
        assert await drained(broker, "collector") == {("key-3000", b"third")}
        await broker.bind("queue-00017", "one more")
        assert (await broker.publish("one more", b"seen")).queues == 1
        await broker.unbind("queue-00017", ["one more"], discard=True)


async def drained(broker: shoal.Broker, queue: str) -> set[tuple[str, bytes]]:
    """(key, body) of what a queue has."""
    messages = await broker.pull(queue, 100)
    await broker.ack(*messages)
    await broker.flush()
    return {(str(message.key), message.body) for message in messages}


@pytest.mark.long
async def test_a_load_that_failed_is_resumed_by_the_same_command(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "IMPORT_ATTEMPTS_MAX", 1)
    pairs = population(300)
    source = write(tmp_path / "members.parquet", pairs)
    said: list[str] = []
    async with cluster_of(tmp_path / "cluster", 2) as cluster:
        words = (source, "--at", cluster.redirector, "--runs", tmp_path / "runs")
        await cluster.kill("s02")
        assert (await refused(spark, *words))[0] is Unavailable
        await cluster.restart("s02")
        other = write(tmp_path / "other.parquet", pairs)
        assert "holds a run of" in (await refused(spark, other, *words[1:]))[1]
        chunk, sound = damage(tmp_path / "runs", spark)
        assert "is damaged" in (await refused(spark, *words))[1]
        pq.write_table(sound, chunk)
        assert await asyncio.to_thread(loaded, spark, *words, say=said.append) == 0
        assert any("going on with run" in line for line in said)
        assert "holds a run of" in (await refused(spark, other, *words[1:]))[1], "one that is done, too"
        assert await asyncio.to_thread(exported, spark, cluster.redirector, tmp_path / "out") == sorted(set(pairs))


def damage(runs: Path, spark: SparkSession) -> tuple[Path, pa.Table]:
    """One byte of a chunk is another, behind its checksum. The file, and what it was."""
    chunk = next(path for path in sorted((runs / "chunks").glob("*.parquet")) if pq.read_metadata(path).num_rows)
    table = pq.read_table(chunk)
    changes = table["change"].to_pylist()
    changes[0] = changes[0][:-1] + bytes([changes[0][-1] ^ 1])
    damaged = table.set_column(table.schema.get_field_index("change"), "change", pa.array(changes, pa.binary()))
    pq.write_table(damaged, chunk)
    (runs / "chunks" / f".{chunk.name}.crc").unlink(missing_ok=True)
    return chunk, table


BAD_ROWS = {
    "key name is 300 bytes; the limit is 255": InvalidName,
    "queue is missing": Malformed,
    "key name begins with @: reserved for direct keys": InvalidName,
    "start is x; offsets begin at 1": Malformed,
}


async def test_bad_rows_are_named_or_kept_aside(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("a", "k", "1"), ("b", "k" * 300, ""), ("", "k", ""), ("c", "@c", ""), ("d", "k", "x"), ("e", "k", "9")]
    source = tmp_path / "members.csv"
    lines = [",".join(row) for row in [("queue", "key", "from"), *rows, ("f", "k", "")]]
    source.write_text("\n".join(lines))
    pq.write_table(pa.table({"queue": ["q"], "group": ["k"]}), tmp_path / "columns.parquet")
    async with cluster_of(tmp_path / "cluster", 1) as cluster:
        words = [source, "--at", cluster.redirector, "--runs", tmp_path / "runs", "--start-column", "from"]
        kind, text = await refused(spark, *words)
        assert text.startswith("members.csv: ") and BAD_ROWS[text.removeprefix("members.csv: ")] is kind
        rejects = tmp_path / "rejects"
        said: list[str] = []
        assert await asyncio.to_thread(loaded, spark, *words, "--rejects", rejects, say=said.append) == load.FOUND
        assert any("refused: queue e: key k: offset 9 asked for" in line for line in said)
        found = [json.loads(line) for part in rejects.glob("*.json") for line in part.read_text().splitlines()]
        assert sorted(one["problem"] for one in found) == sorted(BAD_ROWS)
        out = await asyncio.to_thread(exported, spark, cluster.redirector, tmp_path / "out")
        assert out == [(b"a", b"k"), (b"f", b"k")]
        move_a_partition(tmp_path / "runs" / "manifest")
        assert await asyncio.to_thread(loaded, spark, *words, "--rejects", rejects, say=said.append) == load.FOUND
        assert any("map has changed since the run was sorted: sorting again" in line for line in said)
        kind, text = await refused(spark, tmp_path / "columns.parquet", *words[1:3], "--runs", tmp_path / "runs2")
        assert kind is Malformed and "has no column key; it has queue, group" in text
        assert (await refused(spark, tmp_path / "members.txt", *words[1:3], "--runs", tmp_path / "r"))[0] is BadCall


def move_a_partition(folder: Path) -> None:
    """As if the run had been sorted for an earlier map."""
    (path,) = folder.glob("*.txt")
    manifest = Manifest.decode(path.read_text())
    path.write_text(replace(manifest, partition_map=manifest.partition_map.moved({0: "s09"})).encode())
    path.with_name(f".{path.name}.crc").unlink()


async def refused(spark: SparkSession, *words: object) -> tuple[type[ShoalError], str]:
    """What a load raises, and its first words."""
    with pytest.raises(Exception) as raised:
        await asyncio.to_thread(loaded, spark, *words)
    known = typed(raised.value)
    assert known is not None
    return type(known), known.message.split(" (queue ")[0]


def test_a_run_has_a_folder_for_its_inputs_and_cluster_unless_it_is_named() -> None:
    def folder(*words: str) -> str:
        parser = argparse.ArgumentParser()
        load.add_arguments(parser)
        return load.runs_of(parser.parse_args(list(words)))

    first = folder("a/members.parquet", "--at", "h:1")
    assert first.startswith(".shoal-runs/members-") and first == folder("a/members.parquet", "--at", "h:1")
    others = [folder("b/members.parquet", "--at", "h:1"), folder("a/members.parquet", "--at", "h:2")]
    assert len({first, *others}) == 3
    assert folder("a/members.parquet", "--runs", "hdfs:///runs/") == "hdfs:///runs"


async def test_without_a_cluster_nothing_is_begun(spark: SparkSession, tmp_path: Path) -> None:
    source = write(tmp_path / "members.parquet", [(b"q", b"k")])
    assert (await refused(spark, source, "--at", "127.0.0.1:1", "--runs", tmp_path / "runs"))[0] is Unavailable
    assert not (tmp_path / "runs").exists()
