"""Bench `storm`: a gateway dies. A million unbinds, then 100,000 drops of queues with nine bindings each, are asked for
at once, while others publish in an open loop. Shows when all is answered, what the others notice, and how long the
slice still reclaims in the background.

The run has five phases, one after the other: nothing but the others; unbinds; what they leave; drops; what these leave.
Belongs here: the load and its figures. Not here: the picture of them (storm_plot.py).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.admin_pb2 import FiguresRequest, FiguresResponse
from shoal_loadtest.consuming import ConsumingSession
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.frames import Frame, change_frame, churn_frame
from shoal_loadtest.latency import OpenLoop
from shoal_loadtest.limits import (
    ANSWER_S_MAX,
    LATENCY_BODY_BYTES,
    MEMBERSHIPS_PER_QUEUE,
    STORM_CHECKED,
    STORM_DROPS,
    STORM_DROPS_PER_FRAME,
    STORM_FRAMES_IN_FLIGHT,
    STORM_LOOK_S,
    STORM_PUBLISHES_PER_S,
    STORM_RECLAIM_S_MAX,
    STORM_UNBIND_QUEUES,
    STORM_UNBIND_QUEUES_PER_FRAME,
)
from shoal_loadtest.load_session import LoadSession, checked_outcome
from shoal_loadtest.machine import measure_machine
from shoal_loadtest.node_process import NodeProcess
from shoal_loadtest.population import Population, queue_name
from shoal_loadtest.prepared import copied, populated
from shoal_loadtest.report import Result
from shoal_loadtest.setting import Setting
from shoal_loadtest.timings import percentile_of

QUIET, UNBINDS, AFTER_UNBINDS, DROPS, AFTER_DROPS = "quiet", "unbinds", "after unbinds", "drops", "after drops"
_QUEUE, _KEY = b"honest-queue", b"honest-key"
_FIGURES = "/shoal.v1.AdminService/Figures"


class Look(NamedTuple):
    """Holds one look at the slice: when, how many bindings it has, and the processor time that it has used."""

    at_s: float
    bindings: int
    cpu_s: float


@dataclass
class Course:
    """Records a run over time, in seconds of one clock. `phases`: when each began, in order; `end_s`: when the last
    ended. `publishes`: (when due, latency). `answers`: (when, operations) of each answer to the storm."""

    phases: dict[str, float] = field(default_factory=dict)
    end_s: float = 0.0
    publishes: list[tuple[float, float]] = field(default_factory=list)
    answers: list[tuple[float, int]] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    def span(self, phase: str) -> tuple[float, float]:
        """Returns when a phase began and ended."""
        begins = [*self.phases.values(), self.end_s]
        index = list(self.phases).index(phase)
        return begins[index], begins[index + 1]

    def seconds(self, phase: str) -> float:
        begin_s, end_s = self.span(phase)
        return end_s - begin_s

    def publish_ms(self, percent: float, *phases: str) -> float:
        """Returns the percentile of the latencies of publishes that were due in these phases."""
        spans = [self.span(phase) for phase in phases]
        found = [late for due, late in self.publishes if any(begin <= due < end for begin, end in spans)]
        return percentile_of(found, percent) * 1000

    def cpu_s(self, *phases: str) -> float:
        """Returns the processor time that the slice's broker took in these phases, from one look to another."""
        return sum(self._cpu_at(self.span(phase)[1]) - self._cpu_at(self.span(phase)[0]) for phase in phases)

    def _cpu_at(self, at_s: float) -> float:
        return next((look.cpu_s for look in self.looks if look.at_s >= at_s), self.looks[-1].cpu_s)


