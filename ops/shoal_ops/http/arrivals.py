"""Lets pulls wait for messages of queues (long polls). They share repeated requests to every slice.

What a look at a queue costs a slice goes by its bindings. So small, medium, large and unknown queues have lanes each:
pulls of small ones do not wait for looks at large ones, and each lane takes a bounded share of the time. A queue is
unknown until slices have told how many bindings it has.

Belongs here: when a waiting pull should look again. Not here: pulling. A queue that is waited for is not attached, so
waiting takes no message from other consumers.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from itertools import islice
from typing import NoReturn

import shoal
from shoal.limits import LEASE_BACKLOGS_MAX
from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_ops.http import limits

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Waiter:
    """Stands for a pull that waits. `seen`: the backlog at which it found nothing to take; `retry_at`: the loop's time
    from which it looks again although the backlog is the same."""

    queue: bytes
    seen: int
    retry_at: float
    woken: asyncio.Future[int] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class _Lane:
    """Keeps the waiters of queues of up to `bindings_max` bindings, in turn. At most `queues_max` queues are asked for
    at a time, in at most `share_max` of the time."""

    def __init__(self, name: str, bindings_max: float, queues_max: int, share_max: float) -> None:
        self.name = name
        self.bindings_max = bindings_max
        self.waiters: dict[_Waiter, None] = {}
        self.some = asyncio.Event()
        self.failing = False
        """True if the last look failed: the log has it."""
        self._queues_max = queues_max
        self._share_max = share_max

    def add(self, waiter: _Waiter) -> None:
        self.waiters[waiter] = None
        self.some.set()

    def next_queues(self) -> dict[bytes, list[_Waiter]]:
        """Returns the queues to ask for now, with their waiters, which go behind all others."""
        queues = dict.fromkeys(waiter.queue for waiter in self.waiters)
        by_queue: dict[bytes, list[_Waiter]] = {queue: [] for queue in islice(queues, self._queues_max)}
        for waiter in [waiter for waiter in self.waiters if waiter.queue in by_queue]:
            by_queue[waiter.queue].append(waiter)
            self.waiters[waiter] = self.waiters.pop(waiter)
        return by_queue

    def pause_s(self, took_s: float, silent: bool) -> float:
        """Returns the seconds until the next look, after one that took so long. `silent`: a slice did not answer in
        time: that says little of what small queues cost, and messages on other slices should not wait for it."""
        if silent and self.bindings_max <= limits.LOOK_BINDINGS_SMALL:
            return limits.LOOK_EVERY_S_MAX
        longest_s = max(limits.LOOK_EVERY_S_MAX, took_s * (1 / self._share_max - 1))
        return min(max(took_s * (1 / limits.LOOK_SHARE - 1), limits.LOOK_EVERY_S_MIN), longest_s)


class Arrivals:
    """Keeps the pulls that wait, at most WAITING_PULLS_MAX, and wakes them. Run `look` as a task."""

    def __init__(self, leases: shoal.Leases) -> None:
        self._leases = leases
        large = limits.LOOK_SHARE_MAX_LARGER
        self._by_size = (
            _Lane("small", limits.LOOK_BINDINGS_SMALL, LEASE_BACKLOGS_MAX, limits.LOOK_SHARE_MAX),
            _Lane("medium", limits.LOOK_BINDINGS_MEDIUM, limits.LOOK_QUEUES_MEDIUM, large),
            _Lane("large", float("inf"), limits.LOOK_QUEUES_LARGE, large),
        )
        self._unknown = _Lane("unknown", float("inf"), LEASE_BACKLOGS_MAX, large)
        """Waiters of queues whose size no slice has told yet; a look tells it, or a few where they take long."""
        self._lanes = (*self._by_size, self._unknown)

    def __len__(self) -> int:
        """Returns how many pulls wait."""
        return sum(len(lane.waiters) for lane in self._lanes)

    async def wait(self, queue: bytes, seen: int, wait_s: float, gone: asyncio.Task[None]) -> int:
        """Waits until there may be something to take, `gone` is done, or `wait_s` seconds are over.

        Returns the backlog, for the next call's `seen`; the first call gives -1. Raises ResourceExhausted.
        """
        if len(self) >= limits.WAITING_PULLS_MAX:
            raise ResourceExhausted(
                f"pulls that wait: {len(self)}; the limit is {limits.WAITING_PULLS_MAX}",
                subject="waiting pulls",
                limit=limits.WAITING_PULLS_MAX,
                value=len(self) + 1,
            )
        waiter = _Waiter(queue, seen, asyncio.get_running_loop().time() + limits.RETRY_S)
        self._lane_of(queue).add(waiter)
        try:
            await asyncio.wait((waiter.woken, gone), timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            return waiter.woken.result() if waiter.woken.done() else seen
        finally:
            for lane in self._lanes:
                lane.waiters.pop(waiter, None)

    def end_all(self) -> None:
        """Wakes all pulls that wait: each looks once more and then answers."""
        for lane in self._lanes:
            for waiter in lane.waiters:
                if not waiter.woken.done():
                    waiter.woken.set_result(waiter.seen)

    async def look(self) -> NoReturn:
        """Asks the slices as long as a pull waits. A slice that is silent is asked again the next time."""
        await asyncio.gather(*(self._look_along(lane) for lane in self._lanes))
        raise AssertionError("looks do not end")

    async def _look_along(self, lane: _Lane) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            if not lane.waiters:
                lane.some.clear()
                await lane.some.wait()
            began = loop.time()
            failed: ShoalError | None = None
            silent = False
            try:
                silent = await self._look_once(lane)
            except ShoalError as error:
                failed = error
            _tell_failure(lane, failed)
            pause_s = lane.pause_s(loop.time() - began, silent)
            await asyncio.sleep(limits.LOOK_EVERY_S_MAX + pause_s if failed else pause_s)

    async def _look_once(self, lane: _Lane) -> bool:
        """Returns whether a slice was silent. Raises ShoalError."""
        by_queue = lane.next_queues()
        backlogs = await self._leases.backlogs(list(by_queue))
        for queue, backlog in zip(by_queue, backlogs, strict=True):
            for waiter in by_queue[queue]:
                _tell(waiter, backlog)
            right = self._lane_of(queue)
            if right is not lane:
                for waiter in by_queue[queue]:
                    if waiter in lane.waiters:
                        del lane.waiters[waiter]
                        right.add(waiter)
        return any(backlog.silent for backlog in backlogs)

    def _lane_of(self, queue: bytes) -> _Lane:
        bindings = self._leases.bindings_of(queue)
        return self._unknown if bindings is None else next(one for one in self._by_size if bindings <= one.bindings_max)


def _tell_failure(lane: _Lane, failed: ShoalError | None) -> None:
    """Logs that a look failed, once while looks fail, and that they are well again."""
    if failed is not None and not lane.failing:
        _log.warning(
            "pulls that wait for messages of %s queues are not woken, and look again only when their time is over:"
            " the slices cannot be asked what these queues have (it is tried again): %s",
            *(lane.name, failed),
        )
    elif failed is None and lane.failing:
        _log.warning("pulls that wait for messages of %s queues are woken again", lane.name)
    lane.failing = failed is not None


def _tell(waiter: _Waiter, backlog: shoal.Backlog) -> None:
    late = asyncio.get_running_loop().time() >= waiter.retry_at
    news = backlog.messages > 0 and (backlog.messages != waiter.seen or late)
    not_counted = bool(backlog.refused) and late
    dropped = not backlog.exists and not backlog.silent
    if (news or not_counted or dropped) and not waiter.woken.done():
        waiter.woken.set_result(backlog.messages)
