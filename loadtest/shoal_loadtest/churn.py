"""Bench `churn`: logins and logouts of nine keys each, durably acknowledged, on a full population.

Each session has its own share of the queues, and first logs a tenth of it out, uncounted. From then on each frame logs
random queues out, and logs those in that have been away longest. They have been away for longer than a checkpoint
takes, so nothing cancels out in memory. Closed loop: a few frames in flight per session. Afterwards the memberships of
a sample are compared.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Set
from dataclasses import dataclass

from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.frames import Frame, churn_frame
from shoal_loadtest.limits import (
    ANSWER_S_MAX,
    CHURN_AWAY_SHARE,
    CHURN_FRAMES_IN_FLIGHT,
    CHURN_PREBUILT_OPS_PER_S,
    CHURN_QUEUES_PER_FRAME,
    CHURN_SESSIONS,
    MEMBERSHIPS_PER_QUEUE,
    WARM_UP_SHARE,
)
from shoal_loadtest.load_session import LoadSession, checked_outcome
from shoal_loadtest.machine import measure_machine
from shoal_loadtest.membership_check import check_memberships
from shoal_loadtest.node_process import ClusterNode, NodeProcess, Usage
from shoal_loadtest.population import Population
from shoal_loadtest.prepared import copied, populated
from shoal_loadtest.report import Result
from shoal_loadtest.setting import Setting
from shoal_loadtest.timings import Timings

_HALF = CHURN_QUEUES_PER_FRAME // 2
_OPS_PER_FRAME = CHURN_QUEUES_PER_FRAME * MEMBERSHIPS_PER_QUEUE


@dataclass(frozen=True, slots=True)
class Planned:
    """Holds one frame, and the numbers of the queues that it logs out and in."""

    frame: Frame
    leaving: list[int]
    coming: list[int]


class ChurnPlan:
    """Makes one session's frames, without end. Frames must be sent in the order they were planned."""

    def __init__(self, population: Population, share: int, source: random.Random, out: Set[int]) -> None:
        self._population = population
        self._queues = range(share, population.queues, CHURN_SESSIONS)
        self._source = source
        self._away_queues = max(_HALF, int(len(self._queues) * CHURN_AWAY_SHARE))
        self._away = deque(queue for queue in self._queues if queue in out)
        """Queues that are logged out, those longest away first."""
        self._out = set(self._away)

    @property
    def ramp_frames(self) -> int:
        """Returns the number of first frames, which only log out."""
        return max(0, self._away_queues - len(self._away)) // CHURN_QUEUES_PER_FRAME

    def next(self) -> Planned:
        ramped = len(self._away) >= self._away_queues
        coming = [self._away.popleft() for _ in range(_HALF)] if ramped else []
        leaving = [self._choose() for _ in range(CHURN_QUEUES_PER_FRAME - len(coming))]
        self._out.difference_update(coming)
        self._away.extend(leaving)
        return Planned(churn_frame(self._population, leaving, coming), leaving, coming)

    def _choose(self) -> int:
        while (queue := self._source.choice(self._queues)) in self._out:
            pass
        self._out.add(queue)
        return queue


