"""Watches members of a key, and counts of keys: reads slices' streams, and goes on when they are lost.

Belongs here: streams, deadlines, whose turn it is. Not here: what the events are (watch_events), and how they follow
from what slices tell (core/watched).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from random import random
from types import TracebackType
from typing import Generic, Self, TypeVar

from shoal.core.backoff import Backoff
from shoal.core.refusals import connection_closed
from shoal.core.watched import CountedKeys, WatchedCounts, WatchedMembers, parse_position
from shoal.limits import CLOSE_S, WATCH_RESPONSES_MAX
from shoal.map_watch import MapWatch
from shoal.telling import Telling
from shoal.transport.base import Transport
from shoal.watch_events import Complete, CountEvent, MemberEvent
from shoal_contract.errors import (
    DeadlineExceeded,
    MapOrLeaderChanged,
    OutcomeUnknown,
    ResourceExhausted,
    ShoalError,
    Unavailable,
)
from shoal_contract.names import printable
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.tasks import Tasks

_log = logging.getLogger("shoal")
Event = TypeVar("Event", MemberEvent, CountEvent)
_Came = tuple[str, wire.WatchResponse | ShoalError | None]
"""The slice, and what came of it: a response, the error that ends the watch, or None before a stream's first one."""


class Watching:
    """Makes watches of one connection, and closes those that are open."""

    def __init__(self, map_watch: MapWatch, transport: Transport, telling: Telling) -> None:
        self.map = map_watch
        self.transport = transport
        self.telling = telling
        self.opened: set[MembersWatch | CountsWatch] = set()
        self.counted = CountedKeys()
        self.closed = False

    async def close(self) -> None:
        """Closes all watches; iterations end."""
        self.closed = True
        await asyncio.gather(*(watch.close() for watch in list(self.opened)))


class Watch(ABC, Generic[Event]):
    """Is a watch under way. `async with broker.watch_...(...) as watch: async for event in watch:`, or only the loop:
    then close it, or leave it to the broker's end. Entering waits until every slice that it needs has answered. It goes
    on over lost connections and changes of leaders."""

    def __init__(self, watching: Watching, request: wire.WatchRequest, deadline_s: float) -> None:
        self._watching = watching
        self._map = watching.map
        self._request = request
        self._deadline_s = deadline_s
        self._deadline = 0.0
        self._tasks = Tasks("watch")
        self._came: deque[_Came] = deque()
        """What slices told and is not taken yet: at most WATCH_RESPONSES_MAX, and an error of each."""
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._events: deque[Event] = deque()
        self._followed: set[str] = set()
        """The slices that it reads."""
        self._silent: set[str] = set()
        """The slices that must tell something before the deadline, and have not."""
        self._told: dict[str, str] = {}
        """What it follows -> the slice of which it told how that is."""
        self._problem = ""
        self._opened = False
        self._closed = False

    async def __aenter__(self) -> Self:
        self._map.loop.check()
        try:
            self._open()
            while self._silent and not self._closed:
                for _, what in self._came:
                    if isinstance(what, ShoalError):
                        raise what
                await self._wait()
        except ShoalError:
            await self.close()
            raise
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the watch; iterations end. May be called twice. Raises nothing but BadCall, from another event loop."""
        self._map.loop.check()
        self._end()
        await self._tasks.close(CLOSE_S)

    def _end(self) -> None:
        """Ends the watch without waiting."""
        self._closed = True
        self._arrived.set()
        self._forget()
        self._tasks.cancel()
        for name in list(self._told):
            self._tell(name, "")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Returns the next event. If cancelled, it takes none. Raises the error with which a slice refuses the watch;
        DeadlineExceeded where a slice that the watch needs says nothing at first."""
        self._open()
        while not self._events:
            came = await self._next()
            if came is None:
                raise StopAsyncIteration
            slice_name, what = came
            if isinstance(what, ShoalError):
                await self.close()
                raise what
            try:
                self._events.extend(self._take(slice_name, what))
            except ShoalError:
                await self.close()
                raise
        return self._events.popleft()

    async def _next(self) -> _Came | None:
        """Returns what comes next; None once closed. If cancelled, it takes nothing."""
        while not self._closed:
            if self._came:
                self._room.set()
                return self._came.popleft()
            await self._wait()
        return None

    async def _wait(self) -> None:
        """Waits until something comes, or the watch is closed. Raises DeadlineExceeded where slices are silent."""
        self._arrived.clear()
        try:
            async with asyncio.timeout_at(self._deadline if self._silent else None):
                await self._arrived.wait()
        except TimeoutError:
            silent = ", ".join(sorted(self._silent))
            await self.close()
            problem = f": {self._problem}" if self._problem else ""
            raise DeadlineExceeded(
                f"slice {silent} did not answer the watch within {self._deadline_s:g} s{problem}", subject=silent
            ) from None

    async def _put(self, came: _Came) -> None:
        """Waits for room, and adds what came."""
        while len(self._came) >= WATCH_RESPONSES_MAX:
            self._room.clear()
            await self._room.wait()
        self._came.append(came)
        self._arrived.set()

    def _open(self) -> None:
        """Begins to watch. Raises Unavailable if it was closed, RuntimeError if the broker is not connected, BadCall
        from another event loop."""
        self._map.loop.check()
        if self._opened:
            return
        if self._watching.closed:
            raise connection_closed()
        if self._closed:
            raise Unavailable("the watch is closed; ask the broker for another one", subject="watch")
        self._begin()
        self._opened = True
        self._silent = set(self._followed)
        self._deadline = asyncio.get_running_loop().time() + self._deadline_s

    @abstractmethod
    def _begin(self) -> None:
        """Follows the slices that it needs."""

    @abstractmethod
    def _take(self, slice_name: str, response: wire.WatchResponse | None) -> list[Event]:
        """Returns the events of a response; None: a new stream begins."""

    @abstractmethod
    def _forget(self) -> None:
        """Ends what `_begin` began, but for its tasks. May be called twice."""

    def _follow(self, name: str, slice_of: Callable[[], str]) -> None:
        """Reads the streams of one slice from now on. `name`: what it is called until it answers."""
        self._followed.add(name)
        self._tasks.start(name, self._streams(name, slice_of))

    async def _streams(self, name: str, slice_of: Callable[[], str]) -> None:
        """Reads one stream after the other. `slice_of`: names the slice for each."""
        backoff, request = Backoff(random), wire.WatchRequest()
        request.CopyFrom(self._request)
        while True:
            slice_name = slice_of()
            try:
                await self._read(name, slice_name, request, backoff)
            except ShoalError as error:
                again = isinstance(error, MapOrLeaderChanged | OutcomeUnknown)
                if again:
                    self._tell(name, slice_name, error.message)
                elif name in self._silent or not isinstance(error, ResourceExhausted):
                    self._tell(name, "")
                    self._came.append((name, error))  # Whatever others told: what waits for them is to hear of it.
                    self._arrived.set()
                    return
                if isinstance(error, MapOrLeaderChanged):
                    self._map.suspect()
                if self._problem != str(error):
                    self._problem = str(error)
                    _log.info("slice %s: a watch begins again: %s", name, printable(self._problem))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            except Exception as error:
                self._problem = f"{type(error).__name__}: {error}"
                _log.warning("slice %s: a watch failed unexpectedly, and begins again", name, exc_info=error)
            await self._map.change(backoff.pause_s())

    def _tell(self, name: str, slice_name: str, problem: str = "") -> None:
        """Tells how the slice is now, from which what is followed comes; "": none any more."""
        telling, me = self._watching.telling, (self, name)
        before = self._told.pop(name, slice_name)
        if before != slice_name:
            telling.gone(before, me)
        if not slice_name or self._closed:
            return
        self._told[name] = slice_name
        if problem:
            telling.away(slice_name, me, problem)
        else:
            telling.up(slice_name, me)

    async def _read(self, name: str, slice_name: str, request: wire.WatchRequest, backoff: Backoff) -> None:
        """Reads one stream. `request.after` becomes the place behind what was read. Raises ShoalError."""
        address = self._map.current.address_of(slice_name)
        if not address:
            raise Unavailable(f"slice {slice_name} has no leader", subject=slice_name)
        stream = self._watching.transport.watch(address, request)
        begins = True
        try:
            while (response := await stream.read()) is not None:
                self._silent.discard(name)  # Before there is room: entering a watch takes nothing, and waits for this.
                self._arrived.set()
                if begins:
                    self._tell(name, slice_name)
                    await self._put((name, None))
                    begins = False
                await self._put((name, response))
                if response.HasField("position"):
                    request.after.CopyFrom(response.position)
                backoff.reset()
            raise Unavailable("the stream ended")
        finally:
            await stream.close()


