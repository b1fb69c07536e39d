"""Sends a run's chunks to the slices from Spark's Python workers, and verifies them there.

Belongs here: the work in a worker. Not here: in what order and how often (load.py), the run's files (runs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from shoal_contract.errors import Corrupt, NotOwner, from_wire
from shoal_contract.names import show
from shoal_contract.wire import bulk_pb2 as wire
from shoal_contract.wire.slice_pb2 import Change
from shoal_pipeline.bulk.cluster import bulk_stub, last_chunk
from shoal_pipeline.limits import REFUSALS_SHOWN_MAX

Batches = Iterator[pa.RecordBatch]

IMPORTED = StructType(
    [
        *(StructField(name, LongType()) for name in ("chunks", "queues_made", "bindings_made", "refused")),
        StructField("queue", BinaryType()),
        StructField("problem", StringType()),
    ]
)
"""The columns of an import's result: the totals of a part in one row (queue null), and a row for each refused queue
that is shown (totals null)."""

VERIFIED = StructType(
    [
        StructField("slice", IntegerType()),
        *(StructField(name, LongType()) for name in ("found", "missing")),
        *(StructField(name, BinaryType()) for name in ("queue", "key")),
    ]
)
"""The columns of a verification's result. `queue`, `key`: the first that is missing."""


class StoredChunk(NamedTuple):
    """Holds one row of the run's files."""

    slice: int
    checksum: int
    change: bytes


@dataclass(frozen=True, slots=True)
class Target:
    """Names one slice, and the run that is sent to it. `where`: the run's folder, for messages."""

    slice: str
    address: str
    run: bytes
    where: str


def stored_chunks(batches: Batches, where: str) -> Iterator[StoredChunk]:
    """Yields the chunks of a run's files. Raises Corrupt where a chunk is not what was written."""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("slice", "part", "number", "checksum", "change")]
        for slice_index, part, number, checksum, change in zip(*columns, strict=True):
            if crc32(change) != checksum:
                file = f"{where}/chunks"
                raise Corrupt(f"{file}: chunk {number} of part {part} is damaged: sort again", subject=file)
            yield StoredChunk(slice_index, checksum, change)


def importer(target: Target, before: int) -> Callable[[Batches], Batches]:
    """Returns a function that imports the chunks of one part of a slice's run, in order, in one task. `before`: how
    many chunks the earlier parts have."""

    def bring(batches: Batches) -> Batches:
        first = last_chunk(target.slice, target.address, target.run) + 1
        numbered = enumerate(stored_chunks(batches, target.where), before + 1)
        sent: dict[int, bytes] = {}

        def requests() -> Iterator[wire.ImportRequest]:
            for number, chunk in numbered:
                if number >= first:
                    sent[number] = chunk.change
                    yield wire.ImportRequest(run=target.run, chunk=number, change=chunk.change, checksum=chunk.checksum)

        yield _imported(_answers(target, _failing_here(requests())), sent)

    return bring


class _failing_here:  # noqa: N801 - used as a function
    """Iterates over requests, and keeps an error that occurs there, to be raised where the answers are read: gRPC
    itself would only cancel the call."""

    def __init__(self, requests: Iterator[wire.ImportRequest]) -> None:
        self._requests = requests
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[wire.ImportRequest]:
        try:
            yield from self._requests
        except Exception as error:
            self.error = error
            raise


def _answers(target: Target, requests: _failing_here) -> Iterator[wire.ImportResponse]:
    """Yields the answers to chunks. The stream begins only when its first chunk is ready: it holds one of few places at
    the slice, and sorting and skipping the chunks that the slice already has may take minutes."""
    try:
        chunks = iter(requests)
        first = next(chunks, None)
        if first is None:
            return
        with bulk_stub(target.slice, target.address) as stub:
            for answer in stub.Import(chain((first,), chunks)):
                if answer.HasField("error"):
                    raise from_wire(answer.error)
                yield answer
    except Exception:
        if requests.error is not None:
            raise requests.error from None
        raise


def _imported(answers: Iterator[wire.ImportResponse], sent: dict[int, bytes]) -> pa.RecordBatch:
    total: dict[str, Any] = {"chunks": 0, "queues_made": 0, "bindings_made": 0, "refused": 0}
    shown: list[dict[str, Any]] = []
    for answer in answers:
        change = sent.pop(answer.chunk)
        total["chunks"] += 1
        total["queues_made"] += answer.queues_made
        total["bindings_made"] += answer.bindings_made
        if answer.refusals:
            step = Change.FromString(change).steps[0].imports
            for refusal in answer.refusals:
                error = from_wire(refusal.error)
                if isinstance(error, NotOwner):
                    raise NotOwner(f"{error.message}: the cluster's map changed; load again, it sorts anew")
                total["refused"] += max(1, step.key_counts[refusal.request])
                if len(shown) < REFUSALS_SHOWN_MAX:
                    shown.append({"queue": step.queues[refusal.request], "problem": error.message})
    return pa.RecordBatch.from_pylist([total, *shown], schema=to_arrow_schema(IMPORTED))


def verifier(targets: list[Target]) -> Callable[[Batches], Batches]:
    """Returns a function that verifies chunks of any slices, those of one slice together. `targets`: by the manifest's
    index."""

    def verify(batches: Batches) -> Batches:
        for index, chunks in groupby(stored_chunks(batches, targets[0].where), lambda chunk: chunk.slice):
            yield pa.RecordBatch.from_pylist(
                [_verified(targets[index], index, chunks)], schema=to_arrow_schema(VERIFIED)
            )

    return verify


def _verified(target: Target, index: int, chunks: Iterator[StoredChunk]) -> dict[str, Any]:
    total: dict[str, Any] = {"slice": index, "found": 0, "missing": 0, "queue": None, "key": None}
    requests = (wire.VerifyRequest(chunk=number, change=chunk.change) for number, chunk in enumerate(chunks, 1))
    with bulk_stub(target.slice, target.address) as stub:
        for answer in stub.Verify(requests):
            total["found"] += answer.found
            total["missing"] += answer.missing
            if answer.missing and total["queue"] is None:
                total["queue"], total["key"] = answer.missing_queue, answer.missing_key
    return total


def shown_missing(row: Any) -> str:
    """Returns the missing item of a VERIFIED row, for people."""
    if not row["key"]:
        return f"queue {show(bytes(row['queue']))}"
    return f"queue {show(bytes(row['queue']))} in key {show(bytes(row['key']))}"
