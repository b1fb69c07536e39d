"""Describes and peeks end once their caller has hung up, and hold up nothing else of their connection or session. Pulls
of a session wait for each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.node.reads import Length, Read
from shoal_slice_node.core.turns import Work

from .brokers import connected, running
from .core_driver import bind, declare, publish
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub


def describe(stub: SliceServiceAsyncStub, queue: bytes) -> Awaitable[Any]:
    return stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[queue])))


def peek(stub: SliceServiceAsyncStub, queue: bytes) -> Awaitable[Any]:
    return stub.Pull(wire.PullRequest(pull=wire.Pull(queue=queue, messages_max=1, peek=True)))


WAIT_S = 30
LOOKS = pytest.mark.parametrize("look", [describe, peek])


class Endless:
    """Looks at the queue `endless` never end by themselves. `under_way`: how many have begun and not ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.under_way = 0
        real_describe, real_pull = requests.describe, requests.pull

        def describe(node: Any, request: wire.Describe) -> Read:
            return self._read if request.queues[0] == b"endless" else real_describe(node, request)

        def pull(node: Any, session: Any, request: wire.Pull, *others: Any) -> Read:
            return self._read if request.queue == b"endless" else real_pull(node, session, request, *others)

        monkeypatch.setattr(requests, "describe", describe)
        monkeypatch.setattr(requests, "pull", pull)

    @property
    def _read(self) -> Read:
        return Read(self._look, lambda _: self._look(), lambda _: self._look(), lambda: Length.QUICK, may_be_tried=True)

    def _look(self) -> Work[Any]:
        self.under_way += 1
        try:
            while True:
                yield
        finally:
            self.under_way -= 1

    async def until_under_way(self, count: int) -> None:
        await until(lambda: self.under_way == count)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not reached():  # noqa: ASYNC110 - each step of the slice is looked at
            await asyncio.sleep(0)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


@pytest.fixture
async def stub(broker: Broker, tmp_path: Path) -> AsyncIterator[SliceServiceAsyncStub]:
    async with connected(broker, tmp_path) as channel:
        yield SliceServiceStub(channel)


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> Endless:
    return Endless(monkeypatch)


@LOOKS
async def test_a_look_ends_when_its_caller_hangs_up(
    broker: Broker, stub: SliceServiceAsyncStub, endless: Endless, look: Any
) -> None:
    """3,000 describes that were hung up on held up all others for 20 minutes."""
    calls = [asyncio.ensure_future(look(stub, b"endless")) for _ in range(3)]
    await endless.until_under_way(len(calls))
    for call in calls:
        call.cancel()
    await endless.until_under_way(0)
    await until(lambda: not broker.node.turns)


@LOOKS
@pytest.mark.parametrize("other", [describe, peek])
async def test_looks_of_a_connection_do_not_wait_for_each_other(
    stub: SliceServiceAsyncStub, endless: Endless, look: Any, other: Any
) -> None:
    session = await RawSession.open(stub)
    await session.change(declare("small"), bind("small", "k"), publish("k", b"x"))
    call = asyncio.ensure_future(look(stub, b"endless"))
    await endless.until_under_way(1)
    async with asyncio.timeout(WAIT_S):
        answer = await other(stub, b"small")
    assert (answer.description.queues[0].messages if other is describe else len(answer.deliveries)) == 1
    call.cancel()
    await endless.until_under_way(0)


@pytest.mark.parametrize(
    "look",
    [
        wire.SessionRequest(describe=wire.Describe(queues=[b"endless"])),
        wire.SessionRequest(pull=wire.Pull(queue=b"endless", messages_max=1, peek=True)),
    ],
    ids=["describe", "peek"],
)
async def test_a_pull_of_a_session_waits_for_no_look_of_it(
    stub: SliceServiceAsyncStub, endless: Endless, look: wire.SessionRequest
) -> None:
    session = await RawSession.open(stub)
    await session.change(declare("small"), bind("small", "k"), publish("k", b"x"))
    await session.write(look)
    await endless.until_under_way(1)
    async with asyncio.timeout(WAIT_S):
        answer = await session.ask(wire.SessionRequest(pull=wire.Pull(queue=b"small", messages_max=1)))
    assert len(answer.pulled.deliveries) == 1
    session.call.cancel()
    await endless.until_under_way(0)


async def test_pulls_of_a_session_come_in_their_order(
    stub: SliceServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later ones overtook one that took many steps, and took the messages before its own."""
    real, begun, may_end = requests.pull, list[int](), list[bool]()

    def pull(*arguments: Any) -> Read:
        read, count = real(*arguments), arguments[2].messages_max

        def held(begin: Callable[[], Work[Any]]) -> Work[Any]:
            begun.append(count)
            while count == 60 and not may_end:
                yield
            return (yield from begin())

        return read._replace(
            whole=partial(held, read.whole), within=lambda steps_max: held(partial(read.within, steps_max))
        )

    monkeypatch.setattr(requests, "pull", pull)
    session = await RawSession.open(stub)
    await session.change(declare("q"), bind("q", "k"), publish("k", *([b"x"] * 70)))

    async def ask(count: int) -> int:
        return await session.write(wire.SessionRequest(pull=wire.Pull(queue=b"q", messages_max=count)))

    asked = [await ask(60)]
    await until(lambda: begun == [60])
    asked += [await ask(4), await ask(5)]
    await session.change(declare("later"))  # The slice has the pulls before it.
    may_end.append(True)
    await session.read_until(lambda: all(number in session.answers for number in asked), WAIT_S)
    pulled = [session.answers[number].pulled.deliveries for number in asked]
    assert [(taken[0].low, taken[-1].to) for taken in pulled] == [(1, 61), (61, 65), (65, 70)]
