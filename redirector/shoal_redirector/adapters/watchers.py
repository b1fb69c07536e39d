"""Bounds the streams that watch the map, in all and for one connection.

If there is no room, the connection with most streams gives one up for the new stream. Not here: what is sent (grpc).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shoal_contract.errors import ResourceExhausted
from shoal_redirector.adapters.tally import Tally
from shoal_redirector.limits import WATCHERS_EACH_MAX


class Watchers:
    """Gives places to watchers, `tally.watchers_max` at a time. One for the process."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._by_peer: dict[str, dict[asyncio.Timeout, None]] = {}
        """Connection -> its watchers' timeouts, oldest first; never empty. Rescheduling a timeout ends its watcher."""

    @asynccontextmanager
    async def place(self, peer: str) -> AsyncIterator[None]:
        """Holds a place for a watcher. Raises ResourceExhausted if there is no room, and also later, if a connection
        with fewer watchers needs the place."""
        self._make_room(peer)
        try:
            async with asyncio.timeout(None) as ending:
                self._by_peer.setdefault(peer, {})[ending] = None
                self._tally.watchers += 1
                try:
                    yield
                finally:
                    self._leave(peer, ending)
        except TimeoutError:
            raise self._refused() from None

    def _make_room(self, peer: str) -> None:
        tally, own = self._tally, len(self._by_peer.get(peer, ()))
        if own >= WATCHERS_EACH_MAX:
            tally.watchers_refused += 1
            text = f"watchers of the map on one connection: {own + 1}; the limit is {WATCHERS_EACH_MAX}: connect anew"
            raise ResourceExhausted(text, subject="watchers of a connection", limit=WATCHERS_EACH_MAX, value=own + 1)
        if tally.watchers < tally.watchers_max:
            return
        tally.watchers_refused += 1
        most = max(self._by_peer, key=lambda one: len(self._by_peer[one]), default="")
        if len(self._by_peer.get(most, ())) <= own + 1:
            raise self._refused()
        newest = next(reversed(self._by_peer[most]))
        self._leave(most, newest)
        newest.reschedule(asyncio.get_running_loop().time())

    def _leave(self, peer: str, ending: asyncio.Timeout) -> None:
        """Gives up a watcher's place. Does nothing if it was given up already."""
        those = self._by_peer.get(peer, {})
        if ending in those:
            del those[ending]
            self._tally.watchers -= 1
            if not those:
                del self._by_peer[peer]

    def _refused(self) -> ResourceExhausted:
        limit = self._tally.watchers_max
        text = f"watchers of the map: {limit + 1}; this redirector takes {limit} at a time: connect to another, or "
        text += "give it more with --memory-mib"
        return ResourceExhausted(text, subject="watchers of the map", limit=limit, value=limit + 1)
