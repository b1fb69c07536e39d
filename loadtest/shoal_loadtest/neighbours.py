"""Bench `neighbours`: how much honest clients notice of greedy ones, and whether the slice keeps to its memory budget.

A publisher and a consumer, with 100 messages a second in an open loop, beside greedy clients in another process.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.consuming import ConsumingSession
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.frames import change_frame
from shoal_loadtest.greedy import KINDS
from shoal_loadtest.latency import Latencies, OpenLoop
from shoal_loadtest.limits import (
    ANSWER_S_MAX,
    LATENCY_BODY_BYTES,
    LATENCY_PUBLISHES_PER_S,
    NEIGHBOURS_LOOK_S,
    NEIGHBOURS_MEMORY_MIB,
)
from shoal_loadtest.load_session import LoadSession, checked_outcome
from shoal_loadtest.machine import measure_machine
from shoal_loadtest.node_process import NodeProcess
from shoal_loadtest.prepared import scratch
from shoal_loadtest.report import Result
from shoal_loadtest.setting import Setting

_QUEUE, _KEY = b"honest-queue", b"honest-key"
_NOBODY = "nobody"
"""The same run without greedy clients: what the machine does by itself."""


async def bench_neighbours(setting: Setting) -> Result:
    """Runs the bench. Raises BenchFailed."""
    machine = measure_machine(setting.data)
    seconds = setting.seconds_of("neighbours")
    figures: dict[str, float] = {}
    details = [("memory budget", f"{NEIGHBOURS_MEMORY_MIB} MiB; what the process has of its own is counted")]
    for kind in (_NOBODY, *KINDS):
        with scratch(setting.data) as folder:
            async with NodeProcess(folder / "node", NEIGHBOURS_MEMORY_MIB) as node:
                latencies, peak_bytes, did = await _beside(kind, node, seconds, setting.seed)
        figures[f"{kind}_p99_ms"] = latencies.ms(99)
        figures[f"{kind}_mib"] = peak_bytes / (1 << 20)
        details += [(f"{kind}: publishes", str(latencies)), (f"{kind}: did", did)]
    return Result("neighbours", "", figures, machine, details)


async def _beside(kind: str, node: NodeProcess, seconds: float, seed: int) -> tuple[Latencies, int, str]:
    """Returns the latencies of honest publishes, the most memory, and what the greedy clients did."""
    latencies = Latencies()
    latencies.from_s = 0
    peak = Peak(node.pid)
    async with _greedy(kind, node.address) as greedy, LoadSession(node.address) as session:
        declares, binds = wire.Declares(queues=[_QUEUE]), wire.Binds(queues=[_QUEUE], key_counts=[1], keys=[_KEY])
        checked_outcome(await session.ask(change_frame([wire.Step(declares=declares), wire.Step(binds=binds)])))
        frame = change_frame(
            [wire.Step(publishes=wire.Publishes(keys=[_KEY], chunks=[encode_chunk([bytes(LATENCY_BODY_BYTES)])]))]
        )

        async def publish(due_s: float) -> None:
            def answered(answer: wire.Answer) -> None:
                latencies.note(due_s)
                checked_outcome(answer)

            await session.send(frame, answered)

        async with ConsumingSession(node.address, [_QUEUE]) as consumer:
            looking = asyncio.ensure_future(peak.watch())
            await greedy.begin()
            await OpenLoop(LATENCY_PUBLISHES_PER_S, random.Random(f"due {seed}"), publish).run(seconds)
            async with asyncio.timeout(ANSWER_S_MAX):
                while session.in_flight or consumer.deliveries < len(latencies.seconds):
                    await asyncio.sleep(NEIGHBOURS_LOOK_S)
                    for failure in (session.failure, consumer.failure):
                        if failure is not None:
                            raise BenchFailed(f"an honest session ended beside {kind}: {failure}")
            looking.cancel()
        did = await greedy.end()
    return latencies, peak.bytes, did


class Peak:
    """Watches the memory of a process. `bytes`: the most that it had of its own. Pages of a store's file belong to the
    page cache and are not counted."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._status = Path(f"/proc/{pid}/status")

    async def watch(self) -> None:
        """Watches until cancelled."""
        while True:
            own = self._status.read_text().split("RssAnon:")[1].split()[0]
            self.bytes = max(self.bytes, int(own) << 10)
            await asyncio.sleep(NEIGHBOURS_LOOK_S)


class _Greedy:
    def __init__(self, process: asyncio.subprocess.Process | None) -> None:
        self._process = process

    async def begin(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.write(b"\n")
            await self._process.stdin.drain()

    async def end(self) -> str:
        if self._process is None:
            return "nothing"
        assert self._process.stdin is not None
        self._process.stdin.close()
        line = json.loads(await self.line())
        return ", ".join(f"{count:,} {what}" for what, count in sorted(line.items())) or "nothing that was answered"

    async def line(self) -> bytes:
        """Returns the next line of the greedy clients. Raises BenchFailed."""
        assert self._process is not None and self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), ANSWER_S_MAX)
        except TimeoutError:
            line = b""
        if not line:
            raise BenchFailed(f"the greedy clients said nothing within {ANSWER_S_MAX} s, or have ended")
        return line


@asynccontextmanager
async def _greedy(kind: str, address: str) -> AsyncIterator[_Greedy]:
    """Starts greedy clients, and ends them afterwards. Raises BenchFailed."""
    if kind == _NOBODY:
        yield _Greedy(None)
        return
    command = (sys.executable, "-m", "shoal_loadtest.greedy", kind, address)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        greedy = _Greedy(process)
        await greedy.line()
        yield greedy
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
