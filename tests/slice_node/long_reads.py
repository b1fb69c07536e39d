"""Reads of large queues, and nodes with room for few answers, for tests of what waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.answer_room import AnswerRoom
from shoal_slice_node.adapters.broker import Broker, BrokerOptions
from shoal_slice_node.adapters.limits import (
    BRIEF_ANSWERS_BYTES,
    LARGE_ANSWER_BYTES,
    SMALL_ANSWERS_BYTES,
)

from .brokers import OPTIONS
from .core_driver import bind, declare, publish
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

BINDINGS = 8_000
LOOKERS = 12
READS = {
    "peek": wire.SessionRequest(pull=wire.Pull(queue=b"large", messages_max=1, peek=True)),
    "pull": wire.SessionRequest(pull=wire.Pull(queue=b"large", messages_max=1)),
    "describe": wire.SessionRequest(describe=wire.Describe(queues=[b"large"], bindings=True)),
}
"""Reads of a queue with many bindings."""
LONG = [f"long {number}" for number in range(30)]


def room_for(answers: int) -> AnswerRoom:
    return AnswerRoom(answers * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)


async def filled(stub: SliceServiceAsyncStub) -> None:
    """Binds queue `large` to many keys, and puts a message into queue `small`."""
    session = await RawSession.open(stub)
    await session.change(declare("large"), declare("small"), bind("small", "key"), publish("key", b"here"))
    for start in range(0, BINDINGS, 1_000):
        await session.change(*(bind("large", f"key {number}") for number in range(start, min(BINDINGS, start + 1_000))))


def few_answers(count: int = 5) -> BrokerOptions:
    """Returns options of a node with room for so many large answers."""
    answers_bytes = count * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES + BRIEF_ANSWERS_BYTES
    memory = replace(OPTIONS.memory, answers_bytes=answers_bytes)
    return replace(OPTIONS, memory=memory)


async def read(stub: SliceServiceAsyncStub, door: str, asked: wire.SessionRequest) -> None:
    if door == "session":
        await (await RawSession.open(stub)).ask(asked)
    elif asked.HasField("pull"):
        await stub.Pull(wire.PullRequest(pull=asked.pull))
    else:
        await stub.Describe(wire.DescribeRequest(describe=asked.describe))


async def until(reached: Callable[[], object]) -> None:
    while True:
        if reached():
            return
        await asyncio.sleep(0)


async def settled(broker: Broker) -> None:
    """Waits until the room for answers is empty."""
    room = broker.answers
    await until(lambda: not (room.share.used_bytes or room._waiting or room._held or any(room._works.values())))
