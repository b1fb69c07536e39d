"""Leads from a key to its session: one session for each slice in use, deadlines, publishes that wait for a newer map.

A publish that a slice refuses (NotOwner) is held until the map is newer, then goes to the new owner. Meanwhile later
publishes to keys of the same partition queue behind it, so that a key's order survives a move.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from random import random
from typing import Any

from shoal.consumer import Consumer
from shoal.core.backoff import Backoff
from shoal.core.gather import ChangeFrame
from shoal.core.held import Held
from shoal.core.publish_requests import PublishRequest
from shoal.core.refusals import connection_closed
from shoal.core.requests import DropsRequest, QueueRequest, Request
from shoal.deadlines import Deadlines
from shoal.describing import Describing
from shoal.limits import EXPIRE_EVERY_S
from shoal.looks import Looks
from shoal.map_watch import MapWatch
from shoal.slice_calls import SliceCalls
from shoal.slice_session import SliceSession
from shoal.telling import Telling
from shoal.transport.base import Transport
from shoal.waiting import remaining_s
from shoal_contract.errors import MapOrLeaderChanged, ResourceExhausted, ShoalError, Unavailable
from shoal_contract.partition_hash import partition_of
from shoal_runtime.tasks import Tasks

_log = logging.getLogger("shoal")


class Routing:
    """Keeps the sessions that carry requests. Inboxes have sessions of their own."""

    def __init__(
        self, map_watch: MapWatch, transport: Transport, tasks: Tasks, telling: Telling, calls: SliceCalls
    ) -> None:
        self.map = map_watch
        self.telling = telling
        self.deadlines = Deadlines()
        self._transport = transport
        self._tasks = tasks
        self._sessions: dict[str, SliceSession] = {}
        """Slice -> its session: as many, at most, as the map ever had slices."""
        self.looks = Looks(calls, map_watch, tasks)
        """Asks slices what nothing else is to wait for."""
        self.describing = Describing(self.looks.describe)
        """Asks slices about many queues."""
        self._held = Held(lambda key: partition_of(key, map_watch.current.partition_map.partitions))
        self._hold = asyncio.Event()
        self._closed = self._closing = False
        self._refused_version = 0
        """The newest map version that a refusing slice has (at least 1): only this map, or a newer one, may help."""

    def start(self) -> None:
        """Begins to keep deadlines and to send on what was refused. The map must be there."""
        self.deadlines.start()
        self.deadlines.watch(self._held, "publish waiting for a newer map")
        self._tasks.start("reroute", self._reroute())

    def in_background(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Starts work that no call waits for; it runs at most until the connection ends."""
        if self._closed or self._tasks.closed:
            work.close()
        else:
            self._tasks.start(name, work)

    @property
    def closed(self) -> bool:
        """Returns whether the connection is closed."""
        return self._closed

    def begin_close(self) -> None:
        """Lets no more inboxes open: those that are open are about to be closed."""
        self._closing = True

    def check_takes_inboxes(self) -> None:
        """Raises Unavailable once the connection closes."""
        if self._closing or self._closed:
            raise connection_closed()

    def session(self, slice_name: str) -> SliceSession:
        """Returns the session to a slice. Opens it when first asked for. Raises Unavailable once the
        connection is closed."""
        if self._closed:
            raise connection_closed()
        session = self._sessions.get(slice_name)
        if session is None:
            session = self._sessions[slice_name] = SliceSession(
                slice_name,
                self.map,
                self.deadlines,
                self._transport,
                self.telling,
                reroute=self._refused,
            )
        return session

    def inbox_session(self, slice_name: str, consumer: Consumer, window_bytes: int) -> SliceSession:
        """Opens a session that carries an inbox's part at a slice. The inbox closes it."""
        return SliceSession(
            slice_name,
            self.map,
            self.deadlines,
            self._transport,
            self.telling,
            what="inbox",
            consumer=consumer,
            window_bytes=window_bytes,
        )

    def session_of(self, key: bytes) -> SliceSession:
        """Returns the session to the slice that owns the key."""
        return self.session(self.map.current.owner_of(key))

    async def publish(self, request: PublishRequest) -> None:
        """Waits for room and sends a publish. Raises DeadlineExceeded: nothing was sent."""
        if self._behind_held(request):
            return
        session = self.session_of(request.key)
        await session.room.take(request.cost_bytes, request.deadline)
        session.submit(request)

    def publish_nowait(self, request: PublishRequest) -> None:
        """Sends a publish. Raises ResourceExhausted where `publish` would wait."""
        if self._behind_held(request):
            return
        session = self.session_of(request.key)
        session.room.take_nowait(request.cost_bytes)
        session.submit(request)

    async def submit(self, slice_name: str, request: Request) -> None:
        """Waits for room and sends a request to exactly this slice. Raises DeadlineExceeded: nothing was sent."""
        session = self.session(slice_name)
        await session.room.take(request.cost_bytes, request.deadline)
        session.submit(request)

    async def submit_change(self, slice_name: str, frame: ChangeFrame) -> None:
        """Waits for room and sends a whole change to exactly this slice, behind the publishes to these keys that came
        before. Raises DeadlineExceeded: nothing was sent."""
        keys = [request.key for step in frame.steps for request in step.requests if isinstance(request, PublishRequest)]
        while any(key in self._held for key in keys):
            await self.map.change(min(EXPIRE_EVERY_S, remaining_s(frame.deadline, f"change of slice {slice_name}")))
        session = self.session(slice_name)
        await session.room.take(frame.cost_bytes, frame.deadline)
        session.submit_change(frame)

    async def ask(self, requests: Iterable[tuple[str, QueueRequest | DropsRequest]]) -> list[Any]:
        """Sends each request to its slice. Returns each one's answer, or its error, in order.

        If the caller leaves, requests not sent yet are not sent.
        """
        futures: list[asyncio.Future[Any]] = []
        try:
            for slice_name, request in requests:
                request.waiter = future = asyncio.get_running_loop().create_future()
                futures.append(future)
                try:
                    await self.submit(slice_name, request)
                except ShoalError as error:
                    request.fail(error)
            return [await _result(future) for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    async def newer_map(
        self, version: int, errors: Sequence[MapOrLeaderChanged], backoff: Backoff, deadline: float
    ) -> None:
        """Waits, for a bounded time, until there may be a better map than `version`, which a slice refused."""
        wait_s = min(backoff.pause_s(), remaining_s(deadline, errors[0].message))
        needed = max(version, *(error.map_version - 1 for error in errors))
        self.map.suspect()
        await self.map.newer_than(needed, wait_s)

    @property
    def awaited(self) -> set[str]:
        """Returns the slices for whose answers a flush waits."""
        return {name for name, session in self._sessions.items() if session.awaited} | self.looks.slices

    async def flush(self, also_left: bool = False) -> None:
        """Waits until everything under way is answered. `also_left`: as for a session."""
        while self._held:
            await self.map.change(EXPIRE_EVERY_S)
        for session in list(self._sessions.values()):
            await session.flush(also_left)
        await self.looks.flush()

    async def close(self) -> None:
        """Ends all sessions that carry requests. Unanswered calls fail with Unavailable: outcome unknown."""
        self._closed = True
        self.deadlines.close()
        for session in self._sessions.values():
            session.close_soon()
        self._held.fail(Unavailable("the connection is closed; the publish was refused by its slice before"))
        await asyncio.gather(*(session.close() for session in self._sessions.values()))

    def _behind_held(self, request: PublishRequest) -> bool:
        if request.key not in self._held:
            return False
        self._hold_back(request)
        return True

    def _refused(self, request: PublishRequest, error: ShoalError) -> None:
        """Holds a publish that a slice refused until there is a newer map. Its room at the slice is free by now."""
        self._refused_version = max(self._refused_version, error.map_version, 1)
        _log.debug("a publish waits for a newer map: %s", error)
        try:
            self._hold_back(request)
        except ResourceExhausted as full:
            request.fail(full)

    def _hold_back(self, request: PublishRequest) -> None:
        self._held.add(request)
        self._hold.set()

    async def _reroute(self) -> None:
        backoff = Backoff(random)
        tried_version = 0
        while True:
            if not self._held:
                self._hold.clear()
                await self._hold.wait()
                backoff.reset()
            version = self.map.current.version
            if version <= max(tried_version, self._refused_version - 1):
                self.map.suspect()
                await self.map.newer_than(version, backoff.pause_s())
            tried_version = self.map.current.version
            await self._submit_held()

    async def _submit_held(self) -> None:
        """Sends on the publishes held now. Publishes that come meanwhile for the same partitions stay behind them."""
        for _ in range(len(self._held)):
            request = self._held.first()
            try:
                if request.alive:
                    session = self.session_of(request.key)
                    await session.room.take(request.cost_bytes, request.deadline)
                    session.submit(request)
            except ShoalError as error:
                request.fail(error)
            except Exception as error:
                _log.warning("a publish could not be sent on to its key's new owner", exc_info=error)
                problem = f"the publish could not be sent on ({type(error).__name__}: {error}); it was not stored"
                request.fail(Unavailable(problem, subject="connection"))
            self._held.pop()


async def _result(future: asyncio.Future[Any]) -> Any:
    try:
        return await future
    except ShoalError as error:
        return error
