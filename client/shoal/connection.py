"""Holds what one connection to a cluster consists of: the map, the sessions, the calls, the default deadline.

`Broker` opens and closes it; `Admin`, `Leases` and `Parts` use the one of their broker. Not here: verbs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from shoal.homes import Homes
from shoal.map_watch import MapWatch
from shoal.routing import Routing
from shoal.slice_calls import SliceCalls
from shoal.telling import Telling
from shoal.transport.base import Transport
from shoal.unreturned import Unreturned
from shoal_contract import arguments
from shoal_contract.errors import Unavailable
from shoal_runtime.tasks import Tasks

_log = logging.getLogger("shoal")


class Connection:
    """Reaches one cluster over one transport, which it closes. `deadline_s`: the default of every call, in seconds."""

    def __init__(
        self, redirectors: Sequence[str], deadline_s: float, transport: Transport, telling: Telling | None = None
    ) -> None:
        self.deadline_s = deadline_s
        self.telling = telling or Telling()
        """Keeps the states of the slices, and calls the application's callbacks."""
        self.map = MapWatch(redirectors, transport, self.telling)
        self._transport = transport
        self._tasks = Tasks("shoal", lambda _, error: self._failed(error))
        self.calls = SliceCalls(self.map, transport, self._tasks, self.telling)
        self.unreturned = Unreturned(self.calls, self._tasks, self.map.loop)
        self.routing = Routing(self.map, transport, self._tasks, self.telling, self.calls)
        self.homes = Homes(self.routing)
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
            self.map.loop.end()
            self.telling.closed()
            raise
        self.routing.start()
        current = self.map.current
        _log.info("connected: map version %d, slices %s", current.version, ", ".join(current.slices))

    async def close(self, wait_s: float) -> None:
        """Fails what is unanswered, and ends all tasks and streams. Background tasks get `wait_s` seconds to end."""
        self.calls.close()
        self.map.loop.end()
        await self._tasks.close(wait_s)
        await self.routing.close()
        await self._transport.close()
        if self._opened:
            _log.info("connection closed")
        self.telling.closed()

    def _failed(self, error: BaseException) -> None:
        """Tells that a background task failed, which is a defect of the library; the log has it already."""
        if isinstance(error, Exception):
            self.telling.error(error)

    def deadline(self, deadline_s: float | None) -> float:
        """Returns the event loop time at which a call ends that begins now. `deadline_s`: what its caller gave. Raises
        TypeError, OutOfRange, BadCall from another event loop."""
        self.map.loop.check()
        seconds = self.deadline_s if deadline_s is None else arguments.DEADLINE_S.check(deadline_s)
        return asyncio.get_running_loop().time() + seconds
