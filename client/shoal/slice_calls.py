"""Makes unary calls to slices and redirectors, for questions that need no session.

A call that failed on the way is repeated until its deadline: it asks, or acks (a second time changes nothing), or pulls
under a lease (what a lost answer took comes again when the lease ends). Not here: what is asked (admin.py, leases.py),
how a call travels (transport/).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import random

from shoal.core.backoff import Backoff
from shoal.core.refusals import connection_closed, connection_cut
from shoal.limits import SILENT_S
from shoal.map_watch import MapWatch
from shoal.transport.base import Method, Request, Response, Transport
from shoal.waiting import remaining_s
from shoal_contract.errors import DeadlineExceeded, Fenced, MapOrLeaderChanged, OutOfRange, ShoalError, Unavailable
from shoal_contract.names import printable

_log = logging.getLogger("shoal")


class SliceCalls:
    """Asks slices and redirectors over a transport. `deadline`: event loop time."""

    def __init__(self, map_watch: MapWatch, transport: Transport) -> None:
        self._map = map_watch
        self._transport = transport
        self.closed = False

    def close(self) -> None:
        """Refuses all later calls."""
        self.closed = True

    async def ask_slice(
        self,
        slice_of: Callable[[], str],
        method: Method[Request, Response],
        request: Request,
        deadline: float,
        *,
        admin: bool = False,
        apart: str = "",
    ) -> Response:
        """Asks the slice's leader; `slice_of` names the slice anew for each attempt. `admin`: ask where its
        administration listens, over a connection of its own. `apart`: as of a transport's `call`. Raises OutOfRange for
        a slice that the map does not have; after the deadline, the last attempt's error, with the slice's name."""
        backoff, loop = Backoff(random), asyncio.get_running_loop()
        apart = apart or ("administration" if admin else "")
        self.check_open()
        name = slice_of()
        silence = loop.call_later(SILENT_S, _tell_silence, name)
        try:
            while True:
                name = slice_of()
                try:
                    return await self._ask(self._leader(name, admin), method, request, deadline, apart)
                except DeadlineExceeded as error:
                    raise _named(name, error) from None
                except (MapOrLeaderChanged, Unavailable, Fenced) as error:
                    pause_s = backoff.pause_s()
                    if loop.time() + pause_s >= deadline:
                        raise _named(name, error) from None
                    if not isinstance(error, Unavailable):
                        self._map.suspect()
                    await self._map.change(pause_s)
                    if self.closed:
                        raise connection_cut() from None
        finally:
            silence.cancel()

    async def ask_redirector(self, method: Method[Request, Response], request: Request, deadline: float) -> Response:
        """Asks one redirector after the other, and returns the first answer. Raises the error of the last one."""
        self.check_open()
        failure: ShoalError = Unavailable("there is no redirector to ask")
        redirectors = self._map.redirectors
        for index, redirector in enumerate(redirectors):
            now = asyncio.get_running_loop().time()
            try:
                share_s = (deadline - now) / (len(redirectors) - index)
                return await self._ask(redirector, method, request, now + share_s)
            except ShoalError as error:
                failure = error
        raise failure

    def check_open(self) -> None:
        """Raises Unavailable once the connection is closed."""
        if self.closed:
            raise connection_closed()

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

    async def _ask(
        self, address: str, method: Method[Request, Response], request: Request, deadline: float, apart: str = ""
    ) -> Response:
        left_s = remaining_s(deadline, f"call to {address}")
        return await self._transport.call(address, method, request, left_s, apart)


def _tell_silence(slice_name: str) -> None:
    _log.warning("slice %s has not answered for %g s: the call waits until its deadline", slice_name, SILENT_S)


def _named(slice_name: str, error: ShoalError) -> ShoalError:
    """Returns the error with the slice's name in it, if it has none yet."""
    if f"slice {slice_name}" in error.message:
        return error
    return type(error)(f"slice {slice_name} does not answer: {error.message}", subject=slice_name)