async def bench_storm(setting: Setting) -> Result:
    """Runs the bench. Raises BenchFailed."""
    population = Population(setting.queues)
    source = await populated(setting.data, population)
    machine = measure_machine(setting.data)
    drops, unbinds = storm_sizes(population)
    dropping = [
        (change_frame([wire.Step(drops=wire.Drops(queues=[queue_name(queue) for queue in some]))]), len(some))
        for some in _pieces(range(drops), STORM_DROPS_PER_FRAME)
    ]
    unbinding = [
        (churn_frame(population, some, []), len(some) * MEMBERSHIPS_PER_QUEUE)
        for some in _pieces(range(drops, drops + unbinds), STORM_UNBIND_QUEUES_PER_FRAME)
    ]
    course = Course()
    async with copied(source, setting.data) as folder, NodeProcess(folder) as node:
        async with _others(node, setting, course):
            _begin(course, QUIET)
            await asyncio.sleep(setting.seconds_of("storm"))
            kept = population.memberships + 1
            await _storm(node, course, UNBINDS, unbinding)
            kept -= unbinds * MEMBERSHIPS_PER_QUEUE
            await _reclaimed(course, AFTER_UNBINDS, kept)
            await _storm(node, course, DROPS, dropping)
            kept -= drops * MEMBERSHIPS_PER_QUEUE
            await _reclaimed(course, AFTER_DROPS, kept)
            course.end_s = time.perf_counter()
            await asyncio.sleep(2 * STORM_LOOK_S)  # One more look, after the end.
        await _check_dropped(node, drops)
    if setting.plot is not None:
        _plot(course, setting.plot)
    return Result("storm", "", _figures(course, drops, unbinds), machine, _details(course, drops, unbinds))


