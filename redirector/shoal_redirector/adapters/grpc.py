"""RedirectorService over gRPC (contract/proto/shoal/v1/redirector.proto), within the bounds of calls at a time.

A call has its place before its message is read, so calls that wait for one hold next to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_contract.grpc_errors import abort
from shoal_contract.grpc_requests import decode
from shoal_contract.limits import LOCATE_KEYS_MAX
from shoal_contract.wire import redirector_pb2 as wire
from shoal_redirector import limits
from shoal_redirector.adapters.board import Board
from shoal_redirector.adapters.steps import Steps, slices
from shoal_redirector.adapters.tally import Tally
from shoal_redirector.core.directory import Directory, check_keys, locate

SERVICE: Final = "shoal.v1.RedirectorService"
Context = grpc.aio.ServicerContext[Any, Any]


class RedirectorService:
    """Give `handlers` to a server. `tally.watchers_max` bounds the streams at a time."""

    def __init__(self, board: Board, tally: Tally) -> None:
        self._board = board
        self._tally = tally
        self._steps = Steps()
        self._locates = 0
        self._places = asyncio.Semaphore(limits.LOCATES_MAX)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Of both calls. What watchers get is encoded already, so it is passed on as it is."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                # As a stream of one message: so it is read only when its call has a place.
                "Locate": grpc.stream_unary_rpc_method_handler(
                    self.locate, None, wire.LocateResponse.SerializeToString
                ),
                "WatchMap": grpc.stream_stream_rpc_method_handler(self.watch_map),
            },
        )

    async def locate(self, requests: AsyncIterator[bytes], context: Context) -> wire.LocateResponse:
        if self._locates >= limits.LOCATES_WAITING_MAX:
            await abort(context, _exhausted("Locate calls", limits.LOCATES_WAITING_MAX, self._locates, "ask again"))
        self._locates += 1
        try:
            async with self._places:
                return self._located(decode(wire.LocateRequest.FromString, await context.read()))
        except ShoalError as error:
            await abort(context, error)
        finally:
            self._locates -= 1

    def _located(self, request: wire.LocateRequest) -> wire.LocateResponse:
        """Raises TooLarge, InvalidName, Unavailable."""
        check_keys(request.keys, LOCATE_KEYS_MAX)
        directory = self._board.newest()
        partitions, owners = locate(directory, request.keys)
        self._tally.located(len(request.keys))
        return wire.LocateResponse(
            map_version=directory.map.version,
            age_ms=self._board.age_ms,
            partitions=partitions,
            owners=owners,
            slices=slices(directory),
        )

    async def watch_map(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        """Waits for the first map. gRPC asks for the next response only when the last one is on its way."""
        tally = self._tally
        if tally.watchers >= tally.watchers_max:
            tally.watchers_refused += 1
            do = "connect to another, or give it more with --memory-mib"
            await abort(context, _exhausted("watchers of the map", tally.watchers_max, tally.watchers, do))
        sent: Directory | None = None
        tally.watchers += 1
        try:
            while True:
                directory = await self._board.after(sent)
                tally.map_responses += 1
                yield self._steps.encoded(sent, directory, self._board.age_ms)
                sent = directory
        finally:
            tally.watchers -= 1


def _exhausted(what: str, limit: int, there: int, do: str) -> ResourceExhausted:
    text = f"{what}: {there + 1}; this redirector takes {limit} at a time: {do}"
    return ResourceExhausted(text, subject=what, limit=limit, value=there + 1)
