"""Asks slices to look: at queues and keys, and at the heads of queues. Nothing but other looks ever waits for a look.

A look is a unary call. When nothing waits for it any more, it ends at its slice, too; a frame of a session cannot be
taken back. What is asked while the same look is under way is asked once more when that is over, for all who asked
meanwhile: an answer takes into account all that happened before the question.

A look about a key goes to the slice that owns it by the newest map. Where the key moves meanwhile, the former owner is
asked no more, and the look begins anew at the new one.

Looks that are answered soon and those that take long go over connections of their own, a bounded number at a time over
each. A look without an answer after LOOK_QUICK_S begins again among the slow ones, and is taken for one of them from
then on. So looks at large queues hold up each other, and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple

from shoal.core.refusals import connection_closed, connection_cut, deadline_exceeded, no_newer_map, unreadable
from shoal.core.slow_looks import SlowLooks
from shoal.limits import LONG_QUESTION_BINDINGS, LOOK_QUICK_S, LOOKS_AT_ONCE_MAX
from shoal.map_watch import MapWatch
from shoal.slice_calls import SliceCalls
from shoal.transport.base import Method, Request, Response
from shoal.transport.methods import DESCRIBE, PULL
from shoal_contract.errors import Fenced, MapOrLeaderChanged, Unavailable
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.tasks import Tasks

QUICK: Final = "looks"
SLOW: Final = "slow looks"
"""Name the connections of looks."""


_Asked = tuple[str, str, bytes]
"""What a look is about: a slice ("": the one that owns its keys), a method, and the request."""


class _Stay(NamedTuple):
    """Says at which slice a look is, or waits for a place, and ends that."""

    slice_name: str
    until: asyncio.Timeout


class _Look(Generic[Request, Response]):
    """Keeps one look. `slice_of`: names the slice to ask, as it is by the newest map. `stay`: where it is now.
    `deadline`: the last of its callers'. `waiting`: how many callers wait for it."""

    __slots__ = ("asked", "deadline", "method", "queues", "request", "slice_of", "stay", "task", "waiting")

    def __init__(
        self, slice_of: Callable[[], str], method: Method[Request, Response], request: Request, asked: _Asked
    ) -> None:
        self.slice_of = slice_of
        self.method = method
        self.request = request
        self.asked = asked
        self.queues = _queues_in(request)
        self.deadline = 0.0
        self.waiting = 0
        self.stay: _Stay | None = None
        self.task: asyncio.Task[Response] | None = None


