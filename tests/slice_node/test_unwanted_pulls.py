"""Pulls of unary calls whose callers have left: they take nothing, and what they took comes back at once, uncounted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.core.dispatch import pulling
from shoal_slice_node.core.dispatch.pulling import PullAnswer
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.node.reads import Read
from shoal_slice_node.core.turns import Work, finish

from .brokers import running, served
from .core_driver import bind, configure, declare, publish
from .nacks_driver import NacksDriver
from .raw_session import NARROW, RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

WAIT_S = 30
LAST_12 = KeyOptions(capacity_messages=12, policy="drop_oldest")


def jobs() -> wire.Step:
    """Declares `q`, whose messages are dead letters once one delivery of them is in vain."""
    step = declare("q")
    step.declares.options.CopyFrom(QueueOptions(max_deliveries=1, dead_letter="lost").to_wire())
    return step


def pull(core: NacksDriver, session: Session, answer: PullAnswer) -> Read:
    return requests.pull(core.node, session, wire.Pull(queue=b"q", messages_max=100), 30_000, 60_000, answer)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 100])
def test_what_a_pull_took_that_is_dropped_was_delivered_to_nobody(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "PULL_ROWS_PER_STEP", 4)
    core = NacksDriver()
    core.change(declare("dead"), bind("dead", "lost"), jobs(), configure("k", LAST_12), bind("q", "k"))
    for number in range(20):
        core.change(publish("k", b"%d" % number))
    session, answer = core.session(), PullAnswer()
    core.dispatcher.share_among_calls(session)
    work = pull(core, session, answer).whole()
    for _ in range(steps):
        next(work, None)
    answer.drop()
    finish(work)
    core.settle()
    assert not session.pullers and not session.owed
    next_one = PullAnswer()
    found = finish(pull(core, session, next_one).whole()).pulled
    assert [(one.low, one.to, one.redelivered) for one in found.deliveries] == [(n, n + 1, 0) for n in range(9, 21)]
    assert [(gap.first, gap.to) for gap in found.gaps] == [(1, 9)]
    next_one.left()
    assert core.node.state.counters.deliveries == 12
    dead = core.session()
    assert core.attach(dead, "dead") and core.take(dead) == []
    core.check()


def test_a_pull_that_was_dropped_before_it_began_does_not_load_its_queue() -> None:
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"x"))
    answer = PullAnswer()
    answer.drop()
    read = pull(core, core.session(), answer)
    assert not finish(read.whole()).pulled.deliveries
    assert finish(read.within(16)) is not None
    assert not core.dispatcher.feeds


def test_what_came_back_of_an_answer_that_is_not_read_counts_for_those_who_get_it() -> None:
    """Its lease ended. A nack of others, who were given the messages since, was taken for one of what nobody has."""
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"), *[publish("k", b"x")] * 2)
    session, unread, read = core.session(), PullAnswer(), PullAnswer()
    core.pull(session, "q", 1)
    asked = wire.Pull(queue=b"q", lease_ms=1_000)
    finish(requests.pull(core.node, session, asked, 0, 60_000, unread).whole())
    core.now_ms += 2_000
    core.end_leases()
    assert len(finish(pull(core, session, read).whole()).pulled.deliveries) == 1
    read.left()
    core.nack(session, 2, 3, queue="q")
    unread.left()
    again = finish(pull(core, session, PullAnswer()).whole()).pulled.deliveries
    assert [(one.low, one.redelivered) for one in again] == [(2, 1)]
    core.check()


class Held:
    """Pulls of unary calls that end their work, or begin it, only when they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
        self.waits = False
        self.may_go_on = False
        self._before = before
        self._real = requests.pull
        monkeypatch.setattr(requests, "pull", self._pull)

    def _pull(self, *arguments: Any) -> Read:
        read = self._real(*arguments)
        return read._replace(
            whole=partial(self._held, read.whole), within=lambda steps: self._held(partial(read.within, steps))
        )

    def _held(self, begin: Callable[[], Work[Any]]) -> Work[Any]:
        found = None if self._before else (yield from begin())
        self.waits = True
        while not self.may_go_on:
            yield
        return (yield from begin()) if self._before else found


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


@pytest.fixture
async def stub(broker: Broker, tmp_path: Path) -> AsyncIterator[SliceServiceAsyncStub]:
    async with served(broker, tmp_path) as address, grpc.aio.insecure_channel(address, NARROW) as channel:
        stub = SliceServiceStub(channel)
        session = await RawSession.open(stub)
        await session.change(declare("dead"), bind("dead", "lost"), jobs(), bind("q", "k"))
        yield stub
        session.call.cancel()


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not reached():  # noqa: ASYNC110 - each step of the slice is looked at
            await asyncio.sleep(0)


REQUEST = wire.PullRequest(pull=wire.Pull(queue=b"q", lease_ms=3_600_000))


async def pulled(stub: SliceServiceAsyncStub) -> list[tuple[int, int]]:
    """Offset and `redelivered` of what a pull brings, once it brings something."""
    async with asyncio.timeout(WAIT_S):
        while not (found := (await stub.Pull(REQUEST)).deliveries):
            pass
    return [(one.low, one.redelivered) for one in found]


async def publish_one(stub: SliceServiceAsyncStub, body: bytes) -> None:
    [chunk] = publish("k", body).publishes.chunks
    request = wire.PublishRequest(key=b"k")
    request.chunk.ParseFromString(chunk)
    await stub.Publish(request)


@pytest.mark.parametrize("before", [True, False], ids=["before it takes", "before it is answered"])
async def test_a_pull_whose_caller_left_gives_back_what_it_took(
    broker: Broker, stub: SliceServiceAsyncStub, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Nobody got the messages until the lease was over, and they counted as delivered, up to the dead-letter key."""
    await publish_one(stub, b"x")
    held = Held(monkeypatch, before)
    call = stub.Pull(REQUEST)
    asked = asyncio.ensure_future(call)
    await until(lambda: held.waits)
    call.cancel()
    await asyncio.wait([asked])
    await until(lambda: not broker.answers.share.used_bytes)
    held.may_go_on = True
    assert await pulled(stub) == [(1, 0)]


async def test_what_a_caller_did_not_read_comes_back_when_it_leaves(
    broker: Broker, stub: SliceServiceAsyncStub, tmp_path: Path
) -> None:
    await publish_one(stub, b"x" * 1_000_000)
    async with served(broker, tmp_path) as address, grpc.aio.insecure_channel(address, NARROW) as channel:
        method: Any = channel.unary_stream("/shoal.v1.SliceService/Pull")
        call = method(REQUEST.SerializeToString())  # Nothing is read.
        counts = broker.answers.share
        await until(lambda: 1_000_000 <= counts.used_bytes < 2_000_000)  # It waits to be read.
        assert not (await stub.Pull(REQUEST)).deliveries
        call.cancel()
        assert await pulled(stub) == [(1, 0)]


async def test_what_a_caller_got_is_out_until_its_lease_ends(broker: Broker, stub: SliceServiceAsyncStub) -> None:
    await publish_one(stub, b"x")
    assert await pulled(stub) == [(1, 0)]
    assert not (await stub.Pull(REQUEST)).deliveries
    assert broker.state.counters.deliveries == 1
