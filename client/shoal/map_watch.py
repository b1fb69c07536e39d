"""Keeps the cluster's map up to date: one `WatchMap` stream, to the next redirector when one fails.

Belongs here: which redirector, when to ask again, telling listeners and the log. Not here: what a map is (cluster_map).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Sequence
from random import random

from shoal.core.backoff import Backoff
from shoal.core.cluster_map import ClusterMap, first_map, next_map
from shoal.limits import MAP_BEHIND_S, MAP_PATIENCE_S, MAP_PATIENCE_S_MAX, MAP_SUSPECT_S
from shoal.own_loop import OwnLoop
from shoal.telling import Telling
from shoal.transport.base import Stream, Transport
from shoal_contract.errors import BadCall, ShoalError, Unavailable
from shoal_contract.names import printable
from shoal_contract.wire.redirector_pb2 import WatchMapResponse
from shoal_runtime.tasks import Tasks

_log = logging.getLogger("shoal")


class MapWatch:
    """Watches the map. `current` is the newest map heard of. It goes back to a lower version only if every redirector
    was asked, and none has told one as new for MAP_BEHIND_S: it was not this cluster's."""

    def __init__(self, redirectors: Sequence[str], transport: Transport, telling: Telling) -> None:
        self.redirectors = redirectors
        self.loop = OwnLoop()
        """The event loop in which the connection runs, which each of its calls must come from."""
        self._transport = transport
        self._telling = telling
        self._current: ClusterMap | None = None
        self._changed = asyncio.Event()
        """Set, and replaced by a new one, at each change."""
        self._listeners: list[Callable[[ClusterMap], None]] = []
        self._problem = ""
        """Why the last stream was lost; "" once another one brings a map."""
        self._told = ""
        """The problem that was logged last."""
        self._refusals: set[str] = set()
        """The addresses that refused the question for the first map."""
        self._refused: BadCall | None = None
        self._opened_s = 0.0
        self._told_s = 0.0
        """When a redirector last told a map as new as `current`."""
        self._asked_since: set[str] = set()
        """The redirectors that were asked since then."""
        self._patience_s = MAP_PATIENCE_S
        self._stream: Stream[WatchMapResponse] | None = None

    def start(self, tasks: Tasks) -> None:
        """Begins to watch."""
        self.loop.begin()
        tasks.start("map", self._run())

    @property
    def current(self) -> ClusterMap:
        """Returns the newest map. Raises RuntimeError before the first one."""
        if self._current is None:
            raise RuntimeError("the broker is not connected: use `async with shoal.connect(...)`")
        return self._current

    @property
    def slices(self) -> Sequence[str]:
        """Returns the slices of the newest map; none before the first one."""
        return self._current.slices if self._current is not None else ()

    def listen(self, listener: Callable[[ClusterMap], None]) -> Callable[[], None]:
        """Calls `listener` with each new map. Returns a function that ends that, and may be called twice."""
        self._listeners.append(listener)

        def unlisten() -> None:
            with contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return unlisten

    async def first(self, deadline_s: float) -> None:
        """Waits for the first map. Raises Unavailable, with the last problem, after `deadline_s` seconds; BadCall, as
        soon as no address that was given is a redirector's."""
        try:
            async with asyncio.timeout(deadline_s):
                while self._current is None:
                    if self._refused is not None:
                        raise self._refused
                    await self._changed.wait()
        except TimeoutError:
            where = ", ".join(self.redirectors)
            problem = self._problem or f"{where}: no answer yet"
            raise Unavailable(
                f"no cluster answers at {where} within {deadline_s} s: {problem}", subject=where
            ) from None

    async def change(self, wait_s: float) -> None:
        """Waits until the map changes, at most `wait_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._changed.wait()

    async def newer_than(self, version: int, wait_s: float) -> None:
        """Waits until the map's version is above `version`, at most `wait_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self.current.version <= version:
                    await self._changed.wait()

    def suspect(self) -> None:
        """Asks another redirector, unless one was asked just now: a slice says that the map is old."""
        loop_s = asyncio.get_running_loop().time()
        if self._stream is not None and loop_s - self._opened_s > MAP_SUSPECT_S:
            self._stream.cancel()

    async def _run(self) -> None:
        backoff = Backoff(random)
        for redirector in itertools.cycle(self.redirectors):
            try:
                await self._follow(redirector, backoff, self._patience_s if len(self.redirectors) > 1 else None)
            except ShoalError as error:
                self._lost(f"{redirector}: {error}")
                if isinstance(error, BadCall) and self._current is None:
                    self._refuse(redirector, error)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            except Exception as error:
                _log.warning("map from %s: failed unexpectedly, and is asked for anew", redirector, exc_info=error)
                self._problem = f"{redirector}: {type(error).__name__}: {error}"
                self._telling.away("", self, self._problem)
                self._telling.error(error)
            if redirector == self.redirectors[-1]:
                self._patience_s = min(2 * self._patience_s, MAP_PATIENCE_S_MAX)
            await asyncio.sleep(backoff.pause_s())

    def _refuse(self, redirector: str, error: BadCall) -> None:
        """Ends the wait for the first map once each address has refused the question: asking again cannot help."""
        self._refusals.add(redirector)
        if self._refusals.issuperset(self.redirectors):
            self._refused = type(error)(f"{redirector}: {error.message}", subject=redirector)
            self._changed.set()

    def _lost(self, problem: str) -> None:
        """Logs each new problem: as a warning, so that it is seen, until there is a first map; later as information."""
        self._problem = printable(problem)
        self._telling.away("", self, self._problem)
        if self._told != self._problem:
            self._told = self._problem
            _log.log(
                logging.INFO if self._current else logging.WARNING,
                "the cluster does not answer; trying again: %s",
                self._problem,
            )

    async def _follow(self, redirector: str, backoff: Backoff, patience_s: float | None) -> None:
        """Reads one redirector's stream until it ends. Raises ShoalError, also if nothing comes at first for so long;
        CancelledError after `suspect`."""
        stream = self._stream = self._transport.watch_map(redirector)
        try:
            self._opened_s = asyncio.get_running_loop().time()
            seen: ClusterMap | None = None
            self._asked_since.add(redirector)
            problem = "no answer"
            while (response := await self._next(stream, patience_s, problem)) is not None:
                seen = first_map(response) if seen is None else next_map(seen, response)
                backoff.reset()
                self._came(redirector)
                is_behind = self._take(seen, redirector)
                patience_s = MAP_BEHIND_S if is_behind else None
                problem = (
                    f"its map, of version {seen.version}, is older than the one that is known, and no newer one came"
                )
            raise Unavailable("the stream ended")
        finally:
            if seen is not None and self._current is not None and seen.version >= self._current.version:
                self._is_told()
            self._stream = None
            await stream.close()

    @staticmethod
    async def _next(
        stream: Stream[WatchMapResponse], patience_s: float | None, problem: str
    ) -> WatchMapResponse | None:
        waiting = asyncio.timeout(patience_s)
        try:
            async with waiting:
                return await stream.read()
        except TimeoutError:
            if not waiting.expired():
                raise
            raise Unavailable(f"{problem} within {patience_s:g} s") from None

    def _came(self, redirector: str) -> None:
        if self._problem:
            _log.info("map again, from %s", redirector)
        self._problem = self._told = ""
        self._patience_s = MAP_PATIENCE_S
        self._telling.up("", self)

    def _is_told(self) -> None:
        """Notes that a redirector tells a map as new as the one that is known."""
        self._told_s = asyncio.get_running_loop().time()
        self._asked_since.clear()

    def _take(self, new: ClusterMap, redirector: str) -> bool:
        """Takes a map. Returns whether it was left out, as it is older than the one that is known."""
        current = self._current
        if current is not None and new.version < current.version:
            behind_s = asyncio.get_running_loop().time() - self._told_s
            if behind_s < MAP_BEHIND_S or not self._asked_since.issuperset(self.redirectors):
                _log.warning(
                    "map version %d from %s is older than version %d, which was told before: it is left out, unless"
                    " nothing as new comes for %g s",
                    *(new.version, redirector, current.version, MAP_BEHIND_S),
                )
                return True
            versions = new.version, current.version
            _log.warning("map version %d in place of %d, from %s: no newer one came", *versions, redirector)
        self._is_told()
        if new == current:
            return False
        if current is not None:
            _log.debug("map version %d in place of %d", new.version, current.version)
        self._current = new
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for listener in list(self._listeners):
            try:
                listener(new)
            except Exception as error:
                _log.warning("a listener of the map failed at version %d", new.version, exc_info=True)
                self._telling.error(error)
        return False
