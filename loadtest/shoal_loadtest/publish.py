"""Bench `publish`: messages are durable at their receipt. Many messages to one key in chunks; single messages to many
keys.

Nothing is consumed meanwhile: everything stays in the backlog, whose exact count is compared at the end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.frames import Frame, change_frame
from shoal_loadtest.limits import (
    PUBLISH_BODY_BYTES,
    PUBLISH_BYTES_IN_FLIGHT,
    PUBLISH_FRAME_BYTES,
    PUBLISH_FRAMES_IN_FLIGHT,
    PUBLISH_KEYS,
    PUBLISH_KEYS_PER_QUEUE,
    PUBLISH_MESSAGES_PER_CHUNK,
    PUBLISH_MESSAGES_PER_FRAME,
    PUBLISH_SIZES_BYTES,
)
from shoal_loadtest.load_session import LoadSession, checked_outcome
from shoal_loadtest.machine import measure_machine
from shoal_loadtest.node_process import NodeProcess
from shoal_loadtest.population import key_name, queue_name
from shoal_loadtest.prepared import scratch
from shoal_loadtest.report import Result
from shoal_loadtest.setting import Setting
from shoal_loadtest.timings import Timings

_ONE_KEY = key_name(PUBLISH_KEYS)
_ONE_QUEUE = queue_name(PUBLISH_KEYS)
Checked = Callable[[wire.StepOutcome], None]


@dataclass(frozen=True)
class Rate:
    """Says how many messages passed per second, with the latencies of their frames."""

    per_s: float
    timings: Timings

    def __str__(self) -> str:
        latency = " / ".join(f"{self.timings.percentile_ms(at):.1f}" for at in (50, 99))
        return f"{self.per_s:>9,.0f}/s, frame p50 / p99 {latency} ms"


async def bench_publish(setting: Setting) -> Result:
    """Runs the bench. Raises BenchFailed."""
    machine = measure_machine(setting.data)
    seconds = setting.seconds_of("publish")
    one: dict[int, Rate] = {}
    many: dict[int, Rate] = {}
    with scratch(setting.data) as folder:
        async with NodeProcess(folder / "node") as node, LoadSession(node.address) as session:
            await _bind(session)
            for body_bytes in PUBLISH_SIZES_BYTES:
                # The size of the published figures gets the full time; the others show the trend.
                share_s = seconds if body_bytes == PUBLISH_BODY_BYTES else seconds / 3
                one[body_bytes] = await _one_key(session, body_bytes, share_s)
                many[body_bytes] = await _many_keys(session, body_bytes, share_s)
    figures = {"one_key_per_s": one[PUBLISH_BODY_BYTES].per_s, "many_keys_per_s": many[PUBLISH_BODY_BYTES].per_s}
    details = [(f"one key, {size:,} B", str(rate)) for size, rate in one.items()]
    details += [(f"many keys, {size:,} B", str(rate)) for size, rate in many.items()]
    return Result("publish", "", figures, machine, details)


async def _bind(session: LoadSession) -> None:
    """Binds one queue to the one key, and some queues to the many keys."""
    await _bind_one(session, _ONE_QUEUE, [_ONE_KEY])
    for first in range(0, PUBLISH_KEYS, PUBLISH_KEYS_PER_QUEUE):
        keys = [key_name(number) for number in range(first, first + PUBLISH_KEYS_PER_QUEUE)]
        await _bind_one(session, queue_name(first), keys)


async def _bind_one(session: LoadSession, queue: bytes, keys: list[bytes]) -> None:
    declares = wire.Step(declares=wire.Declares(queues=[queue]))
    binds = wire.Step(binds=wire.Binds(queues=[queue], key_counts=[len(keys)], keys=keys))
    checked_outcome(await session.ask(change_frame([declares, binds])))


async def _one_key(session: LoadSession, body_bytes: int, seconds: float) -> Rate:
    count = max(1, min(PUBLISH_MESSAGES_PER_CHUNK, PUBLISH_FRAME_BYTES // body_bytes))
    chunk = encode_chunk([os.urandom(body_bytes)] * count)
    frame = change_frame([wire.Step(publishes=wire.Publishes(keys=[_ONE_KEY], chunks=[chunk], mandatory=True))])
    before = await _backlog(session, [_ONE_QUEUE])
    heads: list[int] = []

    def check(step: wire.StepOutcome) -> None:
        if heads and step.offsets[0] != heads[0]:
            raise BenchFailed(f"a chunk got offset {step.offsets[0]}; it should be {heads[0]}")
        heads[:] = [step.offsets[0] + count]

    rate, frames = await _closed_loop(session, [frame], count, seconds, check)
    await _compare(session, [_ONE_QUEUE], before + frames * count)
    return rate


async def _many_keys(session: LoadSession, body_bytes: int, seconds: float) -> Rate:
    count = max(1, min(PUBLISH_MESSAGES_PER_FRAME, PUBLISH_FRAME_BYTES // body_bytes))
    chunk = encode_chunk([os.urandom(body_bytes)])
    frames = []
    for first in range(0, PUBLISH_KEYS - count + 1, count):
        keys = [key_name(number) for number in range(first, first + count)]
        frames.append(change_frame([wire.Step(publishes=wire.Publishes(keys=keys, chunks=[chunk] * count))]))
        if len(frames) * len(frames[0]) > PUBLISH_BYTES_IN_FLIGHT * 8:
            break
    queues = [queue_name(first) for first in range(0, PUBLISH_KEYS, PUBLISH_KEYS_PER_QUEUE)]
    before = await _backlog(session, queues)

    def check(step: wire.StepOutcome) -> None:
        if len(step.offsets) != count or any(routed != 1 for routed in step.queues):
            raise BenchFailed(f"a frame of {count} messages was not routed to one queue each")

    rate, sent = await _closed_loop(session, frames, count, seconds, check)
    await _compare(session, queues, before + sent * count)
    return rate


async def _closed_loop(
    session: LoadSession, frames: list[Frame], count: int, seconds: float, check: Checked
) -> tuple[Rate, int]:
    """Returns the rate with `count` messages per frame, and how many frames were sent; all are answered."""
    loop = asyncio.get_running_loop()
    in_flight = max(2, min(PUBLISH_FRAMES_IN_FLIGHT, PUBLISH_BYTES_IN_FLIGHT // len(frames[0])))
    room = asyncio.Semaphore(in_flight)
    timings = Timings()
    timings.begin()
    sent = 0
    started_s = loop.time()
    for frame in cycle(frames):
        if loop.time() - started_s > seconds:
            break
        await session.room(room)
        sent_s = timings.sent()

        def answered(answer: wire.Answer, sent_s: float = sent_s) -> None:
            timings.answered(sent_s)
            room.release()
            check(checked_outcome(answer).steps[0])

        await session.send(frame, answered)
        sent += 1
    for _ in range(in_flight):
        await session.room(room)
    return Rate(sent * count / (loop.time() - started_s), timings), sent


async def _compare(session: LoadSession, queues: list[bytes], expected: int) -> None:
    found = await _backlog(session, queues)
    if found != expected:
        raise BenchFailed(f"the backlog is {found} messages; {expected} were acknowledged")


async def _backlog(session: LoadSession, queues: list[bytes]) -> int:
    answer = await session.ask(wire.SessionRequest(describe=wire.Describe(queues=queues)).SerializeToString())
    return sum(queue.messages for queue in answer.description.queues)
