"""Bench `fanout`: one key, its 785 queues attached over 8 sessions, with acks; deliveries are counted where they
arrive.

This process publishes; fanout_consumers.py receives. Batched: chunks of 100 messages, some of them ahead of the slowest
consumer. Single: at most two publishes without a receipt. Time counts until the last consumer has the last message.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.frames import change_frame
from shoal_loadtest.limits import (
    ANSWER_S_MAX,
    FANOUT_BODY_BYTES,
    FANOUT_CHUNKS_AHEAD,
    FANOUT_CHUNKS_IN_FLIGHT,
    FANOUT_MESSAGES_PER_CHUNK,
    FANOUT_QUEUES,
    FANOUT_SESSIONS,
    FANOUT_SINGLES_AHEAD,
    FANOUT_SINGLES_IN_FLIGHT,
)
from shoal_loadtest.load_session import LoadSession, checked_outcome
from shoal_loadtest.machine import measure_machine
from shoal_loadtest.node_process import NodeProcess
from shoal_loadtest.population import key_name, queue_name
from shoal_loadtest.prepared import scratch
from shoal_loadtest.report import Result
from shoal_loadtest.setting import Setting
from shoal_loadtest.timings import Timings
from shoal_runtime.tasks import Tasks

_KEY = key_name(0)


@dataclass(frozen=True)
class Mode:
    """Says how messages are published: messages per chunk, chunks without a receipt, chunks ahead of the last
    consumer."""

    name: str
    messages: int
    in_flight: int
    ahead: int


@dataclass(frozen=True)
class Outcome:
    """Holds the result of one mode. `cpu_share`: the broker's use of one core."""

    deliveries_per_s: float
    messages: int
    repeats: int
    cpu_share: float
    timings: Timings


_MODES = (
    Mode("batched", FANOUT_MESSAGES_PER_CHUNK, FANOUT_CHUNKS_IN_FLIGHT, FANOUT_CHUNKS_AHEAD),
    Mode("single", 1, FANOUT_SINGLES_IN_FLIGHT, FANOUT_SINGLES_AHEAD),
)


async def bench_fanout(setting: Setting) -> Result:
    """Runs the bench. Raises BenchFailed."""
    machine = measure_machine(setting.data)
    figures: dict[str, float] = {}
    details = [("load", f"one key, {FANOUT_QUEUES} queues over {FANOUT_SESSIONS} sessions, {FANOUT_BODY_BYTES} B")]
    for mode in _MODES:
        with scratch(setting.data) as folder:
            outcome = await _run(mode, folder, setting.seconds_of("fanout"))
        figures[f"{mode.name}_deliveries_per_s"] = outcome.deliveries_per_s
        latency = " / ".join(f"{outcome.timings.percentile_ms(at):.1f}" for at in (50, 99))
        details += [
            (mode.name, f"{outcome.messages:,} messages, {mode.messages} a chunk, {mode.in_flight} in flight"),
            (f"{mode.name}: receipt p50 / p99", f"{latency} ms"),
            (f"{mode.name}: broker CPU, repeats", f"{outcome.cpu_share:.0%}, {outcome.repeats}"),
        ]
    return Result("fanout", "", figures, machine, details)


async def _run(mode: Mode, folder: Path, seconds: float) -> Outcome:
    async with NodeProcess(folder / "node") as node, LoadSession(node.address) as session:
        names = [queue_name(number) for number in range(FANOUT_QUEUES)]
        declares = wire.Step(declares=wire.Declares(queues=names))
        binds = wire.Step(binds=wire.Binds(queues=names, keys=[_KEY] * len(names)))
        for step in (declares, binds):
            checked_outcome(await session.ask(change_frame([step])))
        async with _consumers(node.address, mode) as consumers:
            return await _publish(session, node, consumers, mode, seconds)


class _Consumers:
    """Follows what the consumers' process reports."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.messages = 0
        self.at_s = 0.0
        self.repeats = 0
        self._more = asyncio.Event()

    async def line(self) -> dict[str, float]:
        """Returns the next line. Raises BenchFailed if none comes in time."""
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), ANSWER_S_MAX)
        except TimeoutError:
            raise BenchFailed(f"consumers were silent for {ANSWER_S_MAX} s at message {self.messages}") from None
        if not line:
            raise BenchFailed("the consumers' process ended")
        found: dict[str, float] = json.loads(line)
        return found

    async def follow(self) -> None:
        """Takes lines until cancelled."""
        while True:
            line = await self.line()
            self.messages, self.at_s, self.repeats = int(line["messages"]), line["at_s"], int(line["repeats"])
            self._more.set()

    async def have(self, messages: int) -> None:
        """Waits until every consumer has so many messages. Raises BenchFailed."""
        while self.messages < messages:
            self._more.clear()
            try:
                await asyncio.wait_for(self._more.wait(), ANSWER_S_MAX)
            except TimeoutError:
                raise BenchFailed(f"consumers have {self.messages} of {messages} messages") from None


@asynccontextmanager
async def _consumers(address: str, mode: Mode) -> AsyncIterator[_Consumers]:
    command = [sys.executable, "-m", "shoal_loadtest.fanout_consumers", address, str(mode.messages)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    consumers = _Consumers(process)
    tasks = Tasks("fanout")
    try:
        await consumers.line()
        tasks.start("follow", consumers.follow(), awaited=True)
        yield consumers
        assert process.stdin is not None
        process.stdin.close()
        if await asyncio.wait_for(process.wait(), ANSWER_S_MAX):
            raise BenchFailed("consumers missed messages: see above")
    finally:
        await tasks.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _publish(
    session: LoadSession, node: NodeProcess, consumers: _Consumers, mode: Mode, seconds: float
) -> Outcome:
    chunk = encode_chunk([os.urandom(FANOUT_BODY_BYTES)] * mode.messages)
    frame = change_frame([wire.Step(publishes=wire.Publishes(keys=[_KEY], chunks=[chunk], mandatory=True))])
    room = asyncio.Semaphore(mode.in_flight)
    timings = Timings()
    timings.begin()
    published = 0
    before_s, started_s = node.usage()["broker"].cpu_s, time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        await consumers.have(published - (mode.ahead - 1) * mode.messages)
        await session.room(room)
        sent_s = timings.sent()

        def answered(answer: wire.Answer, sent_s: float = sent_s) -> None:
            timings.answered(sent_s)
            room.release()
            if checked_outcome(answer).steps[0].queues[0] != FANOUT_QUEUES:
                raise BenchFailed(f"a message was not routed to {FANOUT_QUEUES} queues")

        await session.send(frame, answered)
        published += mode.messages
    await consumers.have(published)
    used_s = node.usage()["broker"].cpu_s - before_s
    took_s = consumers.at_s - started_s
    return Outcome(published * FANOUT_QUEUES / took_s, published, consumers.repeats, used_s / took_s, timings)