class Churn:
    """Puts load on one node from several sessions, until `stop`."""

    def __init__(
        self, population: Population, seed: int, prebuilt_frames: int = 0, out: Set[int] = frozenset()
    ) -> None:
        """`out`: queues that are logged out already."""
        self._plans = [
            ChurnPlan(population, share, random.Random(f"churn {seed} {share}"), out) for share in range(CHURN_SESSIONS)
        ]
        self._prebuilt = [
            deque(plan.next() for _ in range(plan.ramp_frames + prebuilt_frames // CHURN_SESSIONS))
            for plan in self._plans
        ]
        self._stop = False
        self._ramping = CHURN_SESSIONS
        self.ramped = asyncio.Event()
        """Set once a tenth is logged out and the steady load has begun."""
        self.timings = Timings()
        self.operations = 0
        """Operations acknowledged while the timings counted."""
        self.built_late = 0
        """Frames that the generator had to build while the clock ran."""
        self.out = set(out)
        """Queues that are logged out, by the answers."""
        self._unanswered: dict[int, Planned] = {}

    def stop(self) -> None:
        self._stop = True

    @property
    def unknown(self) -> set[int]:
        """Returns the queues in frames without an answer."""
        return {queue for planned in self._unanswered.values() for queue in (*planned.leaving, *planned.coming)}

    async def run(self, address: str) -> None:
        """Runs until `stop` was called and all answers are there. Raises BenchFailed."""
        async with asyncio.TaskGroup() as group:
            for plan, prebuilt in zip(self._plans, self._prebuilt, strict=True):
                group.create_task(self._drive(address, plan, prebuilt))

    async def _drive(self, address: str, plan: ChurnPlan, prebuilt: deque[Planned]) -> None:
        room = asyncio.Semaphore(CHURN_FRAMES_IN_FLIGHT)
        async with LoadSession(address) as session:
            for _ in range(plan.ramp_frames):
                await self._send(session, self._next(plan, prebuilt), room)
            self._ramping -= 1
            if not self._ramping:
                self.ramped.set()
            while not self._stop:
                await self._send(session, self._next(plan, prebuilt), room)
            for _ in range(CHURN_FRAMES_IN_FLIGHT):
                await session.room(room)

    def _next(self, plan: ChurnPlan, prebuilt: deque[Planned]) -> Planned:
        if prebuilt:
            return prebuilt.popleft()
        self.built_late += 1
        return plan.next()

    async def _send(self, session: LoadSession, planned: Planned, room: asyncio.Semaphore) -> None:
        await session.room(room)
        self._unanswered[id(planned)] = planned
        sent_s = self.timings.sent()

        def answered(answer: wire.Answer) -> None:
            counted = self.timings.answered(sent_s)
            room.release()
            del self._unanswered[id(planned)]
            self.out.difference_update(planned.coming)
            self.out.update(planned.leaving)
            done = sum(len(step.offsets) for step in checked_outcome(answer).steps)
            if counted:
                self.operations += done

        await session.send(planned.frame, answered)


@dataclass(frozen=True)
class Measured:
    """Holds the result of one steady stretch of churn: its `seconds`, and the usage before and after, by process."""

    seconds: float
    before: dict[str, Usage]
    after: dict[str, Usage]


def prebuilt_frames(seconds: float) -> int:
    """Returns how many frames to build before a run of so many seconds."""
    return int(seconds * (1 + WARM_UP_SHARE) * CHURN_PREBUILT_OPS_PER_S / _OPS_PER_FRAME)


async def bench_churn(setting: Setting) -> Result:
    """Runs the bench. Raises BenchFailed."""
    population = Population(setting.queues)
    seconds = setting.seconds_of("churn")
    source = await populated(setting.data, population)
    machine = measure_machine(setting.data)
    churn = Churn(population, setting.seed, prebuilt_frames(seconds))
    async with copied(source, setting.data) as folder, NodeProcess(folder) as node:
        measured = await measure_churn(churn, node, seconds)
        checked = await check_memberships(node.address, population, churn.out, setting.seed)
    timings = churn.timings
    if not churn.operations:
        raise BenchFailed("nothing was acknowledged")
    figures = {
        "ops_per_s": churn.operations / measured.seconds,
        "p99_ms": timings.percentile_ms(99),
        "stall_ms_max": timings.stall_s * 1000,
    }
    return Result("churn", "", figures, machine, churn_details(churn, measured, setting, checked))


async def measure_churn(churn: Churn, node: NodeProcess | ClusterNode, seconds: float) -> Measured:
    """Ramps up, then measures for `seconds`, then stops. Raises BenchFailed."""
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(churn.run(node.address))
        ramped = group.create_task(churn.ramped.wait())
        await asyncio.wait({running, ramped}, timeout=ANSWER_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({running}, timeout=seconds * WARM_UP_SHARE)
        before, started_s = node.usage(), loop.time()
        churn.timings.begin()
        await asyncio.wait({running}, timeout=seconds)
        churn.timings.end()
        measured = Measured(loop.time() - started_s, before, node.usage())
        churn.stop()
    return measured


def churn_details(churn: Churn, measured: Measured, setting: Setting, checked: int) -> list[tuple[str, str]]:
    timings = churn.timings
    rows = [
        ("population", f"{setting.queues:,} queues with {MEMBERSHIPS_PER_QUEUE} memberships each"),
        ("load", f"{CHURN_SESSIONS} sessions x {CHURN_FRAMES_IN_FLIGHT} frames of {_OPS_PER_FRAME} in flight"),
        ("frames", f"{len(timings):,} in {measured.seconds:.1f} s, {churn.built_late} built late"),
        ("frame p50 / p99 / max ms", " / ".join(f"{timings.percentile_ms(at):.1f}" for at in (50, 99, 100))),
    ]
    for name, after in measured.after.items():
        used_s = after.cpu_s - measured.before[name].cpu_s if name in measured.before else after.cpu_s
        rows.append((f"{name} CPU", f"{used_s / measured.seconds:.0%}, {used_s / churn.operations * 1e6:.1f} us/op"))
        rows.append((f"{name} resident", f"{after.resident / 1e6:.0f} MB"))
    rows.append(("checked afterwards", f"{checked} queues have exactly the memberships they should"))
    return rows
