"""gRPC's side of bulk load and export. Verify and Export carry bytes that another process made: not parsed here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from shoal_contract.errors import DeadlineExceeded, ResourceExhausted, ShoalError
from shoal_contract.grpc_errors import abort, send_headers
from shoal_contract.tasks import Tasks
from shoal_contract.wire import bulk_pb2 as wire
from shoal_slice_node.adapters.admission import Admission
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.import_stream import ImportStream, last_chunk
from shoal_slice_node.adapters.limits import SNAPSHOT_READERS_MAX, SNAPSHOT_STALL_S, SNAPSHOT_WAITERS_MAX
from shoal_slice_node.adapters.snapshot import Snapshot
from shoal_slice_node.adapters.unary import Call, Unary, unary_handlers

SERVICE = "shoal.v1.BulkService"
Context = grpc.aio.ServicerContext[Any, Any]


class BulkService:
    """`store_folder`: where the broker's checkpoint is."""

    def __init__(self, broker: Broker, store_folder: Path) -> None:
        self._broker = broker
        self._store_folder = store_folder
        self._waiting = 0
        self._places = asyncio.Semaphore(SNAPSHOT_READERS_MAX)

    async def import_chunks(self, _: object, context: Context) -> None:
        await ImportStream(self._broker, context).serve()

    async def import_status(self, request: wire.ImportStatusRequest, call: Call) -> wire.ImportStatusResponse:
        """Raises Malformed."""
        return wire.ImportStatusResponse(chunk=last_chunk(self._broker, request.run))

    async def verify(self, _: object, context: Context) -> None:
        try:
            async with self._snapshot("verify") as snapshot, Tasks("verify") as tasks:
                sending = tasks.start("send", _send_all(context, snapshot), awaited=True)
                forwarding = tasks.start("forward", _forward(snapshot, context), awaited=True)
                done, _ = await asyncio.wait((sending, forwarding), return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
        except ShoalError as error:
            await abort(context, error)

    async def export(self, _: bytes, context: Context) -> None:
        try:
            async with self._snapshot("export") as snapshot:
                await _forward(snapshot, context)
        except ShoalError as error:
            await abort(context, error)

    @asynccontextmanager
    async def _snapshot(self, mode: str) -> AsyncIterator[Snapshot]:
        """Of everything that is applied when its turn comes. Raises ResourceExhausted where too many wait."""
        if self._waiting >= SNAPSHOT_WAITERS_MAX:
            raise ResourceExhausted(
                f"{self._waiting} exports and verifications wait for their turn; the limit is {SNAPSHOT_WAITERS_MAX}",
                subject="snapshots",
                limit=SNAPSHOT_WAITERS_MAX,
                value=self._waiting + 1,
            )
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            await self._broker.checkpointed()
            snapshot = await Snapshot.start(self._store_folder, mode)
            try:
                yield snapshot
            finally:
                await snapshot.close()
        finally:
            self._places.release()


async def _send_all(context: Context, snapshot: Snapshot) -> None:
    """Raises DeadlineExceeded if the client stops sending."""
    while (request := await _next_request(context)) is not grpc.aio.EOF:
        await snapshot.send(request)
    await snapshot.no_more()


async def _next_request(context: Context) -> Any:
    try:
        async with asyncio.timeout(SNAPSHOT_STALL_S):
            return await context.read()
    except TimeoutError:
        raise DeadlineExceeded(
            f"the client sent nothing for {SNAPSHOT_STALL_S:g} s: its snapshot ends, ask again", subject="snapshot"
        ) from None


async def _forward(snapshot: Snapshot, context: Context) -> None:
    """Raises DeadlineExceeded if the client stops reading: a snapshot holds a place and pages of the store."""
    await send_headers(context)
    while (message := await snapshot.receive()) is not None:
        try:
            async with asyncio.timeout(SNAPSHOT_STALL_S):
                await context.write(message)
        except TimeoutError:
            raise DeadlineExceeded(
                f"the client read nothing for {SNAPSHOT_STALL_S:g} s: its snapshot ends, ask again", subject="snapshot"
            ) from None


def bulk_handlers(broker: Broker, store_folder: Path, admission: Admission) -> Sequence[grpc.GenericRpcHandler]:
    """To be added to a server. Without a serializer gRPC hands bytes through."""
    service = BulkService(broker, store_folder)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Import": grpc.stream_stream_rpc_method_handler(service.import_chunks),
        "Verify": grpc.stream_stream_rpc_method_handler(service.verify),
        "Export": grpc.unary_stream_rpc_method_handler(service.export),
    }
    status = {"ImportStatus": Unary(wire.ImportStatusRequest, service.import_status)}
    return (
        grpc.method_handlers_generic_handler(SERVICE, handlers),
        unary_handlers(SERVICE, status, admission),
    )
