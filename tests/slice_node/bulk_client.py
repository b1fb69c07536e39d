"""Chunks of imports, what a slice answers to them, and who reads exports: for tests of the core and of a node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from zlib import crc32

import grpc
import psutil

from shoal_contract.wire import bulk_pb2 as wire
from shoal_contract.wire import slice_pb2
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub

if TYPE_CHECKING:
    from shoal_contract.wire.bulk_pb2_grpc import BulkServiceAsyncStub

Memberships = Mapping[bytes, Sequence[bytes]]
"""Queue -> its keys."""

RUN = bytes(range(1, 17))


def imports(memberships: Memberships, starts: Sequence[int] = ()) -> slice_pb2.Step:
    step = slice_pb2.Imports(starts=starts)
    for queue, keys in memberships.items():
        step.queues.append(queue)
        step.key_counts.append(len(keys))
        step.keys.extend(keys)
    return slice_pb2.Step(imports=step)


def chunk(number: int, step: slice_pb2.Step, run: bytes = RUN) -> wire.ImportRequest:
    change = slice_pb2.Change(steps=[step]).SerializeToString()
    return wire.ImportRequest(run=run, chunk=number, change=change, checksum=crc32(change))


@asynccontextmanager
async def bulk_stub(address: str) -> AsyncIterator[BulkServiceAsyncStub]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield BulkServiceStub(channel)


async def import_all(stub: BulkServiceAsyncStub, chunks: Iterable[wire.ImportRequest]) -> list[wire.ImportResponse]:
    return [answer async for answer in stub.Import(iter(chunks))]


async def verify_all(stub: BulkServiceAsyncStub, chunks: Iterable[wire.ImportRequest]) -> list[wire.VerifyResponse]:
    requests = [wire.VerifyRequest(chunk=one.chunk, change=one.change) for one in chunks]
    return [answer async for answer in stub.Verify(iter(requests))]


def live_memberships(pages: Iterable[wire.ExportResponse]) -> dict[bytes, set[bytes]]:
    """Queue -> keys it is bound to."""
    found: dict[bytes, set[bytes]] = {}
    for page in pages:
        position = 0
        for queue, count in zip(page.queues, page.key_counts, strict=True):
            keys = found.setdefault(queue, set())
            for index in range(position, position + count):
                if not page.ends[index]:
                    assert page.keys[index] not in keys, f"{queue!r} has {page.keys[index]!r} twice"
                    keys.add(page.keys[index])
            position += count
    return found


def snapshots() -> list[psutil.Process]:
    """The processes that read for exports and verifications."""
    found = []
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # It may end while it is asked.
            if "shoal_slice_node.processes.snapshot_process" in child.cmdline():
                found.append(child)
    return found
