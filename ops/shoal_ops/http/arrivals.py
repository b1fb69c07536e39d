"""Lets pulls wait for messages of queues (long polls). All of them share one repeated request to every slice.

Belongs here: when a waiting pull should look again. Not here: pulling. A queue that is waited for is not attached, so
waiting takes no message from other consumers.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import NoReturn

import shoal
from shoal.limits import LEASE_BACKLOGS_MAX
from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_ops.http import limits


@dataclass(eq=False, slots=True)
class _Waiter:
    """Stands for a pull that waits. `seen`: the backlog at which it found nothing to take; `retry_at`: the loop's time
    from which it looks again although the backlog is the same."""

    queue: bytes
    seen: int
    retry_at: float
    woken: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Arrivals:
    """Keeps the pulls that wait, at most WAITING_PULLS_MAX, and wakes them. Run `look` as a task."""

    def __init__(self, leases: shoal.Leases) -> None:
        self._leases = leases
        self._waiters: set[_Waiter] = set()
        self._some = asyncio.Event()

    def __len__(self) -> int:
        """Returns how many pulls wait."""
        return len(self._waiters)

    async def wait(self, queue: bytes, seen: int, wait_s: float, gone: asyncio.Task[None]) -> int:
        """Waits until there may be something to take, `gone` is done, or `wait_s` seconds are over.

        Returns the backlog, for the next call's `seen`; the first call gives -1. Raises ResourceExhausted.
        """
        if len(self._waiters) >= limits.WAITING_PULLS_MAX:
            raise ResourceExhausted(
                f"pulls that wait: {len(self._waiters)}; the limit is {limits.WAITING_PULLS_MAX}",
                subject="waiting pulls",
                limit=limits.WAITING_PULLS_MAX,
                value=len(self._waiters) + 1,
            )
        waiter = _Waiter(queue, seen, asyncio.get_running_loop().time() + limits.RETRY_S)
        self._waiters.add(waiter)
        self._some.set()
        try:
            await asyncio.wait((waiter.woken, gone), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            return waiter.woken.result() if waiter.woken.done() else seen
        finally:
            self._waiters.discard(waiter)

    def end_all(self) -> None:
        """Wakes all pulls that wait: each looks once more and then answers."""
        for waiter in self._waiters:
            if not waiter.woken.done():
                waiter.woken.set_result(waiter.seen)

    async def look(self) -> NoReturn:
        """Asks the slices as long as a pull waits. A slice that is silent is asked again the next time."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._waiters:
                self._some.clear()
                await self._some.wait()
            began = loop.time()
            try:
                await self._look_once()
            except ShoalError:
                await asyncio.sleep(limits.LOOK_EVERY_S_MAX)
            pause_s = (loop.time() - began) * (1 / limits.LOOK_SHARE - 1)
            await asyncio.sleep(min(max(pause_s, limits.LOOK_EVERY_S_MIN), limits.LOOK_EVERY_S_MAX))

    async def _look_once(self) -> None:
        by_queue: dict[bytes, list[_Waiter]] = {}
        for waiter in self._waiters:
            by_queue.setdefault(waiter.queue, []).append(waiter)
        queues = list(by_queue)
        for start in range(0, len(queues), LEASE_BACKLOGS_MAX):
            some = queues[start : start + LEASE_BACKLOGS_MAX]
            for queue, backlog in zip(some, await self._leases.backlogs(some), strict=True):
                for waiter in by_queue[queue]:
                    _tell(waiter, backlog)


def _tell(waiter: _Waiter, backlog: shoal.Backlog) -> None:
    late = asyncio.get_running_loop().time() >= waiter.retry_at
    news = backlog.messages > 0 and (backlog.messages != waiter.seen or late)
    dropped = not backlog.exists and not backlog.silent
    if (news or dropped) and not waiter.woken.done():
        waiter.woken.set_result(backlog.messages)
