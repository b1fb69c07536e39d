"""RedirectorService over gRPC (contract/proto/shoal/v1/redirector.proto)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from shoal_contract.errors import ShoalError
from shoal_contract.grpc_errors import abort
from shoal_contract.limits import LOCATE_KEYS_MAX
from shoal_contract.wire import redirector_pb2 as wire
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceServicer
from shoal_redirector.adapters.board import Board
from shoal_redirector.adapters.tally import Tally
from shoal_redirector.core.directory import Directory, check_keys, locate, moved


class RedirectorService(RedirectorServiceServicer):
    def __init__(self, board: Board, tally: Tally | None = None) -> None:
        self._board = board
        self._tally = tally or Tally()

    async def Locate(  # noqa: N802 - gRPC's name
        self, request: wire.LocateRequest, context: Any
    ) -> wire.LocateResponse:
        try:
            check_keys(request.keys, LOCATE_KEYS_MAX)
            directory = self._board.newest()
        except ShoalError as error:
            await abort(context, error)
        partitions, owners = locate(directory, request.keys)
        self._tally.located(len(request.keys))
        return wire.LocateResponse(
            map_version=directory.map.version,
            age_ms=self._board.age_ms,
            partitions=partitions,
            owners=owners,
            slices=_slices(directory),
        )

    async def WatchMap(  # noqa: N802 - gRPC's name
        self, request: wire.WatchMapRequest, context: Any
    ) -> AsyncIterator[wire.WatchMapResponse]:
        """Waits for the first map. gRPC asks for the next response only when the last one is on its way."""
        sent: Directory | None = None
        self._tally.watchers += 1
        try:
            while True:
                directory = await self._board.after(sent)
                self._tally.map_responses += 1
                yield _change(sent, directory, self._board.age_ms)
                sent = directory
        finally:
            self._tally.watchers -= 1


def _change(before: Directory | None, after: Directory, age_ms: int) -> wire.WatchMapResponse:
    response = wire.WatchMapResponse(map_version=after.map.version, age_ms=age_ms, slices=_slices(after))
    change = moved(before, after) if before else None
    if change is None:
        response.partitions = after.map.partitions
        response.owners.extend(after.map.owners)
    else:
        response.moved.extend(change[0])
        response.owners.extend(change[1])
    return response


def _slices(directory: Directory) -> list[wire.SliceAddress]:
    return [wire.SliceAddress(slice=each.slice, address=each.address, epoch=each.epoch) for each in directory.slices]
