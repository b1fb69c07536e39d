"""Serves RedirectorService over gRPC (contract/proto/shoal/v1/redirector.proto), and bounds the calls at a time.

A call gets its place before its message is read, so calls that wait for a place hold next to nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

from shoal_contract.errors import Malformed, ShoalError, TooLarge
from shoal_contract.limits import LOCATE_KEYS_MAX
from shoal_contract.wire import redirector_pb2 as wire
from shoal_contract.wire_count import count_fields
from shoal_redirector import limits
from shoal_redirector.adapters.board import Board
from shoal_redirector.adapters.steps import Steps, slices
from shoal_redirector.adapters.tally import Tally
from shoal_redirector.adapters.watchers import Watchers
from shoal_redirector.core.directory import Directory, check_keys, locate
from shoal_runtime.aborting import abort, send_headers, write
from shoal_runtime.client_patience import ClientPatience
from shoal_runtime.grpc_requests import decode
from shoal_runtime.places import Places
from shoal_runtime.unread import Unread

SERVICE: Final = "shoal.v1.RedirectorService"
Context = grpc.aio.ServicerContext[Any, Any]


class RedirectorService:
    """Serves both calls: give `handlers` to a server. `tally.watchers_max` bounds the streams at a time; `unread` is
    told what is read."""

    def __init__(self, board: Board, tally: Tally, unread: Unread) -> None:
        self._board = board
        self._tally = tally
        self._unread = unread
        self._steps = Steps()
        self._watchers = Watchers(tally)
        self._places = Places("Locate calls", limits.LOCATES)
        self._patience = ClientPatience(self._places, "call", limits.LOCATE_READ_S, limits.LOCATE_READ_CROWDED_S)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Returns the handlers of both calls. Watchers' answers are encoded already, so they are passed on as they
        are."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                # Handled as a stream of one message, so that it is read only when its call has a place.
                "Locate": grpc.stream_unary_rpc_method_handler(
                    self._unread.counted(self.locate), None, wire.LocateResponse.SerializeToString
                ),
                "WatchMap": grpc.stream_stream_rpc_method_handler(self._unread.counted(self.watch_map)),
            },
        )

    async def locate(self, requests: AsyncIterator[bytes], context: Context) -> wire.LocateResponse:
        try:
            async with self._places.place(context.peer()):
                return self._located(parse_locate(await self._read(context)))
        except ShoalError as error:
            await abort(context, error, limits.REFUSED_S)

    def _located(self, request: wire.LocateRequest) -> wire.LocateResponse:
        """Returns the answer to a Locate. Raises TooLarge, InvalidName, Unavailable."""
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

    async def watch_map(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Sends the first map when there is one, then changes. Makes a response only when the last is on its way."""
        sent: Directory | None = None
        try:
            async with self._watchers.place(context.peer()):
                await send_headers(context)
                while True:
                    directory = await self._board.after(sent)
                    self._tally.map_responses += 1
                    encoded = self._steps.encoded(sent, directory, self._board.age_ms)
                    await write(context, encoded)
                    self._unread.wrote(context.peer(), len(encoded))
                    sent = directory
        except ShoalError as error:
            await abort(context, error, limits.REFUSED_S)

    async def _read(self, context: Context) -> bytes:
        """Returns the one message of a call. Raises DeadlineExceeded, ResourceExhausted if others wait, Malformed."""
        async with self._patience.waiting(context.peer(), "sent"):
            request = await context.read()
        if not isinstance(request, bytes):
            raise Malformed("the call ended without a request", subject="request")
        self._unread.read(context.peer(), len(request), first=True)
        return request


def parse_locate(data: bytes) -> wire.LocateRequest:
    """Parses a request after counting its keys: two bytes of an empty key cost a parser as much as a long one. Raises
    Malformed, TooLarge."""
    if len(data) > 2 * LOCATE_KEYS_MAX and count_fields(data, {}, LOCATE_KEYS_MAX) > LOCATE_KEYS_MAX:
        raise TooLarge(
            f"more than {LOCATE_KEYS_MAX} keys to locate, in {len(data)} bytes",
            subject="keys",
            limit=LOCATE_KEYS_MAX,
            value=LOCATE_KEYS_MAX + 1,
        )
    return decode(wire.LocateRequest.FromString, data)
