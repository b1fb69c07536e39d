"""Makes unary calls to slices and redirectors, for questions that need no session.

A call that failed on the way is repeated until its deadline: it asks, or acks (a second time changes nothing), or pulls
under a lease (what a lost answer took comes again when the lease ends). What must not be done twice is asked once: a
nack by name, which would take a message from its next consumer. Not here: what is asked (admin.py, leases.py,
unreturned.py), how a call travels (transport/).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import random
from typing import Final

from shoal.answering import Answering
from shoal.core.backoff import Backoff
from shoal.core.refusals import connection_closed, connection_cut
from shoal.map_watch import MapWatch
from shoal.telling import Telling
from shoal.transport.base import Method, Request, Response, Transport
from shoal.transport.methods import DESCRIBE, FIGURES, PULL
from shoal.waiting import remaining_s
from shoal_contract.errors import (
    DeadlineExceeded,
    Fenced,
    MapOrLeaderChanged,
    OutcomeUnknown,
    OutOfRange,
    ShoalError,
    Unavailable,
)
from shoal_contract.names import printable
from shoal_contract.wire.admin_pb2 import FiguresRequest
from shoal_contract.wire.slice_pb2 import Describe, DescribeRequest
from shoal_runtime.tasks import Tasks

ADMINISTRATION: Final = "administration"
"""Names the connections of administration."""

_PULLS: Final = "pulls"


class SliceCalls:
    """Asks slices and redirectors over a transport. `deadline`: event loop time."""

    def __init__(self, map_watch: MapWatch, transport: Transport, tasks: Tasks, telling: Telling) -> None:
        self._map = map_watch
        self._transport = transport
        self._tasks = tasks
        self._telling = telling
        self._answering: dict[tuple[str, str], Answering] = {}
        """Slice and kind of call -> whether it answers: five for each slice that the map ever had."""
        self.closed = False

    def close(self) -> None:
        """Refuses all later calls."""
        self.closed = True

    def owner_of(self, key: bytes) -> str:
        """Returns the slice that owns a key, by the newest map."""
        return self._map.current.owner_of(key)

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
        apart = apart or (ADMINISTRATION if admin else "")
        self.check_open()
        while True:
            name = slice_of()
            self._check_known(name)
            try:
                attempt = self._attempt(name, method, request, deadline, apart)
                kind = apart or (_PULLS if method.path == PULL.path else "")
                return await self._answering_of(name, kind).attempt(attempt)
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

    async def ask_once(
        self, slice_name: str, method: Method[Request, Response], request: Request, deadline: float
    ) -> Response:
        """Asks the slice's leader once: for what must not be done a second time. Raises OutOfRange for a slice that the
        map does not have."""
        self.check_open()
        self._check_known(slice_name)
        attempt = self._attempt(slice_name, method, request, deadline, "")
        return await self._answering_of(slice_name, "").attempt(attempt)

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

    def _check_known(self, slice_name: str) -> None:
        slices = self._map.current.slices
        if slice_name not in slices:
            asked = printable(slice_name[:100])
            raise OutOfRange(f"there is no slice {asked}; the cluster has {', '.join(slices)}", subject=asked)

    def _answering_of(self, slice_name: str, kind: str) -> Answering:
        """Returns what keeps whether a slice answers calls of this kind: pulls, or those of a connection of their
        own."""
        found = self._answering.get((slice_name, kind))
        if found is None:
            apart = "" if kind == _PULLS else kind
            found = self._answering[slice_name, kind] = Answering(
                slice_name,
                self._map,
                self._telling,
                self._tasks,
                partial(self._is_there, slice_name, apart),
                may_take_long=kind != "",  # Looks, lists, and pulls of large queues.
            )
        return found

    async def _is_there(self, slice_name: str, apart: str, timeout_s: float) -> None:
        """Asks an empty question: where its administration listens, and, if that does not answer, where it serves. Only
        one of them may be within reach."""
        now_s = asyncio.get_running_loop().time()
        if apart == ADMINISTRATION:
            with suppress(OutcomeUnknown, MapOrLeaderChanged):
                await self._attempt(slice_name, FIGURES, FiguresRequest(), now_s + timeout_s / 2, apart)
                return
            apart = ""
        await self._attempt(slice_name, DESCRIBE, DescribeRequest(describe=Describe()), now_s + timeout_s, apart)

    async def _attempt(
        self, slice_name: str, method: Method[Request, Response], request: Request, deadline: float, apart: str
    ) -> Response:
        """Asks the slice's leader once."""
        current = self._map.current
        admin = apart == ADMINISTRATION
        address = current.admin_address_of(slice_name) if admin else current.address_of(slice_name)
        if not address:
            raise Unavailable(f"slice {slice_name} has no leader", subject=slice_name)
        return await self._ask(address, method, request, deadline, apart)

    async def _ask(
        self, address: str, method: Method[Request, Response], request: Request, deadline: float, apart: str = ""
    ) -> Response:
        left_s = remaining_s(deadline, f"call to {address}")
        return await self._transport.call(address, method, request, left_s, apart)


def _named(slice_name: str, error: ShoalError) -> ShoalError:
    """Returns the error with the slice's name in it, if it has none yet."""
    if f"slice {slice_name}" in error.message:
        return error
    how = "refuses" if isinstance(error, MapOrLeaderChanged) else "does not answer"
    return type(error)(f"slice {slice_name} {how}: {error.message}", subject=slice_name)
