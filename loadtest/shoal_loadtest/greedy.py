"""Greedy clients of a slice, in a process of their own: bench `neighbours` measures honest clients beside them.

    python -m shoal_loadtest.greedy KIND ADDRESS

prepares what it needs and prints {"ready": true}. It begins when a line comes on its standard input, goes on until that
input ends, and prints how often it did each thing. A slice may refuse it, make it wait or end it: that is no failure.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import grpc
import uvloop

from shoal_contract.chunk import encode_chunk
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import CHUNK_MESSAGES_MAX, FRAME_OPERATIONS_MAX, WINDOW_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_loadtest.greedy_session import (
    GreedySession,
    bind_step,
    keys_in_turn,
    names,
    publish_step,
    unbind_step,
)
from shoal_loadtest.limits import (
    GREEDY_ACKS,
    GREEDY_BINDINGS,
    GREEDY_CHUNK_BODY_BYTES,
    GREEDY_COMPETING,
    GREEDY_EVERY_S,
    GREEDY_KEYS,
    GREEDY_PUBLISHES,
    GREEDY_QUEUES,
    GREEDY_RECONNECT_S,
    GREEDY_RECONNECTING,
    GREEDY_UNREAD,
    GREEDY_WINDOW_MESSAGES,
)
from shoal_loadtest.load_session import OPTIONS
from shoal_runtime.loops import Loop

Go = Callable[[], Awaitable[None]]
"""The work of a greedy client once the clock runs; it never ends by itself."""
WINDOWS = (GREEDY_WINDOW_MESSAGES, WINDOW_BYTES_MAX)
done: Counter[str] = Counter()


@asynccontextmanager
async def at_every_limit(address: str) -> AsyncIterator[Go]:
    """Runs one session that uses every verb at its limit, all at once, as fast as the slice answers."""
    gaps: deque[wire.Ack] = deque(maxlen=10 * GREEDY_ACKS)
    """Acks of every second message: each makes a done range."""

    def delivered(delivery: wire.Delivery) -> None:
        done["deliveries"] += (delivery.to - delivery.low) * len(delivery.handles)
        for offset in range(delivery.low + 1, delivery.to, 2):
            gaps.append(wire.Ack(key=delivery.key, low=offset, to=offset + 1, handles=delivery.handles[:6]))

    queues, large, busy = names("queue", GREEDY_QUEUES), b"large", b"busy"
    consuming = names("consuming", FRAME_OPERATIONS_MAX)
    moving = names("moving-key", FRAME_OPERATIONS_MAX)
    chunk = encode_chunk([bytes(GREEDY_CHUNK_BODY_BYTES)] * CHUNK_MESSAGES_MAX)
    async with GreedySession(address, WINDOW_BYTES_MAX, delivered) as session:
        await session.bind_each(queues, keys_in_turn("key", GREEDY_KEYS, len(queues)))
        await session.bind_each(consuming, [busy] * len(consuming))
        await session.bind_each([large, b"moving"], [busy, b"any"])
        for first in range(0, GREEDY_BINDINGS, FRAME_OPERATIONS_MAX):
            await session.change(bind_step(large, names(f"large-{first}", FRAME_OPERATIONS_MAX)))
        await session.attach(consuming, 1, WINDOWS)

        async def attach_and_leave() -> None:
            first_handle = len(consuming) + 1
            await session.attach(queues, first_handle, WINDOWS)
            handles = range(first_handle, first_handle + len(queues))
            await session.ask(wire.SessionRequest(detach=wire.Detach(handles=handles)))

        async def move() -> None:
            await session.change(bind_step(b"moving", moving))
            await session.change(unbind_step(b"moving", moving))

        async def describe() -> None:
            await session.ask(wire.SessionRequest(describe=wire.Describe(queues=[large], bindings=True)))

        async def publish() -> None:
            await session.change(publish_step(busy, chunk))
            await asyncio.sleep(GREEDY_EVERY_S)

        async def ack() -> None:
            acks = [gaps.popleft() for _ in range(min(GREEDY_ACKS, len(gaps)))]
            await session.ask(wire.SessionRequest(acks=wire.Acks(acks=acks)))
            if not acks:
                await asyncio.sleep(GREEDY_EVERY_S)

        async def pull() -> None:
            peek = wire.Pull(queue=large, messages_max=GREEDY_WINDOW_MESSAGES, peek=True)
            await session.ask(wire.SessionRequest(pull=peek))

        async def go() -> None:
            async with asyncio.TaskGroup() as group:
                for verb in (attach_and_leave, move, describe, publish, ack, pull):
                    group.create_task(again_and_again(verb))

        yield go


@asynccontextmanager
async def never_reading(address: str) -> AsyncIterator[Go]:
    """Runs sessions that attach a queue with the widest windows and read nothing, and one session that publishes to
    all."""
    queues = names("unread", GREEDY_UNREAD)
    chunk = encode_chunk([bytes(1000)] * 50)
    async with AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(GreedySession(address))
        await publisher.bind_each(queues, [b"all"] * len(queues))
        for queue in queues:
            silent = await stack.enter_async_context(GreedySession(address, WINDOW_BYTES_MAX, reads=False))
            await silent.attach([queue], 1, WINDOWS)

        async def publish() -> None:
            await publisher.change(publish_step(b"all", chunk))
            await asyncio.sleep(GREEDY_EVERY_S / 10)

        yield lambda: again_and_again(publish)


@asynccontextmanager
async def publishing_at_once(address: str) -> AsyncIterator[Go]:
    """Sends unary publishes of 1 MB, all at once, over six connections; then nothing more."""
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(address, options=OPTIONS)) for _ in "123456"
        ]

        async def go() -> None:
            chunk = Chunk(bodies=[bytes(1_000_000)])
            calls = [
                SliceServiceStub(channels[number % len(channels)]).Publish(
                    wire.PublishRequest(key=b"unary-%d" % (number % 50), chunk=chunk)
                )
                for number in range(GREEDY_PUBLISHES)
            ]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            done["publishes"] += sum(isinstance(answer, wire.PublishResponse) for answer in answers)
            await asyncio.Event().wait()

        yield go


@asynccontextmanager
async def reconnecting(address: str) -> AsyncIterator[Go]:
    """Runs sessions that consume many queues in all, are lost and open anew together, again and again."""
    queues = names("queue", GREEDY_QUEUES)
    share = len(queues) // GREEDY_RECONNECTING
    async with GreedySession(address) as session:
        await session.bind_each(queues, keys_in_turn("key", GREEDY_KEYS, len(queues)))

    async def reconnect() -> None:
        async with AsyncExitStack() as stack:

            async def connect(number: int) -> None:
                found = await stack.enter_async_context(GreedySession(address))
                await found.attach(queues[number * share : (number + 1) * share], 1, (0, 0))

            await asyncio.gather(*map(connect, range(GREEDY_RECONNECTING)))
            await asyncio.sleep(GREEDY_RECONNECT_S)

    yield lambda: again_and_again(reconnect)


@asynccontextmanager
async def storming(address: str) -> AsyncIterator[Go]:
    """Runs a few sessions at a time that attach many queues and leave in the middle of it, without a pause."""
    queues = names("queue", GREEDY_QUEUES)
    async with GreedySession(address) as session:
        await session.bind_each(queues, keys_in_turn("key", GREEDY_KEYS, len(queues)))

    async def storm() -> None:
        async with GreedySession(address, reads=False) as session:
            await session.attach(queues, 1, (0, 0))
            await asyncio.sleep(GREEDY_EVERY_S / 2)

    async def go() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(GREEDY_COMPETING):
                group.create_task(again_and_again(storm))

    yield go


KINDS: dict[str, Callable[[str], AbstractAsyncContextManager[Go]]] = {
    "limits": at_every_limit,
    "unread": never_reading,
    "unary": publishing_at_once,
    "reconnect": reconnecting,
    "storm": storming,
}


async def again_and_again(verb: Callable[[], Awaitable[None]]) -> None:
    """Repeats a verb until the slice ends the session."""
    try:
        while True:
            await verb()
            done[verb.__name__] += 1
    except (grpc.RpcError, asyncio.InvalidStateError) as error:
        done[f"end of {verb.__name__}: {from_rpc_error(error) if isinstance(error, grpc.RpcError) else error}"] += 1


async def run(kind: str, address: str) -> None:
    loop = asyncio.get_running_loop()
    async with KINDS[kind](address) as go:
        say({"ready": True})
        await loop.run_in_executor(None, sys.stdin.readline)
        ended = loop.run_in_executor(None, sys.stdin.read)
        going = asyncio.ensure_future(go())
        await asyncio.wait((ended, going), return_when=asyncio.FIRST_COMPLETED)
        if going.done():
            going.result()
            await ended
        going.cancel()
        say(dict(done))
        await asyncio.wait((going,))


def say(line: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(run(sys.argv[1], sys.argv[2]), loop_factory=Loop)
