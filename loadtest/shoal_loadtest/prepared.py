"""Makes data folders with a population: made once through the protocol, kept, and copied for each run.

    <data>/population-<queues>-<form>/node      the node's own folder, cleanly stopped
    <data>/population-<queues>-<form>/complete  written last: without it the folder is made anew

Belongs here: making and copying. Not here: which queue is a member of which key (population.py).
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import mkdtemp

from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.frames import populate_frame
from shoal_loadtest.limits import POPULATE_FRAMES_IN_FLIGHT, POPULATE_QUEUES_PER_FRAME, POPULATION_FORM
from shoal_loadtest.load_session import LoadSession, checked_outcome
from shoal_loadtest.node_process import NodeProcess
from shoal_loadtest.population import Population
from shoal_loadtest.report import say

_COMPLETE = "complete"
_COPY_BYTES = 64 << 20


async def populated(data: Path, population: Population) -> Path:
    """Returns the kept folder with this population, and makes it if there is none. Raises BenchFailed."""
    folder = data / f"population-{population.queues}-{POPULATION_FORM}"
    if not (folder / _COMPLETE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        say(f"making a population of {population.queues:,} queues in {folder} ...")
        async with NodeProcess(folder / "node") as node:
            seconds = await populate(node.address, population)
            await node.checkpointed()
            await node.stop()
        (folder / _COMPLETE).write_text(f"{population.memberships} memberships in {seconds:.1f} s\n")
    return folder / "node"


@asynccontextmanager
async def copied(node_folder: Path, data: Path) -> AsyncIterator[Path]:
    """Yields a copy to run a node in. The copy is on disk before it is used, so that writing it disturbs no figure."""
    with scratch(data) as folder:
        await asyncio.to_thread(_copy, node_folder, folder / "node")
        yield folder / "node"


class scratch:  # noqa: N801 - used as a function
    """Makes a new folder under `data` and removes it at the end; after a failure it is kept, for its log."""

    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.folder = Path(mkdtemp(prefix="run-", dir=data))

    def __enter__(self) -> Path:
        return self.folder

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is None:
            shutil.rmtree(self.folder)
        else:
            say(f"kept for inspection: {self.folder}")


def _copy(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(parents=True)
        elif path.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(path, copy)
    os.sync()


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        while os.sendfile(writer.fileno(), reader.fileno(), None, _COPY_BYTES):
            pass


async def populate(address: str, population: Population) -> float:
    """Declares and binds everything. Returns the seconds that it took. Raises BenchFailed."""
    loop = asyncio.get_running_loop()
    started_s = loop.time()
    room = asyncio.Semaphore(POPULATE_FRAMES_IN_FLIGHT)
    bound = 0

    def answered(answer: wire.Answer) -> None:
        nonlocal bound
        bound += len(checked_outcome(answer).steps[1].offsets)
        room.release()

    async with LoadSession(address) as session:
        for first in range(0, population.queues, POPULATE_QUEUES_PER_FRAME):
            await session.room(room)
            last = min(population.queues, first + POPULATE_QUEUES_PER_FRAME)
            await session.send(populate_frame(population, range(first, last)), answered)
        for _ in range(POPULATE_FRAMES_IN_FLIGHT):
            await session.room(room)
    if bound != population.memberships:
        raise BenchFailed(f"{bound} of {population.memberships} memberships were made")
    return loop.time() - started_s
