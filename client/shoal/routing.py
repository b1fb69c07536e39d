"""From key to session: one session for each slice in use, deadlines, and publishes that wait for a newer map.

A publish that a slice refuses (NotOwner) is held here until the map is newer, then goes to the new owner. Meanwhile
later publishes to keys of the same partition queue behind it, so that a key's order survives a move.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from shoal.backoff import Backoff
from shoal.limits import EXPIRE_EVERY_S, REROUTE_BYTES_MAX
from shoal.map_watch import MapWatch
from shoal.requests import PublishRequest, Request
from shoal.slice_session import SliceSession
from shoal.waiting import deadline_exceeded
from shoal_contract.errors import ResourceExhausted, ShoalError, Unavailable
from shoal_contract.partition_hash import partition_of
from shoal_contract.tasks import Tasks


class Routing:
    """The sessions that carry requests. Sessions of inboxes are their own, but their deadlines are watched here too."""

    def __init__(self, map_watch: MapWatch, tasks: Tasks) -> None:
        self.map = map_watch
        self._tasks = tasks
        self._sessions: dict[str, SliceSession] = {}
        """By slice: as many as the map ever had slices."""
        self.watched: set[SliceSession] = set()
        """Other sessions whose deadlines are watched."""
        self._held: deque[PublishRequest] = deque()
        self._held_bytes = 0
        self._held_partitions: Counter[int] = Counter()
        """How many of `_held` each partition has; none is zero."""
        self._hold = asyncio.Event()
        self._closed = False
        self._refused_version = 0
        """The newest map version that a refusal says is too old, or that was used for it."""

    def start(self) -> None:
        self._tasks.start("deadlines", self._expire())
        self._tasks.start("reroute", self._reroute())

    def session(self, slice_name: str) -> SliceSession:
        """The session to a slice, opened when first asked for."""
        session = self._sessions.get(slice_name)
        if session is None:
            if self._closed:
                raise Unavailable("the connection is closed", subject="connection")
            session = SliceSession(slice_name, self.map, reroute=self._refused)
            self._sessions[slice_name] = session
        return session

    def session_of(self, key: bytes) -> SliceSession:
        return self.session(self.map.current.owner_of(key))

    async def publish(self, request: PublishRequest) -> None:
        """Waits for room. Raises DeadlineExceeded: nothing was sent."""
        if self._behind_held(request):
            return
        session = self.session_of(request.key)
        await session.room.take(request.cost_bytes, request.deadline)
        session.submit(request)

    def publish_nowait(self, request: PublishRequest) -> None:
        """Raises ResourceExhausted where `publish` would wait."""
        if self._behind_held(request):
            return
        session = self.session_of(request.key)
        session.room.take_nowait(request.cost_bytes)
        session.submit(request)

    async def submit(self, slice_name: str, request: Request) -> None:
        """To this very slice. Waits for room. Raises DeadlineExceeded: nothing was sent."""
        session = self.session(slice_name)
        await session.room.take(request.cost_bytes, request.deadline)
        session.submit(request)

    async def flush(self) -> None:
        """Until everything under way is answered."""
        while self._held:
            await self.map.change(EXPIRE_EVERY_S)
        for session in list(self._sessions.values()):
            await session.flush()

    async def close(self) -> None:
        self._closed = True
        await asyncio.gather(*(session.close() for session in self._sessions.values()))
        for request in self._held:
            request.fail(Unavailable("the connection is closed; the publish was refused by its slice before"))

    def _behind_held(self, request: PublishRequest) -> bool:
        if not self._held or not self._held_partitions[self._partition(request)]:
            return False
        self._take(request)
        return True

    def _partition(self, request: PublishRequest) -> int:
        return partition_of(request.key, self.map.current.partition_map.partitions)

    def _refused(self, request: PublishRequest, error: ShoalError) -> None:
        """A slice does not take it: wait for a newer map. Its room at the slice is free by now."""
        self._refused_version = max(self._refused_version, error.map_version, 1)
        try:
            self._take(request)
        except ResourceExhausted as full:
            request.fail(full)

    def _take(self, request: PublishRequest) -> None:
        if self._held_bytes + request.cost_bytes > REROUTE_BYTES_MAX:
            name = "publishes that wait for a newer map"
            raise ResourceExhausted(
                f"{name}: {self._held_bytes} bytes; the limit is {REROUTE_BYTES_MAX}",
                subject=name,
                limit=REROUTE_BYTES_MAX,
                value=self._held_bytes,
            )
        self._held.append(request)
        self._held_bytes += request.cost_bytes
        self._held_partitions[self._partition(request)] += 1
        self._hold.set()

    async def _reroute(self) -> None:
        backoff = Backoff()
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
        """Sends on what is held now; what comes meanwhile for the same partitions stays behind it."""
        for _ in range(len(self._held)):
            request = self._held[0]
            try:
                if request.alive:
                    session = self.session_of(request.key)
                    await session.room.take(request.cost_bytes, request.deadline)
                    session.submit(request)
            except ShoalError as error:
                request.fail(error)
            self._held.popleft()
            self._held_bytes -= request.cost_bytes
            partition = self._partition(request)
            self._held_partitions[partition] -= 1
            if not self._held_partitions[partition]:
                del self._held_partitions[partition]

    async def _expire(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(EXPIRE_EVERY_S)
            now = loop.time()
            for session in (*self._sessions.values(), *self.watched):
                session.expire(now)
            for request in self._held:
                if now >= request.deadline:
                    request.expire(now, deadline_exceeded("publish waiting for a newer map"))
