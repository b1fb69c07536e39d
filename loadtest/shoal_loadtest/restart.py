"""Bench `restart`: time from the process's start to its first answer, after a clean stop and after kill -9 under churn.

It runs at a tenth of the population and at all of it: the time must not grow with it. After each start, memberships are
compared with what was acknowledged; queues in frames without an answer may be either way.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.churn import Churn
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.limits import QUEUES_MIN
from shoal_loadtest.load_session import LoadSession
from shoal_loadtest.machine import measure_machine
from shoal_loadtest.membership_check import check_memberships
from shoal_loadtest.node_process import NodeProcess
from shoal_loadtest.population import Population, queue_name
from shoal_loadtest.prepared import copied, populated
from shoal_loadtest.report import Result
from shoal_loadtest.setting import Setting
from shoal_runtime.tasks import Tasks


@dataclass(frozen=True)
class Restarts:
    """Holds the results for one population, in seconds. `checked`: queues compared after each start."""

    queues: int
    stop_s: float
    clean_ready_s: float
    killed_ready_s: float
    operations: int
    checked: int

    def __str__(self) -> str:
        return (
            f"clean {self.clean_ready_s:.2f} s (its stop {self.stop_s:.2f} s), killed {self.killed_ready_s:.2f} s "
            f"after {self.operations:,} more operations; {self.checked} queues compared"
        )


async def bench_restart(setting: Setting) -> Result:
    """Runs the bench. Raises BenchFailed."""
    machine = measure_machine(setting.data)
    seconds = setting.seconds_of("restart")
    sizes = sorted({max(QUEUES_MIN, setting.queues // 10), setting.queues})
    found = [await _restarts(Population(queues), setting, seconds) for queues in sizes]
    figures = {"clean_ready_s": found[-1].clean_ready_s, "killed_ready_s": found[-1].killed_ready_s}
    details = [(f"{restarts.queues:,} queues", str(restarts)) for restarts in found]
    return Result("restart", "", figures, machine, details)


async def _restarts(population: Population, setting: Setting, seconds: float) -> Restarts:
    source = await populated(setting.data, population)
    churn = Churn(population, setting.seed)
    async with copied(source, setting.data) as folder, NodeProcess(folder) as node:
        await _churn_for(churn, node, seconds)
        stop_s = await node.stop()
        clean_ready_s = await _answering(node)
        checked = await check_memberships(node.address, population, churn.out, setting.seed)
        churn = Churn(population, setting.seed, out=churn.out)
        await _churn_until_killed(churn, node, seconds)
        killed_ready_s = await _answering(node)
        checked += await check_memberships(node.address, population, churn.out, setting.seed, churn.unknown)
    return Restarts(population.queues, stop_s, clean_ready_s, killed_ready_s, churn.operations, checked)


async def _answering(node: NodeProcess) -> float:
    """Starts the node. Returns the seconds until a Describe is answered."""
    started_s = time.perf_counter()
    await node.start()
    async with LoadSession(node.address) as session:
        request = wire.SessionRequest(describe=wire.Describe(queues=[queue_name(0)]))
        answer = await session.ask(request.SerializeToString())
        if not answer.description.queues[0].exists:
            raise BenchFailed("the restarted node does not know its first queue")
        return time.perf_counter() - started_s


async def _churn_for(churn: Churn, node: NodeProcess, seconds: float) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(churn.run(node.address))
        await asyncio.wait({running}, timeout=seconds)
        churn.stop()


async def _churn_until_killed(churn: Churn, node: NodeProcess, seconds: float) -> None:
    churn.timings.begin()
    async with Tasks("restart") as tasks:
        running = tasks.start("churn", churn.run(node.address), awaited=True)
        await asyncio.wait({running}, timeout=seconds)
        if running.done():
            running.result()
        await node.kill()
        try:
            await running
        except* BenchFailed:
            pass  # its sessions ended with the node
    if not churn.operations:
        raise BenchFailed("nothing was acknowledged before the kill")
