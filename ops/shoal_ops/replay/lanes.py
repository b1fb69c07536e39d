"""Runs the steps of each group in a lane of its own, in file order. Groups go side by side.

Within a group, messages may be under way together, and so may binds and unbinds of different queues. A message waits
until all changes before it are acknowledged, and a change waits for all messages before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from shoal import Broker, Receipt
from shoal_ops.limits import CHANGES_UNDER_WAY_MAX, DEADLINE_S, PUBLISHES_UNDER_WAY_MAX, STEPS_PENDING_MAX
from shoal_ops.replay.comparison import Mismatches
from shoal_ops.replay.events import Join, Leave, Say
from shoal_ops.replay.expectation import Due
from shoal_ops.replay.offsets import Offsets
from shoal_ops.replay.population import Population
from shoal_ops.replay.tally import Tally
from shoal_runtime.tasks import Tasks


class Item(NamedTuple):
    """Holds a step, with names as the cluster gets them. `due`: for messages. `ends_event`: whether it is the last step
    of its event."""

    step: Join | Leave | Say
    due: Due | None
    ends_event: bool


class Pending:
    """Counts the items that wait or are under way, over all lanes."""

    def __init__(self) -> None:
        self._count = 0
        self._room = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    async def enter(self) -> None:
        """Waits for room, and counts one item more."""
        while self._count >= STEPS_PENDING_MAX:
            self._room.clear()
            await self._room.wait()
        self._count += 1
        self._empty.clear()

    def leave(self) -> None:
        self._count -= 1
        self._room.set()
        if not self._count:
            self._empty.set()

    async def until_empty(self) -> None:
        await self._empty.wait()


class Lane:
    """Runs one group's steps. `offsets`: those of the messages acknowledged so far."""

    def __init__(
        self,
        key: bytes,
        broker: Broker,
        population: Population,
        tally: Tally,
        pending: Pending,
        mismatches: Mismatches,
    ) -> None:
        self.offsets = Offsets()
        self._key = key
        self._broker = broker
        self._population = population
        self._tally = tally
        self._pending = pending
        self._mismatches = mismatches
        self._items: deque[Item] = deque()
        self._unsettled: deque[tuple[Item, asyncio.Future[Receipt]]] = deque()
        self._running = False

    def add(self, item: Item, tasks: Tasks) -> None:
        self._items.append(item)
        if not self._running:
            self._running = True
            tasks.start("lane", self._run())

    async def _run(self) -> None:
        while self._items:
            if isinstance(self._items[0].step, Say):
                await self._publish(self._items.popleft())
            else:
                await self._settle(0)
                await asyncio.gather(*map(self._change, self._next_changes()))
            if not self._items:
                await self._settle(0)
        self._running = False

    def _next_changes(self) -> list[Item]:
        """Takes the next changes, each of a different queue, up to the next message."""
        changes: dict[bytes, Item] = {}
        while self._items and len(changes) < CHANGES_UNDER_WAY_MAX:
            step = self._items[0].step
            if isinstance(step, Say) or step.queue in changes:
                break
            changes[step.queue] = self._items.popleft()
        return list(changes.values())

    async def _change(self, item: Item) -> None:
        step = item.step
        assert not isinstance(step, Say)
        await self._population.declared(step.queue)
        if isinstance(step, Join):
            await self._broker.bind(step.queue, self._key, deadline_s=DEADLINE_S)
            self._tally.binds += 1
        else:
            await self._broker.unbind(step.queue, self._key, deadline_s=DEADLINE_S)
            self._tally.unbinds += 1
        self._done(item)

    async def _publish(self, item: Item) -> None:
        assert isinstance(item.step, Say)
        future = await self._broker.publish_soon(self._key, item.step.body, deadline_s=DEADLINE_S)
        self._unsettled.append((item, future))
        await self._settle(PUBLISHES_UNDER_WAY_MAX)

    async def _settle(self, left_max: int) -> None:
        """Waits until at most `left_max` receipts are outstanding."""
        while len(self._unsettled) > left_max:
            item, future = self._unsettled.popleft()
            receipt, due = await future, item.due
            assert due is not None
            self.offsets.record(due.number, receipt.offset)
            if receipt.queues != due.queues:
                what = f"receipt says {receipt.queues} queues, not {due.queues}"
                self._mismatches.add(b"", self._key, receipt.offset, what)
            self._tally.messages += 1
            self._done(item)

    def _done(self, item: Item) -> None:
        if item.ends_event:
            self._tally.event_done()
        self._pending.leave()
