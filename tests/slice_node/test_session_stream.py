"""Sessions and unary calls of a real broker over real gRPC: bad frames, clients that never read, typed errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import Conflict, Malformed, NoSuchQueue, ShoalError, Unroutable, from_wire
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import FRAME_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import ANSWERS_PENDING_MAX, LARGE_ANSWER_WEIGHT
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.node.commit import NODE, Item
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.turns import Work

from .brokers import connected, running
from .bulk_client import chunk, imports
from .core_driver import bind, declare, publish
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

Call = grpc.aio.StreamStreamCall[wire.SessionRequest, wire.SessionResponse]
PRODUCER = b"one-producer-id!"
WAIT_S = 60


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as broker:
        yield broker


@pytest.fixture
async def stub(broker: Broker, tmp_path: Path) -> AsyncIterator[SliceServiceAsyncStub]:
    async with connected(broker, tmp_path) as channel:
        yield SliceServiceStub(channel)


async def opened(stub: SliceServiceAsyncStub) -> Call:
    call = stub.Session()
    await call.write(wire.SessionRequest(open=wire.Open(producer=PRODUCER)))
    return call


async def answer(call: Call) -> wire.Answer:
    async with asyncio.timeout(WAIT_S):
        while True:
            response = await call.read()
            assert isinstance(response, wire.SessionResponse)
            if response.answers:
                return response.answers[0]


async def refused(call: Call) -> ShoalError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(WAIT_S):
            await call.read()
    return from_rpc_error(caught.value)


@pytest.mark.parametrize(
    "first",
    [
        wire.SessionRequest(sequence=1, change=b""),
        wire.SessionRequest(),
        wire.SessionRequest(open=wire.Open(producer=b"short")),
        wire.SessionRequest(open=wire.Open(producer=bytes(16))),
    ],
    ids=["change", "empty", "short producer", "zero producer"],
)
async def test_a_session_that_does_not_begin_with_open_is_refused(
    stub: SliceServiceAsyncStub, first: wire.SessionRequest
) -> None:
    call = stub.Session()
    await call.write(first)
    assert isinstance(await refused(call), Malformed)


async def test_bad_frames_are_refused_one_by_one_and_the_session_goes_on(stub: SliceServiceAsyncStub) -> None:
    call = await opened(stub)
    for sequence, frame in enumerate(
        (
            wire.SessionRequest(),
            wire.SessionRequest(open=wire.Open(producer=PRODUCER)),
            wire.SessionRequest(change=b"\xff\xff"),
            wire.SessionRequest(attach=wire.Attach(queues=[b"q"], handles=[1, 2])),
        ),
        start=1,
    ):
        frame.sequence = sequence
        await call.write(frame)
        found = await answer(call)
        assert found.sequence == sequence and isinstance(from_wire(found.error), Malformed)
    await call.write(wire.SessionRequest(sequence=9, change=wire.Change(steps=[declare("q")]).SerializeToString()))
    found = await answer(call)
    assert found.sequence == 9 and not found.HasField("error")
    call.cancel()


async def test_an_oversized_frame_ends_its_session_only(stub: SliceServiceAsyncStub) -> None:
    call = await opened(stub)
    await call.write(wire.SessionRequest(sequence=1, change=bytes(FRAME_BYTES_MAX)))
    await refused(call)
    await stub.Declare(wire.DeclareRequest(queue=b"q"))


async def test_an_attach_of_a_client_that_left_at_once_harms_nobody(
    stub: SliceServiceAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: set[int] = set()
    attach = requests.attach

    def told(node: Node, session: Session, request: wire.Attach) -> Callable[[], Work[wire.Answer]]:
        begun.update(request.handles)
        return attach(node, session, request)

    monkeypatch.setattr(requests, "attach", told)
    await stub.Declare(wire.DeclareRequest(queue=b"q"))
    await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
    for number in range(1, 21):
        call = await opened(stub)
        await call.write(wire.SessionRequest(sequence=1, attach=wire.Attach(queues=[b"q"], handles=[number])))
        if number > 5:  # The others leave before the slice has read anything of them, most likely.
            async with asyncio.timeout(WAIT_S):
                while number not in begun:  # noqa: ASYNC110 - nothing else tells of it
                    await asyncio.sleep(0)
        call.cancel()
        await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x"])))
    call = await opened(stub)
    await call.write(wire.SessionRequest(sequence=1, attach=wire.Attach(queues=[b"q"], handles=[1])))
    seen: set[int] = set()
    async with asyncio.timeout(WAIT_S):
        while len(seen) < 20:
            response = await call.read()
            assert isinstance(response, wire.SessionResponse)
            seen |= {offset for delivery in response.deliveries for offset in range(delivery.low, delivery.to)}
    call.cancel()


async def test_a_client_that_never_reads_is_not_read_either(stub: SliceServiceAsyncStub, broker: Broker) -> None:
    """Large answers pile up to a bound, at the broker and in what it takes from the client."""
    await stub.Declare(wire.DeclareRequest(queue=b"q"))
    await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
    for _ in range(3):
        await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[bytes(1 << 20)])))
    pulls = 0
    call = await opened(stub)
    peek = wire.Pull(queue=b"q", messages_max=10, peek=True)
    held = ANSWERS_PENDING_MAX // LARGE_ANSWER_WEIGHT
    applied, first = broker.commit_loop.submit, list[tuple[Item, Hashable]]()

    def counted(item: Item, source: Hashable = NODE) -> None:
        """Lets none begin before as many were read as a session may be owed: two answers of this size stop it, too."""
        nonlocal pulls
        pulls += 1
        first.append((item, source))
        if pulls >= held:
            for one in first:
                applied(*one)
            first.clear()

    broker.commit_loop.submit = counted  # type: ignore[method-assign]

    async def ask() -> None:
        for sequence in range(1, 2000):
            await call.write(wire.SessionRequest(sequence=sequence, pull=peek))

    asking = asyncio.create_task(ask())
    async with asyncio.timeout(WAIT_S):
        while pulls < held:  # noqa: ASYNC110 - the broker tells nobody
            await asyncio.sleep(0.01)
        for _ in range(20):  # others are served all the while
            await stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[b"q"])))
    assert pulls - 20 < 4 * held, "what gRPC itself holds, and no more than that"
    asking.cancel()
    call.cancel()


async def test_frames_with_one_number_have_an_answer_each_and_give_back_their_room(
    stub: SliceServiceAsyncStub, broker: Broker
) -> None:
    """The second large answer took the first one's reservation: the session ended as UNKNOWN, with a traceback."""
    await stub.Declare(wire.DeclareRequest(queue=b"q"))
    submit, held = broker.commit_loop.submit, list[tuple[Item, Hashable]]()

    def all_at_once(item: Item, source: Hashable = NODE) -> None:
        held.append((item, source))
        if len(held) == 4:
            for each in held:
                submit(*each)

    broker.commit_loop.submit = all_at_once  # type: ignore[method-assign]
    call = await opened(stub)
    for _ in range(2):
        await call.write(wire.SessionRequest(sequence=1, describe=wire.Describe(queues=[b"q"])))
        await call.write(wire.SessionRequest(pull=wire.Pull(queue=b"q")))
    await call.done_writing()
    async with asyncio.timeout(WAIT_S):
        sequences = [answer.sequence async for response in call for answer in response.answers]
    assert sorted(sequences) == [0, 0, 1, 1]
    assert broker.answers.share.used_bytes == 0


