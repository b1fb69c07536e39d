"""Bench `latency`: ten times the evaluation's churn and messages, on a full population, some of it attached.

Open loop: logins, logouts and publishes are due at random moments of a fixed rate, whether or not the slice is ready.
Each latency counts from the moment when its event was due, so a stall counts against everything that was due in it.
"""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from struct import Struct

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.consuming import ConsumingSession
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.frames import Frame, change_frame, churn_frame
from shoal_loadtest.limits import (
    ANSWER_S_MAX,
    LATENCY_AWAY_QUEUES,
    LATENCY_BODY_BYTES,
    LATENCY_CONSUMERS,
    LATENCY_OPS_PER_S,
    LATENCY_PUBLISHES_PER_S,
    LATENCY_SESSIONS,
    MEMBERSHIPS_PER_QUEUE,
    WARM_UP_SHARE,
)
from shoal_loadtest.load_session import LoadSession, checked_outcome
from shoal_loadtest.machine import measure_machine
from shoal_loadtest.node_process import NodeProcess
from shoal_loadtest.population import Population, queue_name
from shoal_loadtest.prepared import copied, populated
from shoal_loadtest.report import Result
from shoal_loadtest.setting import Setting
from shoal_loadtest.timings import percentile

_DUE = Struct("<d")


class Latencies:
    """Keeps latencies in seconds, of events that were due at or after `from_s`."""

    def __init__(self) -> None:
        self.from_s = float("inf")
        self.seconds = array("d")

    def note(self, due_s: float) -> None:
        if due_s >= self.from_s:
            self.seconds.append(time.perf_counter() - due_s)

    def ms(self, percent: float) -> float:
        return percentile(self.seconds, percent) * 1000

    def __str__(self) -> str:
        latency = " / ".join(f"{self.ms(at):.1f}" for at in (50, 99, 100))
        return f"{len(self.seconds):,}, p50 / p99 / max {latency} ms"


class OpenLoop:
    """Starts one kind of event at its rate, for a time."""

    def __init__(self, per_s: float, source: random.Random, event: Callable[[float], Awaitable[None]]) -> None:
        self._per_s = per_s
        self._source = source
        self._event = event

    async def run(self, seconds: float) -> None:
        """Calls `event(due_s)` with exponential pauses. Late events are called at once, with the time at which they
        were due."""
        due_s = time.perf_counter()
        end_s = due_s + seconds
        while (due_s := due_s + self._source.expovariate(self._per_s)) < end_s:
            wait_s = due_s - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            await self._event(due_s)


