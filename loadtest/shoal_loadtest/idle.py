"""Bench `idle`: what a population costs when nothing happens: disk by table, memory by process.

Tables that hold a name and little else count as names (key, key_name, queue_by_name). All other tables count as
memberships, among them `queue`, whose rows hold the queue's name once more.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.limits import NODE_READY_S_MAX
from shoal_loadtest.machine import measure_machine
from shoal_loadtest.membership_check import check_memberships
from shoal_loadtest.node_process import NodeProcess
from shoal_loadtest.population import Population
from shoal_loadtest.prepared import copied, populated
from shoal_loadtest.report import Result
from shoal_loadtest.setting import Setting

NAME_TABLES = frozenset({"key", "key_name", "queue_by_name"})
NAME_BYTES = 36


@dataclass(frozen=True)
class Disk:
    """Says how many bytes a store takes. `tables`: each table's pages in use; `file`: the file, with free pages."""

    tables: dict[str, int]
    file: int


async def bench_idle(setting: Setting) -> Result:
    """Runs the bench. Raises BenchFailed."""
    population = Population(setting.queues)
    source = await populated(setting.data, population)
    machine = measure_machine(setting.data)
    async with copied(source, setting.data) as folder, NodeProcess(folder) as node:
        await asyncio.sleep(setting.seconds_of("idle"))
        usage = node.usage()
        checked = await check_memberships(node.address, population, frozenset(), setting.seed)
        after = node.usage()["broker"]
        disk = await store_disk(folder)
        journal_bytes = _folder_bytes(folder / "journal")
    used = sum(disk.tables.values())
    besides_names = sum(size for name, size in disk.tables.items() if name not in NAME_TABLES)
    names = 2 * NAME_BYTES * (population.queues + population.keys)
    figures = {
        "disk_bytes_per_queue": disk.file / population.queues,
        "disk_bytes_per_membership": besides_names / population.memberships,
        "resident_mb": sum(process.resident for process in usage.values()) / 1e6,
    }
    details = [
        (
            "population",
            f"{population.queues:,} queues, {population.keys:,} keys, {population.memberships:,} memberships",
        ),
        ("store", f"{disk.file / 1e6:,.0f} MB, of it {1 - used / disk.file:.0%} free pages"),
        *((f"table {name}", f"{size / 1e6:,.1f} MB") for name, size in disk.tables.items() if size > disk.file / 100),
        ("per membership, all tables", f"{used / population.memberships:.1f} B"),
        ("the same less the names' bytes", f"{(used - names) / population.memberships:.1f} B"),
        ("journal and spare", f"{journal_bytes / 1e6:,.0f} MB, whatever the population"),
    ]
    for name, process in usage.items():
        sizes = f"{process.resident / 1e6:.0f} MB resident, {process.proportional / 1e6:.0f} MB proportional"
        details.append((name, f"{sizes}, {process.cpu_s:.1f} s CPU since its start"))
    looked = (
        f"{checked} queues have all of their memberships; the broker then has {after.resident / 1e6:.0f} MB resident"
    )
    details.append(("looked at afterwards", looked))
    return Result("idle", "", figures, machine, details)


async def store_disk(folder: Path) -> Disk:
    """Returns the size of the store in a node's folder. Raises BenchFailed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "shoal_ops", "inspect", "store", str(folder), "--json", stdout=asyncio.subprocess.PIPE
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), NODE_READY_S_MAX)
    except TimeoutError:
        process.kill()
        raise BenchFailed("the store's inspection did not end in time") from None
    if process.returncode:
        raise BenchFailed(f"the store could not be inspected: exit code {process.returncode}")
    found = json.loads(output)
    return Disk({table["name"]: table["bytes"] for table in found["tables"]}, found["file_bytes"])


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
