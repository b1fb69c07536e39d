"""Dead letters for a key of another slice: two brokers with gRPC, one of which has the queue and the other the key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import Fenced, ShoalError, Unavailable
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.partition_hash import partition_of
from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk, Headers
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_coordination.cluster_view import ClusterView
from shoal_coordination.records import ClusterConfig, NodeRecord, SliceRecord
from shoal_slice_node.adapters import courier
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.core.dispatch import letter_lines
from shoal_slice_node.core.dispatch.letters import Letter

from .brokers import running, served

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

DEAD = b"dead"
WAIT_S = 30
NO_OFFSET = Headers(fields={"shoal-offset": b"0"})
"""Of a message that is no copy."""
NOWHERE = "127.0.0.1:1"


@dataclass
class Pair:
    """`near` has the queue `q`, `far` owns the dead-letter key. `at`: where the leader of the far slice is."""

    near: Broker
    far: Broker
    near_stub: SliceServiceAsyncStub
    far_stub: SliceServiceAsyncStub
    far_address: str

    def tell(self, leader_address: str, registered: str | None = None) -> None:
        """What etcd says of the far slice's leader. `registered`: where it is registered, if it is another address."""
        home = partition_of(DEAD, PARTITIONS_DEFAULT)
        owners = tuple(int(partition == home) for partition in range(PARTITIONS_DEFAULT))
        slices = {"near": SliceRecord("near"), "far": SliceRecord("far", leader="n2", leader_address=leader_address)}
        nodes = {"n2": NodeRecord("n2", leader_address if registered is None else registered, "far")}
        config = ClusterConfig("test", PARTITIONS_DEFAULT, 0, "0" * 32)
        self.near.courier.follow(ClusterView(1, config, PartitionMap(2, ("near", "far"), owners), slices, nodes))

    async def poison(self, queue: bytes = b"q", key: bytes = b"k") -> None:
        """A message of the queue that comes back too often."""
        await self.near_stub.Publish(wire.PublishRequest(key=key, chunk=Chunk(bodies=[b"x"])))
        found = await self.near_stub.Pull(wire.PullRequest(pull=wire.Pull(queue=queue, lease_ms=600_000)))
        assert len(found.deliveries) == 1
        acks = [wire.Ack(key=key, low=one.low, to=one.to, queues=[queue]) for one in found.deliveries]
        await self.near_stub.Nack(wire.NackRequest(nacks=wire.Nacks(messages=acks)))

    async def depth(self, queue: bytes = b"q") -> int:
        found = await self.near_stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[queue])))
        return int(found.description.queues[0].messages)

    async def copies(self) -> list[bytes]:
        """The offsets of the messages whose copies the far slice has."""
        pull = wire.Pull(queue=b"graveyard", peek=True)
        found = await self.far_stub.Pull(wire.PullRequest(pull=pull))
        return [parse_chunk(one.chunk).headers[0].fields["shoal-offset"] for one in found.deliveries]

    async def until(self, done: Callable[[], object]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not done():  # noqa: ASYNC110 - the broker does not signal it
                await asyncio.sleep(0.01)

    async def until_done(self, queue: bytes = b"q") -> None:
        async with asyncio.timeout(WAIT_S):
            while await self.depth(queue):  # noqa: ASYNC110 - the broker does not signal it
                await asyncio.sleep(0.01)


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(letter_lines, "LETTER_AGAIN_MS", 50)
    monkeypatch.setattr(letter_lines, "LETTER_AGAIN_MS_MAX", 50)
    folders = tmp_path / "near", tmp_path / "far"
    async with (
        running(folders[0]) as near,
        running(folders[1]) as far,
        served(near, folders[0]) as near_address,
        served(far, folders[1]) as far_address,
        grpc.aio.insecure_channel(near_address) as to_near,
        grpc.aio.insecure_channel(far_address) as to_far,
    ):
        found = Pair(near, far, SliceServiceStub(to_near), SliceServiceStub(to_far), far_address)
        owned = bytearray(b"\x01" * PARTITIONS_DEFAULT)
        owned[partition_of(DEAD, PARTITIONS_DEFAULT)] = 0
        await near.set_owned(2, bytes(owned))
        options = QueueOptions(max_deliveries=1, dead_letter=DEAD).to_wire()
        await found.near_stub.Declare(wire.DeclareRequest(queue=b"q", options=options))
        await found.near_stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        await found.far_stub.Declare(wire.DeclareRequest(queue=b"graveyard"))
        await found.far_stub.Bind(wire.BindRequest(queue=b"graveyard", keys=[DEAD]))
        yield found


async def test_letters_are_brought_and_their_messages_done(pair: Pair) -> None:
    pair.tell(pair.far_address)
    for _ in range(3):
        await pair.poison()
    await pair.until_done()
    assert sorted(await pair.copies()) == [b"1", b"2", b"3"]


async def test_while_the_other_slice_is_away_messages_stay_and_are_not_given(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    await pair.poison()  # Nothing is known of the cluster yet.
    await pair.until(lambda: any("dead letters" in record.getMessage() for record in caplog.records))
    pair.tell("")
    pair.tell(NOWHERE)
    await pair.until(lambda: NOWHERE in pair.near.courier._leaders)
    assert await pair.depth() == 1
    found = await pair.near_stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"q")))
    assert not found.deliveries
    pair.tell(pair.far_address)
    await pair.until_done()
    assert await pair.copies() == [b"1"] and NOWHERE not in pair.near.courier._leaders


