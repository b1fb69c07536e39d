"""Holds what one connection to a cluster consists of: the map, the sessions, the calls, the default deadline.

`Broker` opens and closes it; `Admin`, `Leases` and `Parts` use the one of their broker. Not here: verbs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shoal.homes import Homes
from shoal.map_watch import MapWatch
from shoal.routing import Routing
from shoal.slice_calls import SliceCalls
from shoal.transport.base import Transport
from shoal_contract import arguments
from shoal_contract.errors import Unavailable
from shoal_runtime.tasks import Tasks


class Connection:
    """Reaches one cluster over one transport, which it closes. `deadline_s`: the default of every call, in seconds."""

    def __init__(self, redirectors: Sequence[str], deadline_s: float, transport: Transport) -> None:
        self.deadline_s = deadline_s
        self.map = MapWatch(redirectors, transport)
        self._transport = transport
        self._tasks = Tasks("shoal")
        self.routing = Routing(self.map, transport, self._tasks)
        self.homes = Homes(self.routing)
        self.calls = SliceCalls(self.map, transport)
        self._opened = False

    async def open(self) -> None:
        """Waits for the map. Raises Unavailable if no redirector gives it in `deadline_s`, or if this was open
        before."""
        if self._opened:
            raise Unavailable("this connection was used before: call shoal.connect(...) again", subject="connection")
        self._opened = True
        self.map.start(self._tasks)
        try:
            await self.map.first(self.deadline_s)
        except BaseException:
            self._tasks.cancel()
            raise
        self.routing.start()

    async def close(self, wait_s: float) -> None:
        """Fails what is unanswered, and ends all tasks and streams. Background tasks get `wait_s` seconds to end."""
        await self._tasks.close(wait_s)
        await self.routing.close()
        await self._transport.close()

    def deadline(self, deadline_s: float | None) -> float:
        """Returns the event loop time at which a call ends that begins now. `deadline_s`: what its caller gave. Raises
        TypeError, OutOfRange."""
        seconds = self.deadline_s if deadline_s is None else arguments.DEADLINE_S.check(deadline_s)
        return asyncio.get_running_loop().time() + seconds
