"""Gives back what pulls under a lease took and did not return, and what their programs did not look at.

Each such pull runs in a task of its own. If its caller leaves, or the connection closes, what it has found goes back at
once, "unseen", so that it is no delivery. The answer that is under way is waited for and given back, too: once a slice
has sent it, ending the call would not bring it back. A nack by name means the message whoever has it, so one is sent at
most once, and only while the lease lasts: else it would take the message from its next consumer. Not here: what a pull
asks for (leases.py), pulls of a connection (pulling.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from shoal.core.refusals import connection_closed, connection_cut
from shoal.limits import LEASE_BACK_NACKS_MAX, LEASE_BACK_RANGES_MAX, LEASE_BACK_S, LEASE_LEFT_MAX, LEASE_LEFT_S
from shoal.messages import Message
from shoal.own_loop import OwnLoop
from shoal.slice_calls import SliceCalls
from shoal.transport.methods import NACK
from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.tasks import Tasks

_log = logging.getLogger("shoal")


class Taken:
    """Collects what one pull takes. `left`: its caller does not get it, so the pull takes no more."""

    def __init__(self) -> None:
        self.found: list[Message] = []
        self.left = False


class _Back(NamedTuple):
    queue: bytes
    key: bytes
    first: int
    end: int
    until_s: float


class Unreturned:
    """Gives messages back for one connection, in tasks that outlive the calls. What it holds is bounded: what is above
    the bounds stays leased, as does what a slice does not take back."""

    def __init__(self, calls: SliceCalls, tasks: Tasks, own_loop: OwnLoop) -> None:
        self._calls = calls
        self._tasks = tasks
        self._own_loop = own_loop
        self._closed = False
        self._under_way: dict[Taken, asyncio.Task[None]] = {}
        """The pulls whose callers wait. It has as many items as there are such calls."""
        self._left: set[asyncio.Task[None]] = set()
        """Tasks that end pulls, or send nacks: each of the latter has one of the ranges at least."""
        self._ending = 0
        """Pulls that were left, and whose answer is waited for; at most LEASE_LEFT_MAX."""
        self._waiting: list[_Back] = []
        """Ranges that are sent in the next turn of the loop."""
        self._ranges = 0
        """Ranges that wait or are under way; at most LEASE_BACK_RANGES_MAX."""

    async def pull(self, taken: Taken, taking: Coroutine[Any, Any, None]) -> list[Message]:
        """Returns what `taking` has put into `taken`, once it has ended. Gives that back if this call ends otherwise.
        Raises what `taking` raises; Unavailable if the connection closes."""
        if self._closed or self._tasks.closed:
            taking.close()
            raise connection_closed()
        task = self._under_way[taken] = self._tasks.start("leased pull", taking, awaited=True)
        try:
            await asyncio.wait([task])
            if taken.left or task.cancelled():
                raise connection_cut()
            task.result()
        except BaseException:
            self._leave(taken, task)
            raise
        finally:
            del self._under_way[taken]
        return taken.found

    def give_back(self, queue: bytes, key: bytes, first: int, end: int, until_s: float) -> None:
        """Gives back the offsets first <= o < end of a key in the next turn of the loop, unless their lease is over
        then. `until_s`: event loop time up to which it lasts in any case. Raises BadCall from another event loop."""
        self._own_loop.check()
        if self._tasks.closed:
            return
        last = self._waiting[-1] if self._waiting else None
        if last is not None and last == (queue, key, last.first, first, until_s):
            self._waiting[-1] = last._replace(end=end)
        elif self._ranges < LEASE_BACK_RANGES_MAX:
            self._ranges += 1
            self._waiting.append(_Back(queue, key, first, end, until_s))
            if len(self._waiting) == 1:
                self._start("give back", self._send())

    async def close(self) -> None:
        """Ends the pulls under way, and waits for what is given back, for LEASE_BACK_S at most."""
        self._closed = True
        for taken, task in self._under_way.items():
            self._leave(taken, task)
        with suppress(TimeoutError):
            async with asyncio.timeout(LEASE_BACK_S):
                while self._left:
                    await asyncio.wait(self._left)

    def _leave(self, taken: Taken, task: asyncio.Task[None]) -> None:
        """Gives back what the pull found so far, and waits for the rest."""
        if taken.left:
            return
        taken.left = True
        _give_back_all(taken)
        if task.done() or self._tasks.closed:
            return
        if self._ending >= LEASE_LEFT_MAX:
            task.cancel()  # The slice gives back what it has not sent yet.
        else:
            self._ending += 1
            self._start("end a leased pull", self._end(taken, task))

    async def _end(self, taken: Taken, task: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait([task], timeout=LEASE_LEFT_S)
            task.cancel()
            await asyncio.wait([task])
        finally:
            self._ending -= 1
            _give_back_all(taken)

    async def _send(self) -> None:
        await asyncio.sleep(0)  # All that one step gives back goes together.
        backs, self._waiting = self._waiting, []
        try:
            now_s = asyncio.get_running_loop().time()
            groups: dict[tuple[str, float], list[_Back]] = {}
            for back in backs:
                if back.until_s > now_s:
                    deadline = min(back.until_s, now_s + LEASE_BACK_S)
                    groups.setdefault((self._calls.owner_of(back.key), deadline), []).append(back)
            await asyncio.gather(*(self._send_to(*to, group) for to, group in groups.items()))
        finally:
            self._ranges -= len(backs)

    async def _send_to(self, slice_name: str, deadline: float, backs: Sequence[_Back]) -> None:
        try:
            for start in range(0, len(backs), LEASE_BACK_NACKS_MAX):
                nacks = wire.Nacks(unseen=True, messages=map(_nack, backs[start : start + LEASE_BACK_NACKS_MAX]))
                await self._calls.ask_once(slice_name, NACK, wire.NackRequest(nacks=nacks), deadline)
        except ShoalError as error:
            _log.debug("messages that a pull took and did not return stay leased at slice %s: %s", slice_name, error)

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks.start(name, work)
        self._left.add(task)
        task.add_done_callback(self._left.discard)


def _give_back_all(taken: Taken) -> None:
    found, taken.found = taken.found, []
    for message in found:
        message.give_back()


def _nack(back: _Back) -> wire.Ack:
    nack = wire.Ack(key=back.key, to=back.end, queues=[back.queue])
    nack.low = back.first
    return nack
