"""Watches over gRPC: what is told, refusals, clients that leave or do not read, and a slice that starts anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import grpc
import pytest

from shoal_contract.errors import DeadlineExceeded, InvalidName, Malformed, ResourceExhausted, ShoalError
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import watch_stream
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import (
    BRIEF_ANSWER_BYTES,
    LARGE_ANSWER_BYTES,
    SNAPSHOTS,
    WATCH_WRITE_COSTS,
    WATCH_WRITE_S,
)
from shoal_slice_node.adapters.watch_writes import WatchWrite, WatchWrites
from shoal_slice_node.adapters.write_turns import WriteTurns
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.read.listing import list_keys
from shoal_slice_node.core.watching import watched_prefix
from shoal_slice_node.core.watching.limits import WATCHES_PER_CONNECTION_MAX
from shoal_slice_node.core.watching.watcher import Watcher
from shoal_slice_node.core.watching.watching import Watching
from tests.slice_node.brokers import WAIT_S, connected, connections, running, served
from tests.slice_node.core_driver import bind, declare, drop, publish, unbind
from tests.slice_node.raw_session import NARROW, RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

MEMBERS = wire.WatchRequest(members=b"room", presence=True)
Call = grpc.aio.UnaryStreamCall[wire.WatchRequest, wire.WatchResponse]


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


@pytest.fixture
async def stub(broker: Broker, tmp_path: Path) -> AsyncIterator[SliceServiceAsyncStub]:
    async with connected(broker, tmp_path) as channel:
        yield SliceServiceStub(channel)


async def told(call: Call) -> wire.WatchResponse:
    async with asyncio.timeout(WAIT_S):
        response = await call.read()
    assert isinstance(response, wire.WatchResponse)
    return response


async def refusal(call: Call) -> ShoalError:
    with pytest.raises(grpc.aio.AioRpcError) as found:
        async with asyncio.timeout(WAIT_S):
            while True:
                await call.read()
    return from_rpc_error(found.value)


async def until(stub: SliceServiceAsyncStub, true: Callable[[], bool]) -> None:
    """Asks the slice again and again meanwhile."""
    async with asyncio.timeout(WAIT_S):
        while not true():
            await stub.Describe(wire.DescribeRequest())


async def test_members_and_presence_are_told(stub: SliceServiceAsyncStub) -> None:
    session = await RawSession.open(stub)
    await session.change(declare("a", "b"), bind("a", "room"))
    call = stub.Watch(MEMBERS)
    first = await told(call)
    assert (first.snapshot, first.more, list(first.queues)) == (True, False, [b"a"])
    await session.change(bind("b", "room"))
    joined = await told(call)
    assert (joined.snapshot, list(joined.queues), list(joined.changes)) == (False, [b"b"], [wire.MEMBER_CHANGE_JOINED])
    await session.attach([b"b"])
    online = await told(call)
    assert (list(online.queues), list(online.changes)) == ([b"b"], [wire.MEMBER_CHANGE_ONLINE])
    session.call.cancel()
    offline = await told(call)
    assert (list(offline.queues), list(offline.changes)) == ([b"b"], [wire.MEMBER_CHANGE_OFFLINE])
    again = stub.Watch(wire.WatchRequest(members=b"room", presence=True, after=joined.position))
    rest = await told(again)
    assert list(rest.changes) == [wire.MEMBER_CHANGE_ONLINE, wire.MEMBER_CHANGE_OFFLINE]
    assert rest.position == offline.position


async def test_counts_are_told(stub: SliceServiceAsyncStub) -> None:
    session = await RawSession.open(stub)
    await session.change(declare("a", "b"), bind("a", "room/1", "room/2", "hall"))
    call = stub.Watch(wire.WatchRequest(counts=b"room/"))
    first = await told(call)
    assert first.snapshot and not first.more
    assert dict(zip(first.keys, first.bindings, strict=True)) == {b"room/1": 1, b"room/2": 1}
    await session.change(bind("b", "room/2"), unbind("a", "room/1"), bind("b", "hall"))
    found: dict[bytes, int] = {}
    while len(found) < 2:
        response = await told(call)
        assert not response.snapshot and not response.online
        found.update(zip(response.keys, response.bindings, strict=True))
    assert found == {b"room/1": 0, b"room/2": 2}


async def test_wrong_requests_are_refused(stub: SliceServiceAsyncStub, broker: Broker) -> None:
    assert isinstance(await refusal(stub.Watch(wire.WatchRequest(presence=True))), Malformed)
    assert isinstance(await refusal(stub.Watch(wire.WatchRequest(members=b""))), InvalidName)
    assert isinstance(await refusal(stub.Watch(wire.WatchRequest(counts=b"x" * 256))), InvalidName)
    assert len(broker.node.watching) == 0


async def test_a_request_that_cannot_be_read_is_refused(broker: Broker, tmp_path: Path) -> None:
    async with connected(broker, tmp_path) as channel:
        method: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream("/shoal.v1.SliceService/Watch")
        call = method(b"\x0a\xff")
        with pytest.raises(grpc.aio.AioRpcError) as found:
            await call.read()
    assert isinstance(from_rpc_error(found.value), Malformed)


async def test_a_client_that_leaves_ends_its_watch(stub: SliceServiceAsyncStub, broker: Broker) -> None:
    calls = [stub.Watch(MEMBERS) for _ in range(WATCHES_PER_CONNECTION_MAX)]
    for call in calls:
        await told(call)
    assert len(broker.node.watching) == WATCHES_PER_CONNECTION_MAX
    assert isinstance(await refusal(stub.Watch(MEMBERS)), ResourceExhausted)
    for call in calls:
        call.cancel()
    await until(stub, lambda: len(broker.node.watching) == 0)
    assert not broker.watch_wakers
    assert broker.answers.share.used_bytes == 0
    assert (await told(stub.Watch(MEMBERS))).snapshot


async def test_a_slow_client_costs_one_response_and_gets_the_state(tmp_path: Path) -> None:
    """It reads nothing while a thousand members come and go, and then all of it, in the end once more."""
    async with connections(tmp_path, 2, NARROW) as (slow, quick):
        stub: SliceServiceAsyncStub = SliceServiceStub(slow)
        session = await RawSession.open(SliceServiceStub(quick))
        names = [f"{number:03}" + "q" * 250 for number in range(900)]
        call = stub.Watch(MEMBERS)
        await told(call)
        for _ in range(3):
            for begin in range(0, 900, 300):
                await session.change(declare(*names[begin : begin + 300]))
                await session.change(*[bind(name, "room") for name in names[begin : begin + 300]])
            for begin in range(0, 900, 300):
                await session.change(drop(*names[begin : begin + 300]))
        await session.change(declare("last"), bind("last", "room"))
        members: set[bytes] = set()
        snapshots, more = 0, False
        while members != {b"last"}:
            response = await told(call)
            if response.snapshot and not more:
                snapshots += 1
                members = set()
            more = response.more
            for change, queue in zip(response.changes, response.queues, strict=True):
                (members.discard if change == wire.MEMBER_CHANGE_LEFT else members.add)(queue)
        assert snapshots


async def test_a_client_that_never_reads_is_ended(tmp_path: Path) -> None:
    async with connections(tmp_path, 2, NARROW) as (slow, quick):
        session = await RawSession.open(SliceServiceStub(quick))
        names = [f"{number:03}" + "q" * 250 for number in range(900)]
        for begin in range(0, 900, 300):
            await session.change(declare(*names[begin : begin + 300]))
            await session.change(*[bind(name, "room") for name in names[begin : begin + 300]])
        stub: SliceServiceAsyncStub = SliceServiceStub(slow)
        with patch.object(watch_stream, "WATCH_WRITE_S", 0.3):
            call = stub.Watch(MEMBERS)
            await call.initial_metadata()
            await asyncio.wait([asyncio.ensure_future(call.code())], timeout=1)
            assert isinstance(await refusal(call), DeadlineExceeded)


async def test_a_watch_that_is_not_read_ends_soon_where_others_wait_for_the_memory_of_answers(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as broker,
        served(broker, tmp_path) as address,
        grpc.aio.insecure_channel(address, (("grpc.use_local_subchannel_pool", 1), *NARROW)) as slow,
        grpc.aio.insecure_channel(address) as quick,
    ):
        stub: SliceServiceAsyncStub = SliceServiceStub(quick)
        session = await RawSession.open(stub)
        names = [f"{number:03}" + "q" * 250 for number in range(900)]
        for begin in range(0, 900, 300):
            await session.change(declare(*names[begin : begin + 300]))
            await session.change(*[bind(name, "room") for name in names[begin : begin + 300]])
        await session.change(publish("room", bytes(BRIEF_ANSWER_BYTES)))
        read = stub.Watch(MEMBERS)
        assert (await told(read)).more
        stub_of_slow: SliceServiceAsyncStub = SliceServiceStub(slow)
        unread = stub_of_slow.Watch(MEMBERS)
        await unread.initial_metadata()
        share, writes = broker.answers.share, broker.watch_writes
        while (await told(read)).more:
            pass
        # Until the last part of the one that is read has left.
        await until(stub, lambda: [share.used_bytes] == [write.held_bytes for write in writes._writing])
        (write,) = writes._writing
        assert write.held_bytes > sum(map(len, names)), "all parts that it is still told count"
        held_bytes = share.free_bytes - LARGE_ANSWER_BYTES + 1
        share.hold(held_bytes)  # Others hold so much that the watch keeps out a peek.
        peek = wire.Pull(queue=names[0].encode(), peek=True)
        await stub.Pull(wire.PullRequest(pull=peek), timeout=WATCH_WRITE_S / 2)
        error = await refusal(unread)
        assert isinstance(error, DeadlineExceeded) and "while others wait" in error.message
        await session.change(drop(names[0]))
        assert not (await told(read)).more, "a watch that is read goes on"
        await until(stub, lambda: not writes._writing)
        share.let_go(held_bytes)
        unread = stub_of_slow.Watch(MEMBERS)
        assert (await told(unread)).more
        unread.cancel()
        await until(stub, lambda: not share.used_bytes)


def test_of_watches_that_are_not_read_those_of_the_largest_connection_end_first() -> None:
    writes, share = WatchWrites(), Share("answers", 1_000)
    begun: list[WatchWrite] = []
    for connection, held_bytes in (("one", 300), ("many", 200), ("many", 250), ("small", 10)):
        begun.append(WatchWrite(connection, held_bytes, lambda: None))
        writes.began(begun[-1])
        share.hold(held_bytes)
    assert writes.end_stalled(share, 500, 1_000_000_000) == 0, "none was written for so long"
    assert writes.end_stalled(share, 200, 0) == 0, "there is room"
    assert writes.end_stalled(share, 500, 0) == 450
    assert [write.ended for write in begun] == [False, True, True, False]
    assert writes.end_stalled(share, 500, 0) == 450, "what these hold is about to be free"
    assert writes.end_stalled(share, 1_000, 0) == 760
    assert all(write.ended for write in begun)


async def test_a_slice_that_starts_anew_gives_a_snapshot(tmp_path: Path) -> None:
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub: SliceServiceAsyncStub = SliceServiceStub(channel)
        session = await RawSession.open(stub)
        await session.change(declare("a"), bind("a", "room"))
        before = await told(stub.Watch(MEMBERS))
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        after = await told(SliceServiceStub(channel).Watch(wire.WatchRequest(members=b"room", after=before.position)))
        assert (after.snapshot, list(after.queues)) == (True, [b"a"])
        assert after.position.life != before.position.life


async def test_few_pages_of_snapshots_are_gathered_at_a_time(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathering = most = 0

    def counted(*of: Any) -> Generator[None, None, Any]:
        nonlocal gathering, most
        gathering += 1
        most = max(most, gathering)
        try:
            return (yield from list_keys(*of))
        finally:
            gathering -= 1

    monkeypatch.setattr(watched_prefix, "list_keys", counted)  # The compiled core calls its own: there this is blind.
    async with connected(broker, tmp_path) as one, connected(broker, tmp_path) as other:
        session = await RawSession.open(SliceServiceStub(one))
        keys = [f"key-{number:04}" for number in range(900)]
        await session.change(declare("q"), bind("q", *keys))
        calls = [SliceServiceStub(channel).Watch(wire.WatchRequest(counts=b"")) for channel in (one, other) * 8]
        left = calls.pop()
        left.cancel()
        for call in calls:
            names: list[bytes] = []
            while True:
                response = await told(call)
                names += response.keys
                if not response.more:
                    break
            assert names == [key.encode() for key in keys]
        assert most <= SNAPSHOTS.places_max
        await until(SliceServiceStub(one), lambda: not (broker.snapshots.waiting or broker.snapshots._held))


async def test_a_watch_that_turns_out_to_need_a_page_asks_again_with_a_place(
    broker: Broker, stub: SliceServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it was asked whether it needs one, it did not; changes that came before its turn made it so."""
    session = await RawSession.open(stub)
    await session.change(declare("q"), bind("q", "rooms/1"))
    watching, held = broker.node.watching, broker.snapshots._held
    asked: list[bool] = []
    lists_keys, list_all = Watching.lists_keys, list_keys

    def too_early(self: Watching, watcher: Watcher) -> bool:
        asked.append(lists_keys(self, watcher))
        return asked[-1] and len(asked) > 1

    def with_a_place(*of: Any) -> Generator[None, None, Any]:
        assert held, "a page is listed without a place"
        return (yield from list_all(*of))

    monkeypatch.setattr(Watching, "lists_keys", too_early)
    monkeypatch.setattr(watched_prefix, "list_keys", with_a_place)
    response = await told(stub.Watch(wire.WatchRequest(counts=b"rooms/")))
    assert list(response.keys) == [b"rooms/1"] and asked[0] and len(asked) >= 3 and len(watching) == 1


async def test_watches_write_in_turns_as_sessions_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a thousand were told of large keys, in turns of the loop of 30 ms, new sessions of others waited for 30 s:
    gRPC hands over one call a turn."""
    turns: list[int] = []
    turn = WriteTurns.turn

    async def noted(self: WriteTurns, connection: Hashable, size_bytes: int) -> None:
        turns.append(size_bytes)
        await turn(self, connection, size_bytes)

    monkeypatch.setattr(WriteTurns, "turn", noted)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel, asyncio.timeout(WAIT_S):
        call = SliceServiceStub(channel).Watch(MEMBERS)
        first = await told(call)
        assert turns == [WATCH_WRITE_COSTS * first.ByteSize()]
        call.cancel()
