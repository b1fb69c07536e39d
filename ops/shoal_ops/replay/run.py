"""Runs a replay from its files to its report: connections, steps to lanes, the wait for the last message,
comparison."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from zlib import crc32

import shoal
from shoal_ops.limits import CONNECT_S, QUIET_S
from shoal_ops.replay.comparison import Mismatches, compare
from shoal_ops.replay.events import Event, Join, Leave, Say, Step, read_events
from shoal_ops.replay.expectation import Due, Expectation, GroupExpectation
from shoal_ops.replay.lanes import Item, Lane, Pending
from shoal_ops.replay.population import Population
from shoal_ops.replay.received import Received
from shoal_ops.replay.tally import ReplayReport, Tally
from shoal_runtime.tasks import Tasks


@dataclass(frozen=True, slots=True)
class Source:
    """Names an event file. `publish_after_churn`: a message to the group after each change, if it is a churn file."""

    path: Path
    publish_after_churn: bool = False


@dataclass(slots=True)
class Replay:
    """Runs one replay: `await Replay(...).run()`, once. `tally`, `deliveries` and `redeliveries` tell meanwhile how far
    it is.

    `clients`: connections; a group's steps go over one. Names get a prefix of their own, so that replays on one cluster
    do not mix. `keep`: leave the queues there; else they are dropped, unless something is wrong with them.
    """

    redirector: str
    sources: Sequence[Source]
    clients: int = 4
    keep: bool = False
    quiet_s: float = QUIET_S
    tally: Tally = field(default_factory=Tally)
    expectation: Expectation = field(default_factory=Expectation)
    prefix: str = field(default_factory=lambda: f"replay-{secrets.token_hex(3)}")
    _received: Received = field(default_factory=Received)
    _mismatches: Mismatches = field(default_factory=Mismatches)
    _lanes: dict[bytes, Lane] = field(default_factory=dict)

    @property
    def deliveries(self) -> int:
        return self._received.messages

    @property
    def redeliveries(self) -> int:
        return self._received.repeats

    async def run(self) -> ReplayReport:
        """Runs the replay. Raises Malformed and OSError (files), and what the cluster refuses or does not answer in
        DEADLINE_S."""
        failed: asyncio.Future[ReplayReport] = asyncio.get_running_loop().create_future()

        def fail(_: str, error: BaseException) -> None:
            if not failed.done():
                failed.set_exception(error)

        async with AsyncExitStack() as stack:
            brokers = [
                await stack.enter_async_context(shoal.connect(self.redirector, deadline_s=CONNECT_S))
                for _ in range(self.clients)
            ]
            tasks = await stack.enter_async_context(Tasks("replay", fail))
            population = Population(brokers, tasks, self._received, self._mismatches)
            await population.open(stack)
            work = tasks.start("work", self._work(brokers, population, tasks))
            await asyncio.wait([work, failed], return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                failed.result()
            failed.cancel()
            return work.result()

    async def _work(self, brokers: Sequence[shoal.Broker], population: Population, tasks: Tasks) -> ReplayReport:
        began = monotonic()
        pending = Pending()
        for number, source in enumerate(self.sources):
            prefix = f"{self.prefix}.{number}.".encode()
            for event in read_events(source.path, source.publish_after_churn):
                for item in self._items(event, prefix):
                    await pending.enter()
                    lane = self._lanes.get(item.step.group)
                    if lane is None:
                        key = item.step.group
                        broker = brokers[crc32(key) % len(brokers)]
                        lane = Lane(key, broker, population, self.tally, pending, self._mismatches)
                        self._lanes[key] = lane
                    lane.add(item, tasks)
        await pending.until_empty()
        await self._until_delivered(population)
        await population.flush()
        self._compare()
        await population.check_empty()
        if not self.keep and not self._mismatches.count:
            await population.drop()
        return self._report(len(population), monotonic() - began)

    def _items(self, event: Event, prefix: bytes) -> list[Item]:
        """Returns the items of an event, and tells them to the expectation, in file order."""
        if not event:
            self.tally.event_done()
        return [
            Item(named, self._expect(named), index == len(event) - 1)
            for index, named in enumerate(_named(step, prefix) for step in event)
        ]

    def _expect(self, step: Step) -> Due | None:
        match step:
            case Join(group, queue):
                self.expectation.join(group, queue)
            case Leave(group, queue):
                self.expectation.leave(group, queue)
            case Say(group, body):
                return self.expectation.say(group, body)
        return None

    async def _until_delivered(self, population: Population) -> None:
        """Waits until everything came, or nothing came for `quiet_s`."""
        while self._received.messages < self.expectation.deliveries:
            population.arrived.clear()
            try:
                async with asyncio.timeout(self.quiet_s):
                    await population.arrived.wait()
            except TimeoutError:
                return

    def _compare(self) -> None:
        for key in self.expectation.groups.keys() | self._received.keys.keys():
            expected = self.expectation.groups.get(key) or GroupExpectation()
            lane = self._lanes.get(key)
            if lane is None:
                self._mismatches.add(b"", key, 0, "a key that no event names")
                continue
            compare(key, expected, lane.offsets, self._received.keys.get(key), self._mismatches)

    def _report(self, queues: int, seconds: float) -> ReplayReport:
        return ReplayReport(
            files=tuple(str(source.path) for source in self.sources),
            groups=len(self._lanes),
            queues=queues,
            events=self.tally.events,
            binds=self.tally.binds,
            unbinds=self.tally.unbinds,
            messages=self.tally.messages,
            deliveries=self._received.messages,
            mismatches=self._mismatches.count,
            redeliveries=self._received.repeats,
            seconds=seconds,
            first_mismatches=tuple(self._mismatches.first),
        )


def _named(step: Step, prefix: bytes) -> Step:
    match step:
        case Join(group, queue):
            return Join(prefix + group, prefix + queue)
        case Leave(group, queue):
            return Leave(prefix + group, prefix + queue)
        case Say(group, body):
            return Say(prefix + group, body)
