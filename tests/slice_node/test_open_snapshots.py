"""What open snapshots cost the disk is bounded: a client that reads slowly, but steadily, made the store grow without
end."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire.bulk_pb2 import ExportRequest, VerifyRequest
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_slice_node.adapters import open_snapshots
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.open_snapshots import OpenSnapshots
from shoal_slice_node.adapters.store import StoreSize

from .brokers import running, served
from .bulk_client import bulk_stub, chunk, import_all, imports, snapshots
from .raw_session import NARROW

WAIT_S = 60
MIB = 1 << 20
GIB = 1 << 30
CHECKPOINTS_MAX = 12
PARTS = 40


class Checkpoints:
    """A store of a given size, and its checkpoints."""

    def __init__(self) -> None:
        self.size = StoreSize(3 * GIB, 3 * GIB, 100 * GIB)
        self.open = OpenSnapshots(lambda: self.size, self.next_one)
        self._next: asyncio.Future[None] | None = None

    def next_one(self) -> asyncio.Future[None]:
        if self._next is None or self._next.done():
            self._next = asyncio.get_running_loop().create_future()
        return asyncio.shield(self._next)

    async def write(self, file_bytes: int) -> None:
        self.size = self.size._replace(file_bytes=file_bytes)
        if self._next is not None:
            self._next.set_result(None)
        for _ in range(5):
            await asyncio.sleep(0)


def why(ending: asyncio.Task[None]) -> str:
    error = ending.exception() if ending.done() else None
    assert error is None or isinstance(error, ResourceExhausted)
    return "" if error is None else error.message


async def test_the_oldest_snapshot_ends_once_the_store_grows_beside_many_unused_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(open_snapshots, "SNAPSHOT_SPARED_S", 0)
    store = Checkpoints()
    with store.open.opened("export") as old, store.open.opened("verification") as young:
        endings = [asyncio.ensure_future(store.open.end_of(one)) for one in (old, young)]
        for file_bytes in (4 * GIB, 6 * GIB, 6 * GIB):
            await store.write(file_bytes)
            assert not any(map(why, endings)), "as much may be unused as the tables take"
        await store.write(6 * GIB + MIB)
        assert "this export has kept" in why(endings[0]) and not why(endings[1])
        await store.write(6 * GIB + 2 * MIB)
        assert not why(endings[1]), "the first one has not closed yet"
        store.open._open.remove(old)
        await store.write(6 * GIB + 2 * MIB)
        assert not why(endings[1]), "what is unused is used again"
        await store.write(6 * GIB + 3 * MIB)
        assert "this verification has kept" in why(endings[1])
        store.open._open.insert(0, old)


async def test_a_snapshot_has_its_time_and_a_small_store_may_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Checkpoints()
    store.size = StoreSize(MIB, MIB, 100 * GIB)
    with store.open.opened("export") as young:
        ending = asyncio.ensure_future(store.open.end_of(young))
        await store.write(10 * GIB)
        assert not why(ending), "it has a minute"
        monkeypatch.setattr(open_snapshots, "SNAPSHOT_SPARED_S", 0)
        await store.write(2 * GIB)
        await store.write(2 * GIB + MIB)
        assert not why(ending)
        store.size = store.size._replace(disk_free_bytes=GIB)
        await store.write(2 * GIB + 2 * MIB)
        assert f"the limit is {GIB}" in why(ending), "no more than the disk has left"


async def churn(broker: Broker, stub: Any, number: int) -> None:
    """Binds all queues to one more key, in PARTS chunks, and checkpoints."""
    parts = []
    for part in range(PARTS):
        queues = {b"%03d-" % part + b"x" * 240 + b"%03d" % queue: [b"k%d" % number] for queue in range(500)}
        parts.append(chunk(number * PARTS + part + 1, imports(queues)))
    await import_all(stub, parts)
    await broker.checkpointed()


@pytest.mark.parametrize("call", ["verification", "export"])
async def test_a_client_that_reads_slowly_for_ever_does_not_keep_its_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(open_snapshots, "SNAPSHOT_SPARED_S", 0)
    monkeypatch.setattr(open_snapshots, "SNAPSHOT_UNUSED_BYTES", MIB)
    async with (
        running(tmp_path) as broker,
        served(broker, tmp_path) as address,
        bulk_stub(address) as stub,
        grpc.aio.insecure_channel(address, NARROW) as narrow,
        asyncio.timeout(WAIT_S),
    ):
        await churn(broker, stub, 0)
        slow, change = BulkServiceStub(narrow), chunk(1, imports({b"q": [b"k"]})).change
        held: Any = slow.Export(ExportRequest()) if call == "export" else slow.Verify()
        ended = asyncio.ensure_future(held.code())
        for number in range(1, CHECKPOINTS_MAX):
            if call == "verification" and not ended.done():
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    await held.write(VerifyRequest(chunk=number, change=change))
                    await held.read()
            await churn(broker, stub, number)
            if not snapshots():
                break
        assert not snapshots(), f"{broker.store.size} after {CHECKPOINTS_MAX} checkpoints"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            while await held.read() is not grpc.aio.EOF:
                pass
        error = from_rpc_error(caught.value)
        assert isinstance(error, ResourceExhausted) and f"this {call} has kept its snapshot" in error.message
