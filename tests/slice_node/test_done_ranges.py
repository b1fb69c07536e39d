"""Acks with gaps, thousands of them: nothing is forgotten, now or after a crash, and they cost what their number is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, declare, publish, unbind
from .machine_speed import slowness
from .node_process import NodeProcess
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

MESSAGES = 6_000
"""More than the done ranges that a binding may have."""
CHUNK_MESSAGES = 500
ACKS_PER_FRAME = 1_000
WINDOW_MESSAGES = 100_000
TIMES_AWAY = 300
WAIT_S = 60
KEYS = ("a", "b", "c")


async def publish_many(stub: SliceServiceAsyncStub) -> None:
    await stub.Declare(wire.DeclareRequest(queue=b"q"))
    await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
    for first in range(0, MESSAGES, CHUNK_MESSAGES):
        bodies = [b"%d" % number for number in range(first, first + CHUNK_MESSAGES)]
        await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=bodies)))


async def backlog(stub: SliceServiceAsyncStub, queue: bytes) -> int:
    described = await stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[queue])))
    return described.description.queues[0].messages


async def ack_every_second(session: RawSession, offsets: list[int]) -> None:
    acks = [wire.Ack(key=b"k", low=offset, to=offset + 1, handles=[1]) for offset in offsets[1::2]]
    for first in range(0, len(acks), ACKS_PER_FRAME):
        await session.ack(*acks[first : first + ACKS_PER_FRAME])


async def drained(stub: SliceServiceAsyncStub, queue: bytes, key: bytes) -> list[int]:
    """Consumes and acks all that a queue has left."""
    session = await RawSession.open(stub)
    await session.attach([queue], window_messages=WINDOW_MESSAGES)
    acked = 0
    while await backlog(stub, queue):
        while len(session.offsets(1)) == acked:
            await session.read()
        acked = len(session.offsets(1))
        await session.ack(wire.Ack(key=key, to=max(session.offsets(1)) + 1, handles=[1]))
    session.call.cancel()
    return session.offsets(1)


async def test_what_lies_between_acked_messages_is_given_after_a_reconnect_and_after_a_crash(tmp_path: Path) -> None:
    """A consumer that had acked every second message and came back was given nothing more, ever, nor were pulls; and
    acking so took time with the square of the window, and took it again in each replay, until the lease was lost."""
    node = await NodeProcess.start(tmp_path)
    async with node.stub() as stub, asyncio.timeout(WAIT_S):
        await publish_many(stub)
        session = await RawSession.open(stub)
        await session.attach([b"q"], window_messages=WINDOW_MESSAGES)
        await session.read_until(lambda: len(session.offsets(1)) >= 4_000)
        given = session.offsets(1)[:4_000]
        began_s = node.processor_s
        await ack_every_second(session, given)
        acking_s = node.processor_s - began_s
        session.call.cancel()
        left = await backlog(stub, b"q")
    await node.kill()
    node = await NodeProcess.start(tmp_path)
    starting_s = node.processor_s
    async with node.stub() as stub, asyncio.timeout(WAIT_S):
        assert await backlog(stub, b"q") == left == MESSAGES - len(given) // 2
        pulled = await stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"q", messages_max=3, lease_ms=1)))
        assert [(one.low, one.to) for one in pulled.deliveries] == [(1, 2), (3, 4), (5, 6)]
        offsets = await drained(stub, b"q", b"k")
    await node.kill()
    assert set(offsets) == set(range(1, MESSAGES + 1)) - set(given[1::2])
    assert acking_s < 0.3 * slowness(), f"{len(given) // 2} acks took {acking_s:.2f} s"
    assert starting_s < 1.4 * slowness(), f"the restart took {starting_s:.2f} s"


async def test_a_binding_that_comes_and_goes_keeps_its_oldest_message(tmp_path: Path) -> None:
    """130 times away above one unread message, as by logins and logouts, and none of its backlog came any more."""
    node = await NodeProcess.start(tmp_path)
    async with node.stub() as stub, asyncio.timeout(WAIT_S):
        session = await RawSession.open(stub)
        await session.change(declare("q", "keeper"), bind("keeper", "k"), bind("q", "k"), publish("k", b"oldest"))
        again = [unbind("q", "k"), publish("k", b"away"), bind("q", "k"), publish("k", b"news")]
        for first in range(0, TIMES_AWAY, 50):
            await session.change(*again * min(50, TIMES_AWAY - first))
        owed = await backlog(stub, b"q")
        offsets = await drained(stub, b"q", b"k")
        session.call.cancel()
    await node.kill()
    assert owed == 1 + TIMES_AWAY
    assert offsets == [1, *range(3, 3 + 2 * TIMES_AWAY, 2)]


def test_an_ack_between_looks_at_others_is_heard() -> None:
    """A feed counts its streams that wait for acks, and rests when all do. One that an ack freed after it was counted
    fell silent, until the node's own look found it a second later."""
    with patched({"DONE_RANGES_MAX": 4, "PUMP_TURN_LOOKS": 1}):
        core = CoreDriver()
        session = core.session()
        core.change(declare("q"), bind("q", *KEYS))
        core.attach(session, "q")
        core.change(*(publish(key, *[b"x"] * 6) for key in KEYS))
        core.take(session)
        core.change(*(publish(key, b"more") for key in KEYS))
        core.pump()
        (feed,) = core.dispatcher.feeds.values()
        core.ack(session, KEYS[0], 1, 2)
        for _ in range(len(KEYS) - 1):
            core.dispatcher.turn()
        counted = list(feed.lagging.values())[-1]
        assert feed.passed_over == len(KEYS) - 1
        core.ack(session, counted.key.decode(), 1, 7)
        assert [delivery.key for delivery in core.deliveries(session)] == [counted.key]


@pytest.mark.parametrize("ended", [False, True])
def test_one_ack_of_all_that_is_left_of_many_ranges(ended: bool) -> None:
    """It is few acks, which are taken into the row as it is: but no row without ranges may stay."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", *[b"x"] * 100))
    session = core.session(64 << 20)
    core.attach(session, "q")
    core.take(session)
    for low in range(2, 100, 2):
        core.ack(session, "k", low, low + 1)
    core.flush()
    if ended:
        core.change(unbind("q", "k"))
    for to in (2, 101):
        core.ack(session, "k", 1, to)
        core.flush()
        core.check()
    queue = core.state.load_queue(b"q")
    assert queue is not None and not queue.details