async def test_a_session_goes_on_after_any_number_of_refused_pulls_and_describes(stub: SliceServiceAsyncStub) -> None:
    """Each was owed as a large answer and paid as a small one: the ninth was the last frame that was read."""
    call = await opened(stub)
    for sequence in range(1, 41, 2):
        await call.write(wire.SessionRequest(sequence=sequence, pull=wire.Pull()))
        await call.write(wire.SessionRequest(sequence=sequence + 1, describe=wire.Describe(keys=[b""])))
    await call.write(wire.SessionRequest(sequence=41, change=wire.Change(steps=[declare("q")]).SerializeToString()))
    await call.done_writing()
    async with asyncio.timeout(WAIT_S):
        answers = [answer async for response in call for answer in response.answers]
    assert sorted(answer.sequence for answer in answers) == list(range(1, 42))
    assert [answer.sequence for answer in answers if not answer.HasField("error")] == [41]


async def test_a_number_that_stands_for_another_request_is_refused(
    stub: SliceServiceAsyncStub, broker: Broker, tmp_path: Path
) -> None:
    """The first answer has other columns: the call failed inside the slice, and an import was never answered."""
    call = await opened(stub)
    for sequence, steps in enumerate(([], [declare("q")], [declare("q"), declare("r")]), 1):
        change = wire.Change(steps=steps).SerializeToString()
        await call.write(wire.SessionRequest(sequence=sequence, change=change))
        await answer(call)
    for sequence in (1, 2, 3):
        publish = wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x"]), producer=PRODUCER, sequence=sequence)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Publish(publish)
        assert isinstance(from_rpc_error(caught.value), Conflict)
    async with asyncio.timeout(WAIT_S), connected(broker, tmp_path) as channel:
        chunks = iter([chunk(1, imports({b"s": []}), run=PRODUCER)])
        (imported,) = [found async for found in BulkServiceStub(channel).Import(chunks)]
    assert isinstance(from_wire(imported.error), Conflict)
    call.cancel()