class MembersWatch(Watch[MemberEvent]):
    """Watches the members of one key: first Members (or MemberCount, if they are many), then Joined, Left, Online,
    Offline."""

    def __init__(self, watching: Watching, key: bytes, presence: bool, after: str, deadline_s: float) -> None:
        place = parse_position(after) if after else None
        request = wire.WatchRequest(members=key, presence=presence, after=place)
        super().__init__(watching, request, deadline_s)
        self._members = WatchedMembers(after)

    def _begin(self) -> None:
        self._follow(self._owner(), self._owner)
        self._watching.opened.add(self)

    def _forget(self) -> None:
        self._watching.opened.discard(self)

    def _owner(self) -> str:
        return self._map.current.owner_of(self._request.members)

    def _take(self, slice_name: str, response: wire.WatchResponse | None) -> list[MemberEvent]:
        if response is None:
            self._members.begin()
            return []
        return self._members.take(response)


class CountsWatch(Watch[CountEvent]):
    """Watches the counts of all keys under a prefix, on all slices: a KeyCount for each key, then Complete, then a
    KeyCount for each change."""

    def __init__(self, watching: Watching, prefix: bytes, presence: bool, deadline_s: float) -> None:
        super().__init__(watching, wire.WatchRequest(counts=prefix, presence=presence), deadline_s)
        self._counts = WatchedCounts(watching.counted)
        self._complete = False
        self._unlisten: Callable[[], None] = lambda: None

    def _begin(self) -> None:
        self._follow_new()
        self._unlisten = self._map.listen(lambda _: self._follow_new())
        self._watching.opened.add(self)

    def _forget(self) -> None:
        self._unlisten()
        self._counts.end()
        self._watching.opened.discard(self)

    def _follow_new(self) -> None:
        """Follows the slices of the map that it does not follow yet."""
        for name in self._map.current.slices:
            if name not in self._followed and not self._closed:
                self._follow(name, partial(str, name))

    def _take(self, slice_name: str, response: wire.WatchResponse | None) -> list[CountEvent]:
        if response is None:
            self._counts.begin(slice_name)
            return []
        events = self._counts.take(slice_name, response)
        if not self._complete and self._counts.complete >= self._followed:
            self._complete = True
            events.append(Complete())
        return events