def storm_sizes(population: Population) -> tuple[int, int]:
    """Returns how many queues are dropped, and how many others are unbound from all their keys: a small population has
    fewer."""
    return min(STORM_DROPS, population.queues // 3), min(STORM_UNBIND_QUEUES, population.queues // 3)


def _pieces(queues: range, size: int) -> list[range]:
    return [queues[first : first + size] for first in range(0, len(queues), size)]


def _begin(course: Course, phase: str) -> None:
    course.phases[phase] = time.perf_counter()


async def _storm(node: NodeProcess, course: Course, phase: str, frames: Sequence[tuple[Frame, int]]) -> None:
    """Sends all frames, each with its number of operations, over one session, and waits for all answers. Raises
    BenchFailed."""
    room = asyncio.Semaphore(STORM_FRAMES_IN_FLIGHT)
    async with LoadSession(node.address) as session:

        def answered(answer: wire.Answer, operations: int) -> None:
            checked_outcome(answer)
            course.answers.append((time.perf_counter(), operations))
            room.release()

        _begin(course, phase)
        for frame, operations in frames:
            await session.room(room)
            await session.send(frame, partial(answered, operations=operations))
        for _ in range(STORM_FRAMES_IN_FLIGHT):
            await session.room(room)


async def _reclaimed(course: Course, phase: str, bindings: int) -> None:
    """Waits until the slice has no more than so many bindings. Raises BenchFailed."""
    _begin(course, phase)
    until_s = time.perf_counter() + STORM_RECLAIM_S_MAX
    while not course.looks or course.looks[-1].bindings > bindings or course.looks[-1].at_s < course.phases[phase]:
        if time.perf_counter() > until_s:
            left = course.looks[-1].bindings if course.looks else "unknown"
            raise BenchFailed(f"{left} bindings are left after {STORM_RECLAIM_S_MAX} s; {bindings} should be")
        await asyncio.sleep(STORM_LOOK_S)
    if course.looks[-1].bindings < bindings:
        raise BenchFailed(f"{course.looks[-1].bindings} bindings are left; {bindings} should be")


@asynccontextmanager
async def _others(node: NodeProcess, setting: Setting, course: Course) -> AsyncIterator[None]:
    """Publishes to a consumed queue in an open loop, and looks at the slice, until the block ends. Each publish must be
    answered and delivered. Raises BenchFailed."""
    async with LoadSession(node.address) as session:
        declares, binds = wire.Declares(queues=[_QUEUE]), wire.Binds(queues=[_QUEUE], key_counts=[1], keys=[_KEY])
        checked_outcome(await session.ask(change_frame([wire.Step(declares=declares), wire.Step(binds=binds)])))
        publishes = wire.Publishes(keys=[_KEY], chunks=[encode_chunk([bytes(LATENCY_BODY_BYTES)])])
        frame = change_frame([wire.Step(publishes=publishes)])

        ending = False

        async def publish(due_s: float) -> None:
            if ending:  # Not by a cancel: a frame that is cut off while it is sent has no answer.
                raise asyncio.CancelledError

            def answered(answer: wire.Answer) -> None:
                course.publishes.append((due_s, time.perf_counter() - due_s))
                checked_outcome(answer)

            await session.send(frame, answered)

        async with ConsumingSession(node.address, [_QUEUE]) as consumer, _looking(node, course):
            due = random.Random(f"due {setting.seed}")
            loop = OpenLoop(STORM_PUBLISHES_PER_S, due, publish)
            publishing = asyncio.ensure_future(loop.run(2 * STORM_RECLAIM_S_MAX + 2 * ANSWER_S_MAX))
            try:
                yield
            finally:
                ending = True
                await asyncio.wait({publishing}, timeout=ANSWER_S_MAX)
            async with asyncio.timeout(ANSWER_S_MAX):
                while session.in_flight or consumer.deliveries < len(course.publishes):
                    await asyncio.sleep(STORM_LOOK_S)
                    for failure in (session.failure, consumer.failure):
                        if failure is not None:
                            raise BenchFailed(f"another session ended in the storm: {failure}")


@asynccontextmanager
async def _looking(node: NodeProcess, course: Course) -> AsyncIterator[None]:
    channel = grpc.aio.insecure_channel(node.address)
    figures: Any = channel.unary_unary(
        _FIGURES,
        FiguresRequest.SerializeToString,
        FiguresResponse.FromString,
    )

    async def look() -> None:
        while True:
            found = await figures(FiguresRequest(), timeout=ANSWER_S_MAX)
            course.looks.append(Look(time.perf_counter(), found.bindings, node.usage()["broker"].cpu_s))
            await asyncio.sleep(STORM_LOOK_S)

    looking = asyncio.ensure_future(look())
    try:
        yield
    finally:
        looking.cancel()
        await channel.close()


async def _check_dropped(node: NodeProcess, drops: int) -> None:
    """Checks a sample: what was dropped is gone, what was unbound is there without bindings. Raises BenchFailed."""
    source = random.Random("sample")
    gone = [queue_name(queue) for queue in source.sample(range(drops), STORM_CHECKED)]
    there = [queue_name(queue) for queue in source.sample(range(drops, 2 * drops), STORM_CHECKED)]
    async with LoadSession(node.address) as session:
        question = wire.SessionRequest(describe=wire.Describe(queues=[*gone, *there])).SerializeToString()
        found = (await session.ask(question)).description.queues
    for number, one in enumerate(found):
        if one.exists != (number >= len(gone)):
            raise BenchFailed(f"queue {one.queue!r} {'exists' if one.exists else 'does not exist'} after the storm")


def _plot(course: Course, path: Path) -> None:
    from shoal_loadtest.storm_plot import plot

    plot(course, path)


def _figures(course: Course, drops: int, unbinds: int) -> dict[str, float]:
    operations = unbinds * MEMBERSHIPS_PER_QUEUE
    quiet_ms = course.publish_ms(99, QUIET)
    return {
        "drops_acknowledged_s": course.seconds(DROPS),
        "drops_per_s": drops / course.seconds(DROPS),
        "drop_cpu_us": course.cpu_s(DROPS) / drops * 1e6,
        "unbinds_per_s": operations / course.seconds(UNBINDS),
        "unbind_cpu_us": course.cpu_s(UNBINDS) / operations * 1e6,
        "reclaimed_s": course.seconds(AFTER_DROPS),
        "reclaim_cpu_us": course.cpu_s(AFTER_DROPS) / (drops * MEMBERSHIPS_PER_QUEUE) * 1e6,
        "quiet_p99_ms": quiet_ms,
        "drops_p99_ms": course.publish_ms(99, DROPS),
        "after_drops_p99_ms": course.publish_ms(99, AFTER_DROPS),
        "drops_and_after_p99_ratio": course.publish_ms(99, DROPS, AFTER_DROPS) / (quiet_ms or 1.0),
        "unbinds_p99_ms": course.publish_ms(99, UNBINDS),
    }


def _details(course: Course, drops: int, unbinds: int) -> list[tuple[str, str]]:
    rows = [
        ("load", f"{drops:,} queues dropped, {unbinds:,} unbound from all of their {MEMBERSHIPS_PER_QUEUE} keys"),
        ("asked", f"{STORM_DROPS_PER_FRAME} queues a frame, {STORM_FRAMES_IN_FLIGHT} frames in flight, one session"),
        ("others", f"{STORM_PUBLISHES_PER_S}/s publishes to a consumed queue, open loop"),
    ]
    for phase in course.phases:
        latency = " / ".join(f"{course.publish_ms(at, phase):.1f}" for at in (50, 99, 100))
        seconds = course.seconds(phase)
        share = course.cpu_s(phase) / seconds if seconds else 0.0
        rows.append((phase, f"{seconds:.2f} s, broker CPU {share:.0%}, publish p50 / p99 / max {latency} ms"))
    return rows
