"""Serves BulkService over gRPC: bulk load, verification and export.

Verify and Export pass on the messages of a snapshot process without parsing them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any

import grpc

from shoal_contract.errors import ShoalError
from shoal_contract.wire import bulk_pb2 as wire
from shoal_runtime.aborting import abort, send_headers, write
from shoal_runtime.client_patience import ClientPatience, Turn
from shoal_runtime.places import Places, PlacesLimits
from shoal_runtime.tasks import Tasks
from shoal_runtime.unread import Unread
from shoal_slice_node.adapters.admission import Admission
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.import_stream import ImportStream, last_chunk
from shoal_slice_node.adapters.limits import (
    EXPORTS,
    IMPORTS,
    SNAPSHOT_MESSAGE_S,
    SNAPSHOT_STALL_CROWDED_S,
    SNAPSHOT_STALL_S,
    VERIFICATIONS,
    VERIFY_TURN_S,
)
from shoal_slice_node.adapters.open_snapshots import OpenSnapshot, OpenSnapshots
from shoal_slice_node.adapters.unary import Call, Unary, unary_handlers
from shoal_slice_node.processes.snapshot import Snapshot

SERVICE = "shoal.v1.BulkService"
Context = grpc.aio.ServicerContext[Any, Any]


class BulkService:
    """Serves imports, verifications and exports. `store_folder`: the folder of the broker's checkpoint."""

    def __init__(self, broker: Broker, store_folder: Path) -> None:
        self._broker = broker
        self._store_folder = store_folder
        self._exports = _patience("exports", "export", EXPORTS)
        self._verifications = _patience("verifications", "verification", VERIFICATIONS)
        self._imports = Places("imports", IMPORTS)
        self._open_snapshots = OpenSnapshots(lambda: broker.store.size, broker.checkpoints.next_end)

    async def import_chunks(self, _: object, context: Context) -> None:
        """Serves one import. Its chunks are read only once it has a place, since the transport may hold a chunk of the
        largest size for each import."""
        try:
            async with self._imports.place(context.peer()):
                await ImportStream(self._broker, context, self._imports).serve()
        except ShoalError as error:
            await abort(context, error)

    async def import_status(self, request: wire.ImportStatusRequest, call: Call) -> wire.ImportStatusResponse:
        """Returns the last durable chunk of a run. Raises Malformed."""
        return wire.ImportStatusResponse(chunk=last_chunk(self._broker, request.run))

    async def verify(self, _: object, context: Context) -> None:
        try:
            async with self._snapshot("verify", self._verifications, context) as (snapshot, turn, opened):
                sending = self._send_all(context, snapshot, turn)
                await self._work(opened, sending, _forward(snapshot, context, turn, self._broker.watchman.unread))
        except ShoalError as error:
            await abort(context, error)

    async def export(self, _: object, context: Context) -> None:
        """Serves one export. Its request has no content, and is read only once the export has a place: gRPC's own
        unary handler would read it earlier, whatever its size."""
        try:
            async with self._snapshot("export", self._exports, context) as (snapshot, turn, opened):
                async with turn.waiting("sent"):
                    await context.read()
                await self._work(opened, _forward(snapshot, context, turn, self._broker.watchman.unread))
        except ShoalError as error:
            await abort(context, error)

    @asynccontextmanager
    async def _snapshot(
        self, mode: str, patience: ClientPatience, context: Context
    ) -> AsyncIterator[tuple[Snapshot, Turn, OpenSnapshot]]:
        """Opens a snapshot of everything that is applied when its turn comes. Raises ResourceExhausted where too many
        wait, Unavailable if no checkpoint can be written."""
        async with patience.places.place(context.peer()):
            await self._broker.checkpointed()
            with self._open_snapshots.opened(patience.call) as opened:
                snapshot = await Snapshot.start(self._store_folder, mode)
                try:
                    turn_s = VERIFY_TURN_S if patience is self._verifications else inf
                    yield snapshot, Turn(patience, context.peer(), turn_s, SNAPSHOT_MESSAGE_S), opened
                finally:
                    await snapshot.close()

    async def _work(self, opened: OpenSnapshot, *parts: Coroutine[None, None, None]) -> None:
        """Runs the parts of one call to their end. Raises the error of the first that fails; ResourceExhausted where
        the snapshot must end."""
        async with Tasks(opened.call) as tasks:
            ending = tasks.start("pages", self._open_snapshots.end_of(opened), awaited=True)
            working = {tasks.start("part", part, awaited=True) for part in parts}
            while working:
                done, _ = await asyncio.wait({ending, *working}, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                working -= done

    async def _send_all(self, context: Context, snapshot: Snapshot, turn: Turn) -> None:
        """Sends the client's requests to the snapshot process. Raises DeadlineExceeded if the client stops sending,
        ResourceExhausted where others wait for its place."""
        while True:
            async with turn.waiting("sent"):
                request = await context.read()
            if request is grpc.aio.EOF:
                break
            turn.check()
            self._broker.watchman.unread.read(context.peer(), len(request))
            await snapshot.send(request)
        await snapshot.no_more()


async def _forward(snapshot: Snapshot, context: Context, turn: Turn, unread: Unread) -> None:
    """Passes the snapshot's messages on to the client. Raises DeadlineExceeded if the client stops reading,
    ResourceExhausted where others wait for its place."""
    async with turn.waiting("read"):
        await send_headers(context)
    while (message := await snapshot.receive()) is not None:
        turn.check()
        async with turn.waiting("read"):
            await write(context, message)
            unread.answered(len(message))


def _patience(what: str, call: str, limits: PlacesLimits) -> ClientPatience:
    return ClientPatience(Places(what, limits), call, SNAPSHOT_STALL_S, SNAPSHOT_STALL_CROWDED_S)


def bulk_handlers(broker: Broker, store_folder: Path, admission: Admission) -> Sequence[grpc.GenericRpcHandler]:
    """Returns the handlers of BulkService, to be added to a server. Without a serializer gRPC passes bytes through."""
    service = BulkService(broker, store_folder)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        name: grpc.stream_stream_rpc_method_handler(broker.watchman.unread.counted(serve))
        for name, serve in (("Import", service.import_chunks), ("Verify", service.verify), ("Export", service.export))
    }
    status = {"ImportStatus": Unary(wire.ImportStatusRequest, service.import_status)}
    return (
        grpc.method_handlers_generic_handler(SERVICE, handlers),
        unary_handlers(SERVICE, status, admission),
    )
