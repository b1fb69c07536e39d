"""Serves one Import call: reads chunks, journals and applies them among all other changes, and answers in order.

A run is a producer, and its chunks are numbered frames. A repeated chunk gets its first answer and changes nothing,
also after reconnects and restarts of either end. Not here: what an import does (core/apply/imports).
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any
from zlib import crc32

import grpc

from shoal_contract.errors import Malformed, OutOfRange, ShoalError, TooLarge
from shoal_contract.limits import IMPORT_OPERATIONS_MAX, RUN_BYTES
from shoal_contract.wire import bulk_pb2 as wire
from shoal_runtime.aborting import send_headers, write
from shoal_runtime.client_patience import ClientPatience, Turn
from shoal_runtime.places import Places
from shoal_runtime.tasks import Tasks
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import (
    IMPORT_CHUNKS_IN_FLIGHT,
    IMPORT_STALL_CROWDED_S,
    IMPORT_STALL_S,
    IMPORT_TURN_S,
)
from shoal_slice_node.adapters.unary import parse
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.producers import only_step
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.limited_binds import check_imports
from shoal_slice_node.core.rows.producer_row import decode_producer
from shoal_slice_node.core.verbs.changes import parse_import

Context = grpc.aio.ServicerContext[Any, Any]


def last_chunk(broker: Broker, run: bytes) -> int:
    """Returns the number of the last durable chunk of a run; 0: none. Raises Malformed."""
    if len(run) != RUN_BYTES or run == NO_PRODUCER:
        raise Malformed(f"run is {len(run)} bytes; it needs {RUN_BYTES}, not all zero", subject="run")
    row = broker.state.tables.producer.get(run)
    return 0 if row is None else decode_producer(row).last


class ImportStream:
    """Serves one import. `serve` runs until the client has sent all chunks and has every answer, or one chunk is
    refused. `places`: the import has one of these places while it runs."""

    def __init__(self, broker: Broker, context: Context, places: Places) -> None:
        self._broker = broker
        self._context = context
        self._patience = ClientPatience(places, "import", IMPORT_STALL_S, IMPORT_STALL_CROWDED_S, "resume it")
        self._source = f"import {context.peer()}"
        self._next = 0
        """The highest number that the next chunk may have; 0 before the first chunk."""
        self._room = asyncio.Semaphore(IMPORT_CHUNKS_IN_FLIGHT)
        self._answers: asyncio.Queue[tuple[bytes, bool] | None] = asyncio.Queue()
        """The answers to be written, bounded by `_room`: each serialized, as its message takes many times that, and
        whether it is the last one. None: no more will come."""

    async def serve(self) -> None:
        """Serves the call. Raises the errors that refuse the whole call: Malformed, TooLarge, OutOfRange, and those of
        `_stall`."""
        async with self._stall("read"):
            await send_headers(self._context)
        async with Tasks("import") as tasks:
            writer = tasks.start("write", self._write(), awaited=True)
            reader = tasks.start("read", self._read(), awaited=True)
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if reader.done():
                reader.result()
            await writer

    def _stall(self, does: str) -> AbstractAsyncContextManager[None]:
        """Bounds a wait for the client. Raises DeadlineExceeded, ResourceExhausted where others wait."""
        return self._patience.waiting(self._context.peer(), does)

    async def _read(self) -> None:
        turn = Turn(self._patience, self._context.peer(), IMPORT_TURN_S)
        last: wire.ImportResponse | None = None
        while last is None:
            async with turn.waiting("sent"):
                data = await self._context.read()
            if data is grpc.aio.EOF:
                break
            turn.check()
            self._broker.watchman.unread.read(self._context.peer(), len(data))
            request = parse(wire.ImportRequest, data, {})
            await self._room.acquire()
            await self._broker.commit_loop.room(self._source)
            await self._broker.checkpoints.room_for_imports()
            try:
                self._submit(request)
            except ShoalError as error:
                last = wire.ImportResponse(chunk=request.chunk, error=error.to_wire())
        # This item comes after all chunks that are under way, so their answers come first.
        end = Item(0, None, lambda _: self._put(last), lambda _: self._put(last))
        self._broker.commit_loop.submit(end, self._source)

    def _put(self, answer: wire.ImportResponse | None) -> None:
        self._answers.put_nowait(None if answer is None else (answer.SerializeToString(), answer.HasField("error")))

    def _submit(self, request: wire.ImportRequest) -> None:
        """Checks a chunk and submits it. Raises Malformed, OutOfRange, TooLarge."""
        self._check_number(request)
        if crc32(request.change) != request.checksum:
            text = f"chunk {request.chunk}: its checksum is wrong, so it was damaged on the way: send it again"
            raise Malformed(text, subject="checksum")
        checked = parse_import(request.change)
        if checked.operations > IMPORT_OPERATIONS_MAX:
            raise TooLarge(
                f"chunk {request.chunk} has {checked.operations} queues and keys; the limit is {IMPORT_OPERATIONS_MAX}",
                subject="operations per chunk",
                limit=IMPORT_OPERATIONS_MAX,
                value=checked.operations,
            )
        self._broker.check_takes_changes()
        if request.chunk > last_chunk(self._broker, request.run):
            check_imports(self._broker.dispatcher.registry, checked.change.steps[0].imports)
        # The client has the answers of all chunks up to this one: no more chunks than that are under way.
        settled = max(0, request.chunk - 2 * IMPORT_CHUNKS_IN_FLIGHT)
        number = request.chunk  # The callbacks keep only the number: the request would keep the bytes a second time.
        payload = encode_change(ChangeHead(request.run, request.chunk, settled), request.change)

        def applied(effects: Effects) -> None:
            self._put(_answer(number, effects))

        def failed(error: ShoalError) -> None:
            self._put(wire.ImportResponse(chunk=number, error=error.to_wire()))

        item = Item(Kind.CHANGE, payload, applied, failed, checked, checked.operations)
        self._broker.commit_loop.submit(item, self._source)

    def _check_number(self, request: wire.ImportRequest) -> None:
        limit = self._next or last_chunk(self._broker, request.run) + 1
        if not 1 <= request.chunk <= limit:
            raise OutOfRange(
                f"chunk {request.chunk} of the run may not come yet; the next is {limit}",
                subject="chunk",
                limit=limit,
                value=request.chunk,
            )
        self._next = max(limit, request.chunk + 1)

    async def _write(self) -> None:
        while (answer := await self._answers.get()) is not None:
            data, is_last = answer
            self._broker.check_may_answer()
            async with self._stall("read"):
                await write(self._context, data)
            self._room.release()
            if is_last:
                return


def _answer(chunk: int, effects: Effects) -> wire.ImportResponse:
    if effects.refused is not None:
        return wire.ImportResponse(chunk=chunk, error=effects.refused.to_wire())
    assert effects.outcome is not None
    try:
        step = only_step(effects.outcome, chunk)
    except ShoalError as error:
        return wire.ImportResponse(chunk=chunk, error=error.to_wire())
    return wire.ImportResponse(
        chunk=chunk, queues_made=step.queues_made, bindings_made=step.bindings_made, refusals=step.refusals
    )