async def test_a_session_need_not_wait_for_its_attach_before_a_drop_of_what_is_unused(
    stub: SliceServiceAsyncStub,
) -> None:
    queues = [b"q%d" % number for number in range(1000)]
    session = await RawSession.open(stub)
    await session.change(wire.Step(declares=wire.Declares(queues=queues)))
    await session.write(wire.SessionRequest(attach=wire.Attach(queues=queues, handles=range(1, 1001))))
    drops = wire.Drops(queues=[queues[-1]], if_unused=True)
    with pytest.raises(Conflict, match="queue q999 is in use"):
        await session.change(wire.Step(drops=drops))
    await session.detach(1000)
    await session.change(wire.Step(drops=drops))


async def test_unary_calls_tell_what_is_wrong(stub: SliceServiceAsyncStub) -> None:
    async def error_of(call: grpc.aio.UnaryUnaryCall[object, object]) -> ShoalError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return from_rpc_error(caught.value)

    missing = await error_of(stub.Bind(wire.BindRequest(queue=b"nobody", keys=[b"k"])))  # type: ignore[arg-type]
    assert isinstance(missing, NoSuchQueue) and missing.subject == "nobody"
    publish = wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x"]), mandatory=True)
    assert isinstance(await error_of(stub.Publish(publish)), Unroutable)  # type: ignore[arg-type]
    publish.live = True
    assert isinstance(await error_of(stub.Publish(publish)), Unroutable)  # type: ignore[arg-type]
    publish.producer = PRODUCER
    numbered = await error_of(stub.Publish(publish))  # type: ignore[arg-type]
    assert isinstance(numbered, Malformed) and numbered.subject == "live"
    empty = wire.PublishRequest(key=b"k")
    assert isinstance(await error_of(stub.Publish(empty)), Malformed)  # type: ignore[arg-type]
    pull = wire.PullRequest(pull=wire.Pull(queue=b"nobody"))
    assert isinstance(await error_of(stub.Pull(pull)), NoSuchQueue)  # type: ignore[arg-type]
    ack = wire.AckRequest(acks=[wire.Ack(key=b"k", low=1, to=2, handles=[1])])
    assert isinstance(await error_of(stub.Ack(ack)), Malformed)  # type: ignore[arg-type]


