"""Keeps the cluster's map: one `WatchMap` stream, moved from redirector to redirector when one fails.

Belongs here: which redirector, when to ask again, who is told. Not here: what a map is (cluster_map).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import grpc.aio

from shoal.backoff import Backoff
from shoal.channels import open_channel
from shoal.cluster_map import ClusterMap, first_map, next_map
from shoal.limits import MAP_SUSPECT_S
from shoal_contract.errors import ShoalError, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.tasks import Tasks
from shoal_contract.wire.redirector_pb2 import WatchMapRequest, WatchMapResponse
from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceStub

if TYPE_CHECKING:
    from shoal_contract.wire.redirector_pb2_grpc import RedirectorServiceAsyncStub


class MapWatch:
    """`current` is the newest map heard of; it never goes back to a lower version."""

    def __init__(self, redirectors: Sequence[str]) -> None:
        self.redirectors = redirectors
        self._current: ClusterMap | None = None
        self._changed = asyncio.Event()
        """Set, and replaced by a new one, at each change."""
        self._listeners: list[Callable[[ClusterMap], None]] = []
        self._problem = "no answer yet"
        self._opened_s = 0.0
        self._stream: grpc.aio.UnaryStreamCall[WatchMapRequest, WatchMapResponse] | None = None

    def start(self, tasks: Tasks) -> None:
        tasks.start("map", self._run())

    @property
    def current(self) -> ClusterMap:
        if self._current is None:
            raise RuntimeError("the broker is not connected: use `async with shoal.connect(...)`")
        return self._current

    def listen(self, listener: Callable[[ClusterMap], None]) -> Callable[[], None]:
        """Calls `listener` with each new map. Returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def first(self, deadline_s: float) -> None:
        """Waits for the first map. Raises Unavailable, with the last problem, after `deadline_s` seconds."""
        try:
            async with asyncio.timeout(deadline_s):
                while self._current is None:
                    await self._changed.wait()
        except TimeoutError:
            where = ", ".join(self.redirectors)
            raise Unavailable(f"no map from {where} within {deadline_s} s: {self._problem}", subject=where) from None

    async def change(self, wait_s: float) -> None:
        """Until the map changes, at most `wait_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._changed.wait()

    async def newer_than(self, version: int, wait_s: float) -> None:
        """Until the map's version is above `version`, at most `wait_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self.current.version <= version:
                    await self._changed.wait()

    def suspect(self) -> None:
        """A slice says that the map is old: ask another redirector, unless one was asked just now."""
        loop_s = asyncio.get_running_loop().time()
        if self._stream is not None and loop_s - self._opened_s > MAP_SUSPECT_S:
            self._stream.cancel()

    async def _run(self) -> None:
        backoff = Backoff()
        for redirector in itertools.cycle(self.redirectors):
            try:
                await self._follow(redirector, backoff)
            except ShoalError as error:
                self._problem = f"{redirector}: {error}"
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            await asyncio.sleep(backoff.pause_s())

    async def _follow(self, redirector: str, backoff: Backoff) -> None:
        """Reads one redirector's stream until it ends. Raises ShoalError; CancelledError if suspected."""
        channel = open_channel(redirector)
        try:
            stub: RedirectorServiceAsyncStub = RedirectorServiceStub(channel)
            stream = self._stream = stub.WatchMap(WatchMapRequest())
            self._opened_s = asyncio.get_running_loop().time()
            seen: ClusterMap | None = None
            async for response in stream:
                seen = first_map(response) if seen is None else next_map(seen, response)
                backoff.reset()
                self._take(seen)
            raise Unavailable("the stream ended")
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        finally:
            if self._stream is not None:
                self._stream.cancel()
            self._stream = None
            await channel.close()

    def _take(self, new: ClusterMap) -> None:
        if self._current is not None and (new.version < self._current.version or new == self._current):
            return
        self._current = new
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        for listener in list(self._listeners):
            listener(new)
