"""The job `load`: loads memberships from files into a cluster and verifies them; it can be resumed.

    read, judge -> sort by owner, queue, key -> run files -> Import, a stream for each slice -> Verify

Belongs here: the order of stages, what is repeated after a failure, what is reported. Not here: the stages themselves.
"""

from __future__ import annotations

import argparse
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from pathlib import PurePath
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from shoal_contract.errors import BadCall, ShoalError
from shoal_contract.limits import RUN_BYTES
from shoal_contract.names import show
from shoal_pipeline.arguments import add_at
from shoal_pipeline.bulk.attempts import again_if_away
from shoal_pipeline.limits import (
    CHUNKS_PER_BATCH,
    PROGRESS_S,
    REFUSALS_SHOWN_MAX,
    ROWS_PER_PART,
    SLICES_AT_ONCE_MAX,
)
from shoal_pipeline.locations import check_inputs
from shoal_pipeline.outputs import Outputs, check_replaceable, names_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from shoal.core.cluster_map import ClusterMap
    from shoal_pipeline.bulk.importing import Target
    from shoal_pipeline.bulk.runs import Manifest, SliceRun

SUMMARY = "Load memberships from Parquet or CSV into a cluster."
Say = Callable[[str], None]
RUNS = ".shoal-runs"
FOUND = 1
"""The exit code where something is missing or was refused."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="+", metavar="PATH", help="files or folders with columns queue and key")
    add_at(parser)
    parser.add_argument(
        "--runs", default="", metavar="DIR", help=f"keeps the sorted run; the same again resumes; default below {RUNS}"
    )
    parser.add_argument("--format", choices=["parquet", "csv"], default="", help="default: by the first path's name")
    parser.add_argument(
        "--start-column", default="", metavar="NAME", help="column with the offsets to start at; default: all from now"
    )
    parser.add_argument("--rejects", default="", metavar="DIR", help="keep bad rows there, as JSON, and load the rest")


def check(arguments: argparse.Namespace, say: Callable[[str], None]) -> int | None:
    """Checks inputs, outputs and the cluster. Raises BadCall, Conflict, Unavailable."""
    from shoal_pipeline.bulk.cluster import fetch_map

    check_inputs(arguments.inputs)
    runs = runs_of(arguments)
    check_replaceable(runs, "run", names_here(runs), "")
    if arguments.rejects:
        check_replaceable(arguments.rejects, "rejects", names_here(arguments.rejects), "")
    fetch_map(arguments.at)
    return None


def run(arguments: argparse.Namespace, session: SparkSession, say: Say) -> int:
    """Loads. Returns the exit code. Raises ShoalError."""
    return Load(arguments, session, say).run()


def runs_of(arguments: argparse.Namespace) -> str:
    """Returns the folder of the sorted run: the one asked for, else one for these inputs and this cluster."""
    if arguments.runs:
        return str(arguments.runs).rstrip("/")
    asked = "\0".join([*arguments.inputs, arguments.start_column, arguments.format, arguments.at])
    name = PurePath(arguments.inputs[0].rstrip("/")).stem
    return f"{RUNS}/{name}-{blake2b(asked.encode(), digest_size=4).hexdigest()}"


class Load:
    """Runs one load: its stages, with what they share."""

    def __init__(self, arguments: argparse.Namespace, session: SparkSession, say: Say) -> None:
        self._given = arguments
        self._session = session
        self._say = say
        self._folder = runs_of(arguments)
        self._outputs = Outputs(session)

    def run(self) -> int:
        """Loads, and returns the exit code. Raises ShoalError."""
        from shoal_pipeline.bulk.cluster import fetch_map
        from shoal_pipeline.bulk.runs import read_line, write_line

        check_replaceable(self._folder, "run", self._outputs.names(self._folder), "")
        done = read_line(self._session, f"{self._folder}/done")
        if done is not None and self._checked(done):
            self._say(f"{self._folder} says that this load is done and verified; remove it to load again")
            return 0
        began_s = time.monotonic()
        cluster = fetch_map(self._given.at)
        manifest = self._sorted(cluster)
        with _small_batches(self._session):
            refused = self._import(manifest)
            missing = self._verify(manifest)
        total_s = time.monotonic() - began_s
        if missing or refused:
            self._say(f"{missing:,} memberships are missing, {refused:,} of them refused just now")
            return FOUND
        write_line(self._session, f"{self._folder}/done", manifest.encode())
        self._say(f"{manifest.memberships:,} memberships are loaded and verified, {total_s:.1f} s in all")
        return 0

    def _sorted(self, cluster: ClusterMap) -> Manifest:
        """Returns the run's manifest: that of an earlier attempt if it still fits, else that of a new sort."""
        from shoal_pipeline.bulk import runs

        line = runs.read_line(self._session, f"{self._folder}/manifest")
        if line is not None:
            manifest = self._checked(line)
            if _same_owners(manifest, cluster):
                self._say(f"going on with run {manifest.run}: {manifest.memberships:,} memberships, sorted before")
                return manifest
            self._say("the cluster's map has changed since the run was sorted: sorting again")
        return self._sort(cluster)

    def _checked(self, line: str) -> Manifest:
        """Returns the manifest in a line of the run's folder. Raises BadCall if it belongs to other inputs,
        Malformed."""
        from shoal_pipeline.bulk.runs import Manifest

        manifest = Manifest.decode(line)
        if manifest.inputs != self._inputs():
            held = ", ".join(manifest.inputs)
            raise BadCall(f"{self._folder} holds a run of {held}: name another with --runs", subject=self._folder)
        return manifest

    def _inputs(self) -> tuple[str, ...]:
        return (*self._given.inputs, *filter(None, [self._given.start_column]))

    def _sort(self, cluster: ClusterMap) -> Manifest:
        from pyspark.sql import functions as F  # noqa: N812

        from shoal_pipeline.bulk import memberships, runs

        began_s = time.monotonic()
        self._say(f"reading {', '.join(self._given.inputs)}")
        given = self._given
        rows = memberships.read_memberships(self._session, given.inputs, given.format, given.start_column)
        judged = memberships.judge(rows)
        if given.rejects:
            rejects = memberships.shown_rejects(rows)
            self._outputs.write(given.rejects, "rejects", "", lambda folder: rejects.write.json(folder))
            self._say(f"{judged.bad:,} bad rows are in {given.rejects}")
        else:
            judged.refuse()
        judged_s = time.monotonic()
        parts = max(self._session.sparkContext.defaultParallelism, -(-judged.rows // ROWS_PER_PART))
        good = rows.where(F.col("problem").isNull())
        self._outputs.mark(self._folder, "run")
        runs.write_chunks(good, cluster.partition_map, self._folder, parts)
        found = runs.summary(self._session, self._folder, cluster.slices)
        manifest = runs.Manifest(secrets.token_hex(RUN_BYTES), self._inputs(), cluster.partition_map, found, judged.bad)
        runs.write_line(self._session, f"{self._folder}/manifest", manifest.encode())
        ended_s = time.monotonic()
        self._say(
            f"sorted {manifest.memberships:,} memberships into {sum(one.chunks for one in found):,} chunks:"
            f" judged in {judged_s - began_s:.1f} s, sorted in {ended_s - judged_s:.1f} s"
        )
        return manifest

    def _import(self, manifest: Manifest) -> int:
        """Returns how many memberships were refused. Slices are loaded at the same time, each by one task at a time."""
        began_s = time.monotonic()
        stopped = Event()
        watch = Thread(target=self._watch, args=(manifest, stopped), name="import progress", daemon=True)
        watch.start()
        try:
            with ThreadPoolExecutor(min(SLICES_AT_ONCE_MAX, max(1, len(manifest.slices)))) as pool:
                by_slice = list(pool.map(lambda one: self._import_slice(manifest, one), manifest.slices))
        finally:
            stopped.set()
            watch.join()
        rows = [row for rows in by_slice for row in rows]
        totals: dict[str, int] = {
            name: sum(row[name] or 0 for row in rows) for name in ("queues_made", "bindings_made", "refused")
        }
        for row in [row for row in rows if row["queue"] is not None][:REFUSALS_SHOWN_MAX]:
            self._say(f"refused: queue {show(bytes(row['queue']))}: {row['problem']}")
        self._say(
            f"imported: {totals['bindings_made']:,} memberships made, and {totals['queues_made']:,} parts of queues: one"
            " on each slice that keeps some of a queue's keys;"
            f" {totals['refused']:,} refused, in {time.monotonic() - began_s:.1f} s"
        )
        return totals["refused"]

    def _import_slice(self, manifest: Manifest, to: SliceRun) -> list[Any]:
        """Imports a slice's parts one by one, each in one task. It goes on at the chunk where the slice is."""
        found: list[Any] = []
        before = 0
        for part, chunks in to.parts:
            attempt = partial(self._import_part, manifest, to.slice, part, before, before + chunks)
            found += again_if_away(to.slice, attempt, self._say, partial(self._imported, manifest, to.slice))
            before += chunks
        return found

    def _import_part(self, manifest: Manifest, slice_name: str, part: int, before: int, last: int) -> list[Any]:
        """Imports chunks `before` + 1 to `last` of a slice. Returns rows of IMPORTED."""
        from shoal_pipeline.bulk.cluster import last_chunk
        from shoal_pipeline.bulk.importing import IMPORTED, importer
        from shoal_pipeline.bulk.runs import chunks_of

        target = self._target(manifest, slice_name)
        if last_chunk(slice_name, target.address, target.run) >= last:
            return []
        index = manifest.partition_map.slices.index(slice_name)
        chunks = chunks_of(self._session, self._folder).where(f"slice = {index} and part = {part}")
        in_order = chunks.coalesce(1).sortWithinPartitions("number")
        return in_order.mapInArrow(importer(target, before), IMPORTED).collect()

    def _imported(self, manifest: Manifest, slice_name: str) -> int:
        """Returns the last chunk that a slice has; 0 where it does not answer."""
        from shoal_pipeline.bulk.cluster import last_chunk

        with suppress(ShoalError):
            target = self._target(manifest, slice_name)
            return last_chunk(slice_name, target.address, target.run)
        return 0

    def _target(self, manifest: Manifest, slice_name: str) -> Target:
        from shoal_pipeline.bulk.cluster import fetch_map
        from shoal_pipeline.bulk.importing import Target

        address = fetch_map(self._given.at).admin_address_of(slice_name)
        return Target(slice_name, address, bytes.fromhex(manifest.run), self._folder)

    def _verify(self, manifest: Manifest) -> int:
        """Returns how many memberships are missing."""
        from shoal_pipeline.bulk.importing import VERIFIED, shown_missing, verifier
        from shoal_pipeline.bulk.runs import chunks_of

        began_s = time.monotonic()

        def attempt() -> list[Any]:
            targets = [self._target(manifest, name) for name in manifest.partition_map.slices]
            return chunks_of(self._session, self._folder).mapInArrow(verifier(targets), VERIFIED).collect()

        rows = again_if_away("a slice", attempt, self._say)
        found, missing = (sum(int(row[name]) for row in rows) for name in ("found", "missing"))
        expected = sum(one.expected for one in manifest.slices)
        self._say(f"verified: {found:,} of {expected:,} found, in {time.monotonic() - began_s:.1f} s")
        for row in [row for row in rows if row["missing"]][:1]:
            self._say(f"missing: {shown_missing(row)}")
        return missing if found + missing == expected else max(missing, expected - found)

    def _watch(self, manifest: Manifest, stopped: Event) -> None:
        """Reports how far the slices are, by their own answers."""
        from shoal_pipeline.bulk.cluster import fetch_map, last_chunk

        chunks, run = sum(one.chunks for one in manifest.slices), bytes.fromhex(manifest.run)
        while not stopped.wait(PROGRESS_S):
            with suppress(ShoalError):
                cluster = fetch_map(self._given.at)
                done = sum(last_chunk(one.slice, cluster.admin_address_of(one.slice), run) for one in manifest.slices)
                self._say(f"imported {done:,} of {chunks:,} chunks ({done / chunks:.0%})")


@contextmanager
def _small_batches(session: SparkSession) -> Iterator[None]:
    """Makes Arrow batches small: a chunk is thousands of times larger than the rows of other jobs."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = session.conf.get(name)
    session.conf.set(name, CHUNKS_PER_BATCH)
    try:
        yield
    finally:
        if before is not None:
            session.conf.set(name, before)


def _same_owners(manifest: Manifest, cluster: ClusterMap) -> bool:
    before, now = manifest.partition_map, cluster.partition_map
    return (before.slices, before.owners) == (now.slices, now.owners)
