"""Bench `bulk`: Spark loads a population into a fresh cluster of one slice; then churn runs on what was loaded.

`shoal up` and `shoal pipeline load` run as real processes; the times of stages are those that the load prints.
Afterwards the cluster is stopped cleanly, started again and put under the load of bench `churn`, whose check follows.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from shoal_loadtest.churn import Churn, churn_details, measure_churn, prebuilt_frames
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.idle import Disk, store_disk
from shoal_loadtest.limits import BULK_READY_S_MAX, BULK_S_MAX, NODE_STOP_S_MAX
from shoal_loadtest.machine import measure_machine
from shoal_loadtest.membership_check import check_memberships
from shoal_loadtest.memory_peaks import MemoryPeaks
from shoal_loadtest.node_process import ClusterNode
from shoal_loadtest.population import Population
from shoal_loadtest.prepared import scratch
from shoal_loadtest.report import Result, say
from shoal_loadtest.setting import Setting
from shoal_runtime.tasks import Tasks

_READY = re.compile(rb"clients connect to (\S+)")
_STAGES = {
    "judged_s": re.compile(r"judged in ([\d.]+) s"),
    "sorted_s": re.compile(r"sorted in ([\d.]+) s"),
    "imported_s": re.compile(r"refused, in ([\d.]+) s"),
    "verified_s": re.compile(r"found, in ([\d.]+) s"),
    "load_s": re.compile(r"verified, ([\d.]+) s in all"),
}


@dataclass(frozen=True)
class Loaded:
    """Says what a load took. `stages`: seconds, as the load printed them. `peaks`: bytes by role."""

    stages: dict[str, float]
    peaks: dict[str, int]


async def bench_bulk(setting: Setting) -> Result:
    """Runs the bench. Raises BenchFailed."""
    try:
        from shoal_loadtest.bulk_input import made_input
    except ImportError as error:
        raise BenchFailed(f"{error.name} is missing: pip install 'shoal[spark]'") from None
    population = Population(setting.queues)
    source = await asyncio.to_thread(made_input, setting.data, population)
    machine = measure_machine(setting.data)
    with scratch(setting.data) as folder:
        async with _cluster(folder) as (redirector, pid):
            loaded = await _load(source, redirector, folder / "runs", pid)
        disk = await store_disk(folder / "cluster" / "s01")
        seconds = setting.seconds_of("churn")
        churn = Churn(population, setting.seed, prebuilt_frames(seconds))
        say("churn on what was loaded ...")
        async with _cluster(folder) as (_, pid):
            node = ClusterNode.among(pid)
            measured = await measure_churn(churn, node, seconds)
            checked = await check_memberships(node.address, population, churn.out, setting.seed)
    used = sum(disk.tables.values())
    figures = {
        **loaded.stages,
        "memberships_per_s": population.memberships / loaded.stages["load_s"],
        "imported_per_s": population.memberships / loaded.stages["imported_s"],
        "disk_bytes_per_membership": disk.file / population.memberships,
        "tables_bytes_per_membership": used / population.memberships,
        "peak_mb": sum(loaded.peaks.values()) / 1e6,
        "churn_ops_per_s": churn.operations / measured.seconds,
        "churn_p99_ms": churn.timings.percentile_ms(99),
    }
    details = [*_details(population, loaded, disk), *churn_details(churn, measured, setting, checked)[2:]]
    return Result("bulk", "", figures, machine, details)


def _details(population: Population, loaded: Loaded, disk: Disk) -> list[tuple[str, str]]:
    text = f"{population.queues:,} queues, {population.keys:,} keys, {population.memberships:,} memberships"
    rows = [("loaded", text)]
    rows += [(f"peak of {role}", f"{size / 1e6:,.0f} MB") for role, size in sorted(loaded.peaks.items())]
    used = sum(disk.tables.values())
    rows.append(("store", f"{disk.file / 1e6:,.0f} MB, of it {1 - used / disk.file:.0%} free pages"))
    tables = disk.tables.items()
    return rows + [(f"table {name}", f"{size / 1e6:,.1f} MB") for name, size in tables if size > disk.file / 100]


@asynccontextmanager
async def _cluster(folder: Path) -> AsyncIterator[tuple[str, int]]:
    """Starts a cluster of one slice on the folder's data. Yields its redirector and the pid of `shoal up`. The cluster
    is stopped cleanly at the end."""
    command = ["-m", "shoal_ops", "up", "--slices", "1", "--data", str(folder / "cluster")]
    command += ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    tasks = Tasks("bulk")
    try:
        async with asyncio.timeout(BULK_READY_S_MAX):
            while (found := _READY.search(line := await process.stdout.readline())) is None:
                if not line:
                    raise BenchFailed(f"shoal up ended with {await process.wait()}")
        reader = tasks.start("up's output", process.stdout.read(), awaited=True)
        yield found[1].decode(), process.pid
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), NODE_STOP_S_MAX)
        await reader
    finally:
        await tasks.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _load(source: Path, redirector: str, runs: Path, cluster_pid: int) -> Loaded:
    command = ["-m", "shoal_pipeline", "load", str(source), "--at", redirector, "--runs", str(runs)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    peaks = MemoryPeaks([process.pid, cluster_pid])
    tasks = Tasks("bulk load")
    tasks.start("memory", peaks.watch())
    stages: dict[str, float] = {}
    try:
        async with asyncio.timeout(BULK_S_MAX):
            async for raw in process.stderr:
                line = raw.decode("utf-8", "replace").rstrip()
                if "shoal pipeline:" in line:
                    say(line)
                for name, pattern in _STAGES.items():
                    if found := pattern.search(line):
                        stages[name] = float(found[1])
            code = await process.wait()
    finally:
        await tasks.close()
        if process.returncode is None:
            process.terminate()
            await process.wait()
    if code or stages.keys() != _STAGES.keys():
        raise BenchFailed(f"the load ended with {code}, after the stages {', '.join(stages)}")
    return Loaded(stages, peaks.bytes)