class Logins:
    """Logs a random queue out, then the queue longest away in, and so on. Queues below `LATENCY_CONSUMERS` stay."""

    def __init__(self, population: Population, session: LoadSession, source: random.Random) -> None:
        self.latencies = Latencies()
        self.operations = 0
        self._population = population
        self._session = session
        self._source = source
        self._away: deque[int] = deque()
        self._out: set[int] = set()

    async def event(self, due_s: float) -> None:
        def answered(answer: wire.Answer) -> None:
            self.latencies.note(due_s)
            self.operations += sum(len(step.offsets) for step in checked_outcome(answer).steps)

        await self._session.send(self._frame(), answered)

    def _frame(self) -> Frame:
        if len(self._away) > min(LATENCY_AWAY_QUEUES, self._population.queues // 4):
            queue = self._away.popleft()
            self._out.discard(queue)
            return churn_frame(self._population, [], [queue])
        while (queue := self._source.randrange(LATENCY_CONSUMERS, self._population.queues)) in self._out:
            pass
        self._out.add(queue)
        self._away.append(queue)
        return churn_frame(self._population, [queue], [])


class Publishes:
    """Publishes single messages to keys of attached queues. The body begins with the moment at which it was due."""

    def __init__(self, population: Population, session: LoadSession, source: random.Random) -> None:
        self.receipts = Latencies()
        self.arrivals = Latencies()
        self.consumed = 0
        """The deliveries that the receipts promise."""
        self._population = population
        self._session = session
        self._source = source

    async def event(self, due_s: float) -> None:
        key = self._source.choice(self._population.keys_of(self._source.randrange(LATENCY_CONSUMERS)))
        chunk = encode_chunk([_DUE.pack(due_s) + bytes(LATENCY_BODY_BYTES - _DUE.size)])

        def answered(answer: wire.Answer) -> None:
            self.receipts.note(due_s)
            checked_outcome(answer)
            self.consumed += sum(answer.consumed)

        publishes = wire.Publishes(keys=[key], chunks=[chunk], mandatory=True)
        await self._session.send(change_frame([wire.Step(publishes=publishes)]), answered)

    def delivered(self, delivery: wire.Delivery) -> None:
        for body in parse_chunk(delivery.chunk).bodies:
            self.arrivals.note(_DUE.unpack_from(body)[0])


async def bench_latency(setting: Setting) -> Result:
    """Runs the bench. Raises BenchFailed."""
    population = Population(setting.queues)
    source = await populated(setting.data, population)
    machine = measure_machine(setting.data)
    seconds = setting.seconds_of("latency")
    async with copied(source, setting.data) as folder, NodeProcess(folder) as node, AsyncExitStack() as stack:
        logins_session = await stack.enter_async_context(LoadSession(node.address))
        publishes_session = await stack.enter_async_context(LoadSession(node.address))
        logins = Logins(population, logins_session, random.Random(f"logins {setting.seed}"))
        publishes = Publishes(population, publishes_session, random.Random(f"publishes {setting.seed}"))
        consumers = []
        for number in range(LATENCY_SESSIONS):
            queues = [queue_name(queue) for queue in range(number, LATENCY_CONSUMERS, LATENCY_SESSIONS)]
            consumer = ConsumingSession(node.address, queues, publishes.delivered)
            consumers.append(await stack.enter_async_context(consumer))
        await _load(logins, publishes, seconds, setting.seed)
        await _answered(lambda: not logins_session.in_flight and not publishes_session.in_flight, "answers")
        await _answered(lambda: sum(consumer.deliveries for consumer in consumers) >= publishes.consumed, "deliveries")
        used_s = node.usage()["broker"].cpu_s
    found = sum(consumer.deliveries for consumer in consumers)
    if found != publishes.consumed:
        raise BenchFailed(f"{found} deliveries arrived; the receipts promise {publishes.consumed}")
    figures = {
        "bind_p99_ms": logins.latencies.ms(99),
        "publish_p99_ms": publishes.receipts.ms(99),
        "delivery_p99_ms": publishes.arrivals.ms(99),
    }
    details = [
        ("load", f"{LATENCY_OPS_PER_S:,}/s bind and unbind by nines, {LATENCY_PUBLISHES_PER_S}/s publishes, open loop"),
        ("consumers", f"{LATENCY_CONSUMERS:,} queues attached over {LATENCY_SESSIONS} sessions, {found:,} deliveries"),
        ("logins and logouts", str(logins.latencies)),
        ("publishes", str(publishes.receipts)),
        ("deliveries", str(publishes.arrivals)),
        ("broker CPU", f"{used_s / (seconds * (1 + WARM_UP_SHARE)):.0%}"),
    ]
    return Result("latency", "", figures, machine, details)


async def _load(logins: Logins, publishes: Publishes, seconds: float, seed: int) -> None:
    warm_up_s = seconds * WARM_UP_SHARE
    from_s = time.perf_counter() + warm_up_s
    for latencies in (logins.latencies, publishes.receipts, publishes.arrivals):
        latencies.from_s = from_s
    loops = (
        OpenLoop(LATENCY_OPS_PER_S / MEMBERSHIPS_PER_QUEUE, random.Random(f"due {seed}"), logins.event),
        OpenLoop(LATENCY_PUBLISHES_PER_S, random.Random(f"due too {seed}"), publishes.event),
    )
    async with asyncio.TaskGroup() as group:
        for loop in loops:
            group.create_task(loop.run(warm_up_s + seconds))


async def _answered(all_there: Callable[[], bool], what: str) -> None:
    """Waits until all are there. Raises BenchFailed."""
    until_s = time.perf_counter() + ANSWER_S_MAX
    while not all_there():
        if time.perf_counter() > until_s:
            raise BenchFailed(f"{what} were missing after {ANSWER_S_MAX} s")
        await asyncio.sleep(0.01)
