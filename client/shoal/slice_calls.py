"""Makes unary calls to slices and redirectors, for questions that need no session. Each address has one channel.

A call that failed on the way is repeated until its deadline: it asks, or acks (a second time changes nothing), or pulls
under a lease (what a lost answer took comes again when the lease ends). Not here: what is asked (admin.py, leases.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import random
from typing import TypeVar

import grpc.aio

from shoal.channels import open_channel
from shoal.core.backoff import Backoff
from shoal.map_watch import MapWatch
from shoal.waiting import remaining_s
from shoal_contract.errors import MapOrLeaderChanged, OutOfRange, ShoalError, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.names import printable

Response = TypeVar("Response")
Stub = TypeVar("Stub")
Ask = Callable[[grpc.aio.Channel, float], Awaitable[Response]]
"""Sends one call over a channel, with its timeout in seconds."""


def over(
    new_stub: Callable[[grpc.aio.Channel], Stub], ask: Callable[[Stub, float], Awaitable[Response]]
) -> Ask[Response]:
    """Returns the call that `ask` sends over a stub."""
    return lambda channel, timeout_s: ask(new_stub(channel), timeout_s)


class SliceCalls:
    """Asks over channels, which open when first needed and stay until `close`: one for each leader or redirector ever
    asked."""

    def __init__(self, map_watch: MapWatch) -> None:
        self._map = map_watch
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def ask_slice(
        self, slice_of: Callable[[], str], ask: Ask[Response], deadline: float, *, admin: bool = False
    ) -> Response:
        """Asks the slice's leader; `slice_of` names the slice anew for each attempt. `admin`: ask where its
        administration listens. Raises OutOfRange for a slice that the map does not have; after the deadline, the last
        attempt's error."""
        backoff = Backoff(random)
        while True:
            try:
                return await self._ask(self._leader(slice_of(), admin), ask, deadline)
            except (MapOrLeaderChanged, Unavailable) as error:
                pause_s = backoff.pause_s()
                if asyncio.get_running_loop().time() + pause_s >= deadline:
                    raise
                if isinstance(error, MapOrLeaderChanged):
                    self._map.suspect()
                await self._map.change(pause_s)

    async def ask_redirector(self, redirectors: Sequence[str], ask: Ask[Response], deadline: float) -> Response:
        """Asks one redirector after the other, and returns the first answer. Raises the error of the last one."""
        failure: ShoalError = Unavailable("there is no redirector to ask")
        for index, redirector in enumerate(redirectors):
            now = asyncio.get_running_loop().time()
            try:
                return await self._ask(redirector, ask, now + (deadline - now) / (len(redirectors) - index))
            except ShoalError as error:
                failure = error
        raise failure

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    def _leader(self, slice_name: str, admin: bool) -> str:
        current = self._map.current
        if slice_name not in current.slices:
            known = ", ".join(current.slices)
            asked = printable(slice_name[:100])
            raise OutOfRange(f"there is no slice {asked}; the cluster has {known}", subject=asked)
        address = current.admin_address_of(slice_name) if admin else current.address_of(slice_name)
        if not address:
            raise Unavailable(f"slice {slice_name} has no leader", subject=slice_name)
        return address

    async def _ask(self, address: str, ask: Ask[Response], deadline: float) -> Response:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address)
        try:
            return await ask(channel, remaining_s(deadline, f"call to {address}"))
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
