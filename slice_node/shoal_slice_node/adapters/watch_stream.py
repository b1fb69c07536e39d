"""Serves one watch: a stream of what is told of a key's members, or of the counts under a prefix.

It holds one response at a time, and no changes: a client that reads slowly falls behind, and the core gives it a
snapshot when what it lacks is no longer remembered. A snapshot's parts count among answers until the last one is read.
Not here: what is told (core/watching).
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import grpc

from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.aborting import send_headers, write
from shoal_slice_node.adapters.answer_room import Reservation
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.limits import WATCH_WRITE_COSTS, WATCH_WRITE_S
from shoal_slice_node.adapters.watch_writes import WatchWrite
from shoal_slice_node.core.node.reads import Length
from shoal_slice_node.core.node.requests import as_shoal_error
from shoal_slice_node.core.turns import Source
from shoal_slice_node.core.watching.limits import PART_BYTES_MAX
from shoal_slice_node.core.watching.watcher import Watcher

Context = grpc.aio.ServicerContext[Any, Any]


def _nothing() -> None:
    """Gives no place back: none was needed."""


class WatchStream:
    """Serves one watch, until its client leaves or the slice ends it."""

    def __init__(self, broker: Broker, context: Context) -> None:
        self._broker = broker
        self._context = context
        self._wake = asyncio.Event()
        self._kept: Reservation | None = None
        """The reservation of a snapshot that has more parts."""

    async def serve(self, request: wire.WatchRequest) -> None:
        """Raises what the watch is refused with or ends by: Malformed, InvalidName, NotOwner, ResourceExhausted,
        DeadlineExceeded, Fenced."""
        broker, connection = self._broker, self._context.peer()
        await broker.commit_loop.between_records.wait()
        watcher = broker.node.watching.watch(request, connection)
        source = Source(connection, f"watch {watcher.number}")
        broker.watch_wakers[watcher.number] = self._wake.set
        broker.start_due_work()  # A key that is new here has its members to be looked up.
        try:
            await send_headers(self._context)
            while True:
                self._wake.clear()
                while await self._tell(watcher, source):
                    pass
                await self._wake.wait()
        finally:
            if self._kept is not None:
                self._kept.release()
            del broker.watch_wakers[watcher.number]
            broker.node.turns.drop(source)
            broker.commit_loop.between(lambda: broker.node.watching.end_watch(watcher, steady_ms()))

    async def _tell(self, watcher: Watcher, source: Source) -> bool:
        """Writes the next response. Returns False if there is none now."""
        broker, lists_keys = self._broker, self._broker.node.watching.lists_keys(watcher)
        async with broker.snapshots.place(self._context.peer()) if lists_keys else nullcontext(_nothing) as gathered:
            kept, self._kept = self._kept, None
            reservation = kept or await broker.answers.reserved(source.connection, PART_BYTES_MAX, Length.LARGE)
            try:
                response = await self._answer(watcher, source, lists_keys)
                gathered()
                if response is None:
                    return False
                data, rest_bytes = response.SerializeToString(), watcher.rest_bytes
                del response  # What waits is what is counted.
                await broker.write_turns.turn(source.connection, WATCH_WRITE_COSTS * len(data))
                broker.check_may_answer()
                await self._write(data, reservation, rest_bytes)
                if watcher.parts:
                    reservation.settle(rest_bytes)
                    self._kept = reservation
                return True
            finally:
                if self._kept is None:
                    reservation.release()

    async def _answer(self, watcher: Watcher, source: Source, lists_keys: bool) -> wire.WatchResponse | None:
        """Asks the core, in turns with other work. `lists_keys`: it has a place for a page of a snapshot."""
        told: asyncio.Future[wire.WatchResponse | None] = asyncio.get_running_loop().create_future()

        def done(response: wire.WatchResponse | None, error: Exception | None) -> None:
            if told.done():
                return
            if error is None:
                told.set_result(response)
            else:
                told.set_exception(as_shoal_error(error))

        self._broker.add_work(source, self._broker.node.watching.answer(watcher, steady_ms(), lists_keys), done)
        return await told

    async def _write(self, data: bytes, reservation: Reservation, rest_bytes: int) -> None:
        """Raises DeadlineExceeded if the client does not read. `rest_bytes`: what later parts take meanwhile."""
        reservation.settle(len(data) + rest_bytes)
        timeout = asyncio.timeout(WATCH_WRITE_S)
        writing = WatchWrite(self._context.peer(), reservation.bytes, lambda: timeout.reschedule(0))
        self._broker.watch_writes.began(writing)
        try:
            async with timeout:
                await write(self._context, data)
        except TimeoutError:
            raise writing.error() from None
        finally:
            self._broker.watch_writes.over(writing)
