"""Every verb at its limit against a real broker over gRPC: how long one step of its event loop takes the processor.

The bound is twelve times the 5 ms that a step may take: a quiet machine shows 12 ms at most, but where neighbours take
the processor away for a moment, that counts too (31 ms once, where a quiet machine shows 10). What was measured is
printed (`pytest -s`) and kept as a property of each test.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import ShoalError
from shoal_contract.limits import CHUNK_HEADERS_MAX, CHUNK_MESSAGES_MAX, FRAME_OPERATIONS_MAX, REQUEST_BYTES_MAX
from shoal_contract.wire import admin_pb2, bulk_pb2
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.admin_pb2_grpc import AdminServiceStub
from shoal_contract.wire.bulk_pb2_grpc import BulkServiceStub
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.core.limits import (
    ACKED_CONSUMERS_PER_FRAME_MAX,
    ACKS_PER_FRAME_MAX,
    BINDINGS_PER_QUEUE_MAX,
    DESCRIBE_NAMES_MAX,
    DETACH_HANDLES_MAX,
    PULL_MESSAGES_MAX,
    QUEUES_PER_ATTACH_MAX,
)
from tests.folders import NewFolder

from .bulk_client import RUN, chunk, imports
from .core_driver import bind, declare, drop, publish, purge, unbind
from .loop_watch import WatchedBroker
from .machine_speed import slowness
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STEP_S = 0.005
SLACK = 12
WAIT_S = 120
CROWD = 10_000
"""Queues that one session consumes, all bound to the key `busy`."""
OWN_KEYS = FRAME_OPERATIONS_MAX - 1
BIG_KEYS = [f"big-{number:06}" for number in range(BINDINGS_PER_QUEUE_MAX - OWN_KEYS)]
MORE_KEYS = [f"more-{number:04}" for number in range(OWN_KEYS)]
QUIET_LOOKS = 2

Record = Callable[[str, object], None]


def crowd(first: int = 0, count: int = CROWD) -> list[str]:
    return [f"crowd-{number:05}" for number in range(first, first + count)]


def parts(items: list[str], size: int) -> Iterator[list[str]]:
    return (items[position : position + size] for position in range(0, len(items), size))


class Slice:
    """A broker with a queue of nearly as many bindings as there may be, and a crowd of queues at one key."""

    def __init__(self, watched: WatchedBroker, record: Record) -> None:
        self.watched = watched
        self._record = record
        self.channel: grpc.aio.Channel
        self.stub: SliceServiceAsyncStub

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Slice]:
        async with grpc.aio.insecure_channel(self.watched.address) as self.channel:
            self.stub = SliceServiceStub(self.channel)
            yield self

    async def session(self, window_bytes: int = 1 << 20) -> RawSession:
        return await RawSession.open(self.stub, window_bytes)

    async def quiet(self) -> None:
        """Returns once the broker has nothing left to do in turns."""
        broker, looks = self.watched.broker, 0
        async with asyncio.timeout(WAIT_S):
            while looks < QUIET_LOOKS:
                busy = broker.dispatcher.has_work or broker.node.turns or broker.node.commit.pending_bytes
                looks = 0 if busy else looks + 1
                await asyncio.sleep(0.02)

    async def measure(self, what: str, asked: Awaitable[object]) -> None:
        """Its longest step, until nothing is left to do, is within the bound."""
        await self.quiet()
        with self.watched.measured() as longest:
            await asked
            await self.quiet()
        bound_s = STEP_S * SLACK * slowness()
        figure = f"{longest.seconds * 1000:.1f} ms"
        sys.stdout.write(f"{what}: {figure}\n")
        self._record(what, figure)
        assert longest.seconds < bound_s, f"{what}: {figure} of at most {bound_s * 1000:.0f}: {longest.what}"


@pytest.fixture(scope="module")
def watched(module_folder: NewFolder) -> Iterator[WatchedBroker]:
    watched = WatchedBroker(module_folder("slice"))
    watched.start()
    try:
        asyncio.run(populate(watched))
        yield watched
    finally:
        watched.stop()


async def populate(watched: WatchedBroker) -> None:
    async with Slice(watched, lambda _, __: None).connected() as one:
        session = await one.session()
        await session.change(declare("big"))
        for keys in parts(BIG_KEYS, OWN_KEYS):
            await session.change(bind("big", *keys))
        for queues in parts(crowd(), FRAME_OPERATIONS_MAX // 2):
            await session.change(declare(*queues), together(queues))
        session.call.cancel()


@pytest.fixture
async def one(watched: WatchedBroker, record_property: Record) -> AsyncIterator[Slice]:
    async with Slice(watched, record_property).connected() as one:
        yield one


def together(queues: Iterable[str], key: str = "busy") -> wire.Step:
    """Each of these queues is bound to one key."""
    names = [queue.encode() for queue in queues]
    return wire.Step(binds=wire.Binds(queues=names, keys=[key.encode()] * len(names)))


def apart(queues: Iterable[str], key: str = "busy") -> wire.Step:
    names = [queue.encode() for queue in queues]
    return wire.Step(unbinds=wire.Unbinds(queues=names, keys=[key.encode()] * len(names)))


async def attach_crowd(session: RawSession, window_messages: int = 0) -> None:
    for first, queues in enumerate(parts(crowd(), QUEUES_PER_ATTACH_MAX)):
        names = [queue.encode() for queue in queues]
        await session.attach(names, 1 + first * QUEUES_PER_ATTACH_MAX, window_messages)


async def purge_crowd(session: RawSession) -> None:
    for queues in parts(crowd(), FRAME_OPERATIONS_MAX // 4):
        outcome = await session.change(purge(*queues))
        assert not any(outcome.steps[0].positions)


async def refused(session: RawSession, request: wire.SessionRequest) -> None:
    """A frame that its session outlives, or not."""
    with pytest.raises((ShoalError, grpc.aio.AioRpcError)):
        await session.ask(request)


async def test_declares_binds_unbinds_and_drops_of_many_queues(one: Slice) -> None:
    session = await one.session()
    queues = [f"many-{number:04}" for number in range(FRAME_OPERATIONS_MAX)]
    await one.measure("declare 1,000 queues", session.change(declare(*queues)))
    await one.measure("declare them again", session.change(declare(*queues)))
    half = queues[: FRAME_OPERATIONS_MAX // 2]
    await one.measure("bind 500 queues to a key each", session.change(*(bind(queue, f"k-{queue}") for queue in half)))
    await one.measure("bind 1,000 queues to one busy key", session.change(together(queues)))
    await one.measure("unbind them", session.change(apart(queues)))
    await one.measure("purge 1,000 queues", session.change(purge(*queues)))
    await one.measure("drop 1,000 queues", session.change(drop(*queues)))


async def test_binds_and_unbinds_of_a_queue_with_100_000_bindings(one: Slice) -> None:
    session = await one.session()
    await one.measure("bind up to 100,000 keys", session.change(bind("big", *MORE_KEYS)))
    await one.measure("bind them again", session.change(bind("big", *MORE_KEYS)))
    await one.measure("unbind 999 of 100,000 keys", session.change(unbind("big", *MORE_KEYS)))
    await one.measure("bind 999 keys again", session.change(bind("big", *MORE_KEYS)))
    await one.measure("unbind with discard", session.change(unbind("big", *MORE_KEYS, discard=True)))


async def test_publishes_of_many_and_large_chunks(one: Slice) -> None:
    session = await one.session()
    keys = BIG_KEYS[:FRAME_OPERATIONS_MAX]
    await one.measure("publish to 1,000 keys", session.change(*(publish(key, b"body") for key in keys)))
    chunks = [encode_chunk([b"body"])] * len(keys)
    step = wire.Step(publishes=wire.Publishes(keys=[key.encode() for key in keys], chunks=chunks))
    await one.measure("publish to 1,000 keys in one step", session.change(step))
    full = encode_chunk([b"x"] * CHUNK_MESSAGES_MAX, [{"a": b"b"}] * CHUNK_HEADERS_MAX)
    step = wire.Step(publishes=wire.Publishes(keys=[b"busy"] * 4, chunks=[full] * 4))
    await one.measure("publish 4 chunks of 4,096 messages with headers", session.change(step))
    largest = encode_chunk([bytes(1 << 20), bytes(1000 << 10)])
    step = wire.Step(publishes=wire.Publishes(keys=[b"busy"], chunks=[largest]))
    await one.measure("publish 2 MB", session.change(step))
    request = wire.PublishRequest(key=b"busy", chunk=Chunk(bodies=[b"x"] * CHUNK_MESSAGES_MAX))
    await one.measure("unary publish of 4,096 messages", one.stub.Publish(request))


async def test_attach_publish_acks_and_detach_of_10_000_queues(one: Slice) -> None:
    session = await one.session()
    await purge_crowd(session)
    await one.measure("attach 10,000 queues in ten frames", attach_crowd(session))
    other = await one.session()
    many = [publish("busy", b"body") for _ in range(20)]
    await one.measure("publish 20 chunks to 10,000 attached queues", other.change(*many))
    await session.read_until(lambda: sum(len(delivery.handles) for delivery in session.deliveries) >= 20 * CROWD)
    low = min(delivery.low for delivery in session.deliveries)
    handles = range(1, CROWD + 1)
    assert CROWD <= ACKED_CONSUMERS_PER_FRAME_MAX
    for offset in range(low, low + 20, 3):
        ack = wire.Ack(key=b"busy", low=offset, to=offset + 1, handles=handles)
        await one.measure("ack one of 20 messages for 10,000 queues", session.ack(ack))
    rest = wire.Ack(key=b"busy", low=0, to=low + 20, handles=handles)
    await one.measure("ack all for 10,000 queues", session.ack(rest))
    assert CROWD <= DETACH_HANDLES_MAX
    await other.change(*many)
    await one.measure("detach 10,000 handles with 20 messages out", session.detach(*handles))


async def test_a_session_with_full_windows_ends(one: Slice) -> None:
    session = await one.session()
    await purge_crowd(session)
    consumer = await one.session()
    await attach_crowd(consumer)
    for _ in range(20):
        await session.change(publish("busy", *([b"x"] * 100)))
    await one.quiet()

    async def leave() -> None:
        consumer.call.cancel()

    await one.measure("end of a session of 10,000 queues with messages out", leave())
    again = await one.session()
    await one.measure("attach 10,000 queues with backlog", attach_crowd(again))
    await one.measure("purge 1,000 attached queues", session.change(purge(*crowd(0, FRAME_OPERATIONS_MAX))))
    await one.measure("unbind 1,000 attached queues", session.change(apart(crowd(0, FRAME_OPERATIONS_MAX))))
    await one.measure("bind 1,000 attached queues", session.change(together(crowd(0, FRAME_OPERATIONS_MAX))))
    await one.measure("drop 1,000 attached queues", session.change(drop(*crowd(0, FRAME_OPERATIONS_MAX))))


async def test_acks_with_gaps_hold_the_loop_for_short_steps(one: Slice) -> None:
    session = await one.session()
    await session.change(declare("gaps"), bind("gaps", "gap"))
    await session.attach([b"gaps"], 1, 100_000)
    messages = 5 * CHUNK_MESSAGES_MAX
    for _ in range(5):
        await session.change(publish("gap", *([b"x"] * CHUNK_MESSAGES_MAX)))
    assert ACKS_PER_FRAME_MAX == 2_000
    for first in range(1, messages - 4000, 4000):
        acks = [wire.Ack(key=b"gap", low=low, to=low + 1, handles=[1]) for low in range(first, first + 4000, 2)]
        await one.measure("ack every second message, 2,000 acks", session.ack(*acks))
    await one.measure("ack the rest", session.ack(wire.Ack(key=b"gap", low=0, to=messages + 1, handles=[1])))


async def test_reads_of_a_queue_with_100_000_bindings(one: Slice) -> None:
    session = await one.session()
    first = await one.session()
    publishes = [publish(key, b"body") for key in BIG_KEYS[:FRAME_OPERATIONS_MAX]]
    await session.change(*publishes)
    await one.measure("attach", first.attach([b"big"]))
    await one.measure("publish to 1,000 of its keys", session.change(*publishes))
    await one.measure("detach", first.detach(1))
    await first.attach([b"big"])

    async def leave() -> None:
        first.call.cancel()

    await one.measure("end of its session", leave())
    pull = wire.Pull(queue=b"big", messages_max=PULL_MESSAGES_MAX, peek=True)
    await one.measure("peek", session.ask(wire.SessionRequest(pull=pull)))
    await one.measure("pull", session.ask(wire.SessionRequest(pull=wire.Pull(queue=b"big", lease_ms=1))))
    await one.measure("unary pull", one.stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"big", lease_ms=1))))
    whole = wire.Describe(queues=[b"big"])
    await one.measure("describe", session.ask(wire.SessionRequest(describe=whole)))
    names = [b"crowd-%05d" % number for number in range(DESCRIBE_NAMES_MAX)]
    many = wire.Describe(queues=names, bindings=True)
    await one.measure("describe 1,000 queues", session.ask(wire.SessionRequest(describe=many)))
    await one.measure("purge a part", session.change(purge("big")))


async def test_lists_hold_the_loop_for_short_steps(one: Slice) -> None:
    admin = AdminServiceStub(one.channel)
    limit = 1000
    await one.measure("list queues", admin.ListQueues(admin_pb2.ListQueuesRequest(limit=limit)))
    await one.measure("list keys", admin.ListKeys(admin_pb2.ListKeysRequest(limit=limit)))
    await one.measure("list members", admin.ListMembers(admin_pb2.ListMembersRequest(key=b"busy", limit=limit)))
    await one.measure("list bindings", admin.ListBindings(admin_pb2.ListBindingsRequest(queue=b"big", limit=limit)))
    await one.measure("figures", admin.Figures(admin_pb2.FiguresRequest()))


async def test_imports_export_and_checkpoint_hold_the_loop_for_short_steps(one: Slice) -> None:
    bulk = BulkServiceStub(one.channel)
    memberships = {b"import-%04d" % number: [b"i%d" % (number % 9), b"busy", b"j%d" % number] for number in range(2500)}
    rows = list(memberships.items())
    chunks = [chunk(1 + first // 250, imports(dict(rows[first : first + 250]))) for first in range(0, 2500, 250)]

    async def import_all() -> None:
        async for answer in bulk.Import(iter(chunks)):
            assert not answer.HasField("error"), answer

    async def export() -> None:
        async for _ in bulk.Export(bulk_pb2.ExportRequest()):
            pass

    await one.measure("import 10 chunks", import_all())
    await one.measure("import status", bulk.ImportStatus(bulk_pb2.ImportStatusRequest(run=RUN)))
    await one.measure("export, with a checkpoint", export())


HUGE = REQUEST_BYTES_MAX - 1000
REFUSED = {
    "1,001 declares": wire.Change(steps=[declare(*(f"q{number}" for number in range(1001)))]).SerializeToString(),
    "half a million empty binds": b"\x0a\x02\x12\x00" * (HUGE // 4),
    "half a million empty drops": b"\x0a\x02\x2a\x00" * (HUGE // 4),
    "700,000 names": wire.Change(steps=[wire.Step(drops=wire.Drops(queues=[b"q"] * (HUGE // 3)))]).SerializeToString(),
    "names of megabytes": wire.Change(steps=[drop("q" * HUGE)]).SerializeToString(),
    "bytes that are no change": b"\xff" * HUGE,
    "a chunk of a million messages": wire.Change(
        steps=[wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[b"\x0a\x00" * 1_000_000]))]
    ).SerializeToString(),
}


@pytest.mark.parametrize("what", REFUSED)
async def test_changes_above_the_limits_are_refused_in_short_steps(one: Slice, what: str) -> None:
    session = await one.session()
    await one.measure(f"refuse {what}", refused(session, wire.SessionRequest(change=REFUSED[what])))


ABOVE: dict[str, wire.SessionRequest] = {
    "400,000 acks": wire.SessionRequest(acks=wire.Acks(acks=[wire.Ack(key=b"k")] * (HUGE // 6))),
    "2,001 acks": wire.SessionRequest(acks=wire.Acks(acks=[wire.Ack(key=b"k")] * 2_001)),
    "an ack with two million handles": wire.SessionRequest(
        acks=wire.Acks(acks=[wire.Ack(key=b"k", handles=[1] * HUGE)])
    ),
    "an ack with 700,000 queues": wire.SessionRequest(
        acks=wire.Acks(acks=[wire.Ack(key=b"k", queues=[b"q"] * (HUGE // 3))])
    ),
    "a detach of two million handles": wire.SessionRequest(detach=wire.Detach(handles=[1] * HUGE)),
    "an attach of 1,001 queues": wire.SessionRequest(
        attach=wire.Attach(queues=[b"q%d" % number for number in range(1001)], handles=range(1001))
    ),
    "an attach of a million queues": wire.SessionRequest(attach=wire.Attach(queues=[b"q"] * (HUGE // 3))),
    "a describe of 700,000 names": wire.SessionRequest(describe=wire.Describe(keys=[b"k"] * (HUGE // 3))),
    "a describe of 1,001 names": wire.SessionRequest(describe=wire.Describe(keys=[b"k"] * 1_001)),
    "a pull with a name of megabytes": wire.SessionRequest(pull=wire.Pull(queue=b"q" * HUGE)),
}


@pytest.mark.parametrize("what", ABOVE)
async def test_other_frames_above_the_limits(one: Slice, what: str) -> None:
    session = await one.session()
    await one.measure(f"refuse {what}", refused(session, ABOVE[what]))


async def test_a_queue_of_100_000_bindings_is_dropped(one: Slice) -> None:
    session = await one.session()
    consumer = await one.session()
    await consumer.attach([b"big"])
    await one.measure("drop", session.change(drop("big")))

    async def reclaimed() -> None:
        keys = wire.Describe(keys=[BIG_KEYS[0].encode(), BIG_KEYS[-1].encode()])
        request = wire.DescribeRequest(describe=keys)
        async with asyncio.timeout(WAIT_S):
            while any(key.exists for key in (await one.stub.Describe(request)).description.keys):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    await one.measure("and while it is reclaimed", reclaimed())