async def test_live_publishes_of_sessions_and_calls_reach_a_session(stub: SliceServiceAsyncStub) -> None:
    reader, writer = await RawSession.open(stub), await RawSession.open(stub)
    await writer.change(declare("q"), bind("q", "k"))
    await reader.attach([b"q"])
    receipt = await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"a"]), live=True))
    assert (receipt.offset, receipt.queues, receipt.consumed) == (0, 1, 1)
    live = publish("k", b"b", live=True)
    change = wire.Change(steps=[live]).SerializeToString()
    found = await writer.ask(wire.SessionRequest(change=change))
    assert list(found.consumed) == [1] and not wire.Outcome.FromString(found.outcome).steps[0].refusals
    mixed = wire.Change(steps=[live, publish("k", b"c")]).SerializeToString()
    with pytest.raises(Malformed, match="live publishes"):
        await writer.ask(wire.SessionRequest(change=mixed))
    await reader.read_until(lambda: len(reader.deliveries) == 2)
    assert [(found.live, found.first, found.to) for found in reader.deliveries] == [(True, 0, 1)] * 2


async def test_unary_calls_carry_a_message_from_publish_to_ack(stub: SliceServiceAsyncStub) -> None:
    await stub.Declare(wire.DeclareRequest(queue=b"q"))
    assert list((await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))).offsets) == [1]
    receipt = await stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x"])))
    assert (receipt.offset, receipt.queues, receipt.consumed) == (1, 1, 0)
    numbered = wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"y"]), producer=PRODUCER, sequence=1)
    assert (await stub.Publish(numbered)).offset == (await stub.Publish(numbered)).offset == 2
    pulled = await stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"q", messages_max=5)))
    assert [(found.low, found.to) for found in pulled.deliveries] == [(1, 2), (2, 3)]
    for condition in (wire.DropRequest(queue=b"q", if_unused=True), wire.DropRequest(queue=b"q", if_empty=True)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Drop(condition)
        refused = from_rpc_error(caught.value)
        assert isinstance(refused, Conflict) and refused.subject == "q"
    await stub.Ack(wire.AckRequest(acks=[wire.Ack(key=b"k", low=0, to=3, queues=[b"q"])]))
    described = await stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[b"q"], keys=[b"k"])))
    assert described.description.queues[0].messages == 0
    assert list((await stub.Unbind(wire.UnbindRequest(queue=b"q", keys=[b"k"]))).offsets) == [3]
    await stub.Drop(wire.DropRequest(queue=b"q", if_unused=True, if_empty=True))


async def test_a_pull_of_many_large_chunks_fits_one_answer(stub: SliceServiceAsyncStub) -> None:
    call = await opened(stub)
    await stub.Declare(wire.DeclareRequest(queue=b"q"))
    change = wire.Change(steps=[bind("q", "k")])
    await call.write(wire.SessionRequest(sequence=1, change=change.SerializeToString()))
    await answer(call)
    for _ in range(4):
        chunk = Chunk.FromString(encode_chunk([bytes(900 << 10), bytes(900 << 10)]))
        await stub.Publish(wire.PublishRequest(key=b"k", chunk=chunk))
    seen = 0
    while seen < 8:
        pulled = await stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"q", messages_max=10)))
        assert pulled.deliveries
        seen += sum(delivery.to - delivery.low for delivery in pulled.deliveries)
    call.cancel()


async def test_an_answer_says_of_each_publish_how_many_consumed_it_also_behind_a_refused_one(
    stub: SliceServiceAsyncStub,
) -> None:
    session = await RawSession.open(stub)
    await session.change(declare("q"), bind("q", "k"))
    await session.attach([b"q"])
    publishes = wire.Publishes(keys=[b"unbound", b"k"], chunks=[encode_chunk([b"x"])] * 2, mandatory=True)
    change = wire.Change(steps=[wire.Step(publishes=publishes)]).SerializeToString()
    answer = await session.ask(wire.SessionRequest(change=change))
    (refusal,) = wire.Outcome.FromString(answer.outcome).steps[0].refusals
    assert refusal.request == 0 and list(answer.consumed) == [0, 1]
    session.call.cancel()