class Looks:
    """Looks for one connection. `deadline`: event loop time. Each call raises what the slice refuses it with, and
    DeadlineExceeded."""

    def __init__(self, calls: SliceCalls, map_watch: MapWatch, tasks: Tasks) -> None:
        self._calls = calls
        self._tasks = tasks
        self._next: dict[_Asked, _Look[Any, Any]] = {}
        """Looks that have not begun, which callers who ask the same join: at most as many as callers."""
        self._now: dict[_Asked, _Look[Any, Any]] = {}
        """Looks that are under way, or wait for a place among the slow ones."""
        self._places: dict[tuple[str, str], asyncio.Semaphore] = {}
        """Slice and connection -> its places: twice as many as the map ever had slices."""
        self._slow = SlowLooks()
        map_watch.listen(lambda _: self._leave_former_owners())

    async def describe(self, slice_name: str, question: wire.Describe, deadline: float) -> wire.Description:
        """Describes queues at a slice."""
        request = wire.DescribeRequest(describe=question)
        found = (await self._look(slice_name, lambda: slice_name, DESCRIBE, request, deadline)).description
        return _checked(slice_name, found, question)

    async def describe_key(self, key: bytes, deadline: float) -> wire.KeyDescription:
        """Describes a key at the slice that owns it, by the newest map."""
        question = wire.Describe(keys=[key])
        request = wire.DescribeRequest(describe=question)
        found = (await self._look("", lambda: self._calls.owner_of(key), DESCRIBE, request, deadline)).description
        return _checked(self._calls.owner_of(key), found, question).keys[0]

    async def peek(self, slice_name: str, pull: wire.Pull, deadline: float) -> wire.PullResponse:
        """Looks at messages at a slice."""
        return await self._look(slice_name, lambda: slice_name, PULL, wire.PullRequest(pull=pull), deadline)

    @property
    def slices(self) -> set[str]:
        """Returns the slices at which looks are under way."""
        return {look.stay.slice_name for look in self._now.values() if look.stay is not None}

    async def flush(self) -> None:
        """Waits until all looks are over."""
        while looks := [*self._now.values(), *self._next.values()]:
            await asyncio.wait([look.task for look in looks if look.task is not None])

    async def _look(
        self,
        at: str,
        slice_of: Callable[[], str],
        method: Method[Request, Response],
        request: Request,
        deadline: float,
    ) -> Response:
        """Waits for the next look of this kind, and begins it unless others wait for it. `at`: see _Asked."""
        self._calls.check_open()
        if self._tasks.closed:
            raise connection_closed()
        asked = (at, method.path, request.SerializeToString())
        look: _Look[Request, Response] | None = self._next.get(asked)
        if look is None:
            look = self._next[asked] = _Look(slice_of, method, request, asked)
        look.waiting += 1
        look.deadline = max(look.deadline, deadline)
        task = look.task = look.task or self._tasks.start(f"look at {slice_of()}", self._do(look), awaited=True)
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.wait([task])
        except TimeoutError:
            raise deadline_exceeded(f"question to slice {slice_of()}") from None
        finally:
            look.waiting -= 1
            if not look.waiting:
                task.cancel()
                _remove(self._next, look)
        if task.cancelled():
            raise connection_cut()
        if (error := task.exception()) is not None:
            raise error.with_traceback(None)
        return task.result()

    async def _do(self, look: _Look[Request, Response]) -> Response:
        """Looks once what asked the same before is over; elsewhere if what it is about moves meanwhile."""
        try:
            while (before := self._now.get(look.asked)) is not None and before.task is not None:
                await asyncio.wait([before.task])
            while True:
                until = asyncio.timeout(None)
                look.stay = _Stay(look.slice_of(), until)
                try:
                    async with until:
                        return await self._do_at(look.stay.slice_name, look)
                except TimeoutError:
                    if not until.expired():
                        raise
        finally:
            _remove(self._next, look)
            _remove(self._now, look)

    async def _do_at(self, name: str, look: _Look[Request, Response]) -> Response:
        """Looks first among the quick ones, unless it is known to be slow."""
        if not self._slow.any_is_slow(look.method.path, look.queues):
            async with self._place(name, QUICK):
                answer = await self._quick(name, look)
            if answer is not None:
                self._note(look, answer, False)
                return answer
            if len(look.queues) == 1:  # Of several it is not known which takes long.
                self._slow.note(look.method.path, look.queues[0], True)
        async with self._place(name, SLOW):
            began_s = asyncio.get_running_loop().time()
            answer = await self._ask(name, look, SLOW)
        took_s = asyncio.get_running_loop().time() - began_s
        self._note(look, answer, len(look.queues) == 1 and took_s >= LOOK_QUICK_S)
        return answer

    async def _quick(self, name: str, look: _Look[Request, Response]) -> Response | None:
        """Returns the answer; None if it does not come soon."""
        soon = asyncio.timeout(LOOK_QUICK_S)
        try:
            async with soon:
                return await self._ask(name, look, QUICK)
        except TimeoutError:
            if not soon.expired():
                raise  # It was the look's deadline.
            return None

    async def _ask(self, name: str, look: _Look[Request, Response], apart: str) -> Response:
        """Asks the slice. From now on nothing joins this look."""
        _remove(self._next, look)
        self._now[look.asked] = look
        try:
            return await self._calls.ask_slice(lambda: name, look.method, look.request, look.deadline, apart=apart)
        except (MapOrLeaderChanged, Unavailable, Fenced) as error:
            what = f"question to slice {name}"
            if isinstance(error, MapOrLeaderChanged):
                raise no_newer_map(what, error.message) from None
            raise deadline_exceeded(f"{what} ({error.message})") from None

    def _leave_former_owners(self) -> None:
        """Ends what is asked of slices that a new map does not name any more, or waits for a place there."""
        now = asyncio.get_running_loop().time()
        for look in (*self._now.values(), *self._next.values()):
            stay = look.stay
            if stay is not None and not stay.until.expired() and look.slice_of() != stay.slice_name:
                stay.until.reschedule(now)

    def _place(self, name: str, apart: str) -> asyncio.Semaphore:
        return self._places.setdefault((name, apart), asyncio.Semaphore(LOOKS_AT_ONCE_MAX))

    def _note(self, look: _Look[Any, Any], answer: object, took_long: bool) -> None:
        """Remembers which of the queues are slow to look at."""
        counts = [0] * len(look.queues)
        if isinstance(answer, wire.DescribeResponse):
            counts = [queue.binding_count for queue in answer.description.queues]
        for queue, count in zip(look.queues, counts, strict=False):
            self._slow.note(look.method.path, queue, took_long or count > LONG_QUESTION_BINDINGS)


def _checked(slice_name: str, found: wire.Description, question: wire.Describe) -> wire.Description:
    """Returns what was found. Raises Malformed if it describes more or less than was asked for."""
    for what, told, asked in (("queues", found.queues, question.queues), ("keys", found.keys, question.keys)):
        if len(told) != len(asked):
            raise unreadable(slice_name, f"it describes {len(told)} {what} of {len(asked)}")
    return found


def _remove(looks: dict[_Asked, _Look[Any, Any]], look: _Look[Any, Any]) -> None:
    if looks.get(look.asked) is look:
        del looks[look.asked]


def _queues_in(request: object) -> list[bytes]:
    if isinstance(request, wire.DescribeRequest):
        return list(request.describe.queues)
    return [request.pull.queue] if isinstance(request, wire.PullRequest) else []