async def test_no_letter_goes_to_an_address_where_the_leader_is_not_registered(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a former leader, where another cluster's slice may listen by now."""
    leader_for, refused = pair.near.courier._leader_for, list[bytes]()

    def counted(key: bytes) -> object:
        try:
            return leader_for(key)
        except Unavailable:
            refused.append(key)
            raise

    monkeypatch.setattr(pair.near.courier, "_leader_for", counted)
    pair.tell(pair.far_address, registered=NOWHERE)
    await pair.poison()
    await pair.until(lambda: len(refused) > 2)
    assert await pair.depth() == 1 and await pair.copies() == []
    pair.tell(pair.far_address)
    await pair.until_done()
    assert await pair.copies() == [b"1"]


async def test_a_lost_answer_makes_no_second_copy(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = pair.near.dispatcher.letters
    sent, lost = letters.sent, list[Letter]()

    def answered(letter: Letter) -> None:
        if len(lost) < 3:
            lost.append(letter)
            letters.not_sent(letter, steady_ms())
        else:
            sent(letter)

    monkeypatch.setattr(letters, "sent", answered)
    pair.tell(pair.far_address)
    await pair.poison()
    await pair.until_done()
    assert len(lost) == 3 and len({letter.producer for letter in lost}) == 1
    assert await pair.copies() == [b"1"]


async def test_a_node_whose_lease_may_be_over_sends_no_letters(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[None] = []

    def over() -> None:
        tries.append(None)
        raise Fenced("this node's lease may be over", subject="lease")

    monkeypatch.setattr(pair.near.courier, "_may_send", over)
    pair.tell(pair.far_address)
    await pair.poison()
    await pair.until(lambda: len(tries) > 2)
    assert await pair.depth() == 1 and await pair.copies() == []
    monkeypatch.undo()
    await pair.until_done()
    assert await pair.copies() == [b"1"]


async def fill(pair: Pair, key: bytes = DEAD) -> None:
    """The dead-letter key is at its capacity."""
    options = KeyOptions(capacity_messages=1).to_wire()
    await pair.far_stub.Configure(wire.ConfigureRequest(key=key, options=options))
    await pair.far_stub.Publish(wire.PublishRequest(key=key, chunk=Chunk(bodies=[b"full"], headers=[NO_OFFSET])))


async def make_room(pair: Pair) -> None:
    await pair.far_stub.Configure(
        wire.ConfigureRequest(key=DEAD, options=KeyOptions(capacity_messages=1_000).to_wire())
    )


async def test_a_letter_that_was_refused_is_brought_once_there_is_room(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.tell(pair.far_address)
    await fill(pair)
    await pair.poison()
    await pair.until(lambda: list(pair.near.courier._numbers.values()) >= [3])
    assert await pair.depth() == 1
    await make_room(pair)
    await pair.until_done()
    assert await pair.copies() == [b"0", b"1"]
    assert not pair.near.courier._numbers
    (told,) = [record.getMessage() for record in caplog.records if "dead letters" in record.getMessage()]
    assert told.startswith("dead letters or farewells for slice far wait, and are sent again: ")


@pytest.mark.parametrize("accepted", [False, True])
async def test_a_leader_that_does_not_know_the_number_of_a_letter_makes_no_second_copy(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, accepted: bool
) -> None:
    letters = pair.near.dispatcher.letters
    numbers = pair.near.courier._numbers
    lost: list[Letter] = []

    def answered(letter: Letter) -> None:
        lost.append(letter)
        letters.not_sent(letter, steady_ms())

    pair.tell(pair.far_address)
    await fill(pair)
    await pair.poison()
    await pair.until(lambda: list(numbers.values()) >= [3])
    if accepted:  # Its answer is lost, with the leader.
        monkeypatch.setattr(letters, "sent", answered)
        await make_room(pair)
        await pair.until(lambda: lost)
        monkeypatch.undo()
    numbers.clear()
    if not accepted:
        await pair.until(lambda: list(numbers.values()) >= [3])
        await make_room(pair)
    await pair.until_done()
    assert await pair.copies() == [b"0", b"1"]


async def test_a_key_that_is_full_holds_up_no_other(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_lines, "LETTER_AGAIN_MS", 60_000)
    monkeypatch.setattr(letter_lines, "LETTER_AGAIN_MS_MAX", 60_000)
    other = b"{" + DEAD + b"} too"
    assert partition_of(other, PARTITIONS_DEFAULT) == partition_of(DEAD, PARTITIONS_DEFAULT)
    options = QueueOptions(max_deliveries=1, dead_letter=other).to_wire()
    await pair.near_stub.Declare(wire.DeclareRequest(queue=b"q2", options=options))
    await pair.near_stub.Bind(wire.BindRequest(queue=b"q2", keys=[b"k2"]))
    await pair.far_stub.Bind(wire.BindRequest(queue=b"graveyard", keys=[other]))
    pair.tell(pair.far_address)
    await fill(pair)
    for _ in range(40):
        await pair.poison()
    await pair.until(lambda: pair.near.courier._numbers)
    await pair.poison(b"q2", b"k2")
    await pair.until_done(b"q2")
    assert await pair.depth() == 40 and await pair.copies() == [b"0", b"1"]


async def test_a_letter_under_way_arrives_though_etcd_names_its_leader_no_longer(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, go_on = courier._publish_as, asyncio.Event()
    under_way: list[bytes] = []

    async def slow(stub: SliceServiceAsyncStub, letter: Letter, sequence: int) -> ShoalError | None:
        under_way.append(letter.producer)
        await go_on.wait()
        return await publish(stub, letter, sequence)

    monkeypatch.setattr(courier, "_publish_as", slow)
    looks, close_unused = 0, pair.near.courier._close_unused

    async def looked() -> None:
        nonlocal looks
        await close_unused()
        looks += 1

    pair.tell(pair.far_address)
    await pair.poison()
    await pair.until(lambda: under_way)
    pair.tell("")
    monkeypatch.setattr(pair.near.courier, "_close_unused", looked)
    pair.near.courier._wake.set()
    await pair.until(lambda: looks)
    go_on.set()
    await pair.until_done()
    assert await pair.copies() == [b"1"] and len(under_way) == 1
    await pair.until(lambda: pair.far_address not in pair.near.courier._leaders)


async def test_a_slice_that_answers_nothing_is_tried_with_one_letter_at_a_time(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[bytes] = []
    answer = asyncio.Event()

    async def silent(_: object, letter: Letter, __: int) -> Unavailable:
        tried.append(letter.producer)
        if len(tried) > 1:
            await answer.wait()
        return Unavailable("no answer")

    monkeypatch.setattr(courier, "_publish_as", silent)
    pair.tell(pair.far_address)
    await pair.poison()
    await pair.until(lambda: len(tried) == 2)
    for number in range(12):
        dead_letter = b"{%b} %d" % (DEAD, number)
        options = QueueOptions(max_deliveries=1, dead_letter=dead_letter).to_wire()
        queue, key = b"queue %d" % number, b"key %d" % number
        await pair.near_stub.Declare(wire.DeclareRequest(queue=queue, options=options))
        await pair.near_stub.Bind(wire.BindRequest(queue=queue, keys=[key]))
        await pair.poison(queue, key)
    await pair.until(lambda: len(pair.near.courier._told) == 13)
    assert len(tried) == 2
    monkeypatch.undo()
    answer.set()
    for number in range(12):
        await pair.until_done(b"queue %d" % number)
    await pair.until_done()
