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
from shoal_contract.errors import Fenced
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_contract.options import QueueOptions
from shoal_contract.partition_hash import partition_of
from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_coordination.cluster_view import ClusterView
from shoal_coordination.records import ClusterConfig, SliceRecord
from shoal_slice_node.adapters import courier
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.core.dispatch.letters import Letter

from .brokers import running, served

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

DEAD = b"dead"
WAIT_S = 30
NOWHERE = "127.0.0.1:1"


@dataclass
class Pair:
    """`near` has the queue `q`, `far` owns the dead-letter key. `at`: where the leader of the far slice is."""

    near: Broker
    far: Broker
    near_stub: SliceServiceAsyncStub
    far_stub: SliceServiceAsyncStub
    far_address: str

    def tell(self, leader_address: str) -> None:
        """What etcd says of the far slice's leader."""
        home = partition_of(DEAD, PARTITIONS_DEFAULT)
        owners = tuple(int(partition == home) for partition in range(PARTITIONS_DEFAULT))
        slices = {"near": SliceRecord("near"), "far": SliceRecord("far", leader_address=leader_address)}
        config = ClusterConfig("test", PARTITIONS_DEFAULT, 0, "0" * 32)
        self.near.courier.follow(ClusterView(1, config, PartitionMap(2, ("near", "far"), owners), slices, {}))

    async def poison(self) -> None:
        """A message of `q` that comes back too often."""
        await self.near_stub.Publish(wire.PublishRequest(key=b"k", chunk=Chunk(bodies=[b"x"])))
        found = await self.near_stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"q", lease_ms=600_000)))
        assert len(found.deliveries) == 1
        acks = [wire.Ack(key=b"k", low=one.low, to=one.to, queues=[b"q"]) for one in found.deliveries]
        await self.near_stub.Nack(wire.NackRequest(nacks=wire.Nacks(messages=acks)))

    async def depth(self) -> int:
        found = await self.near_stub.Describe(wire.DescribeRequest(describe=wire.Describe(queues=[b"q"])))
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

    async def until_done(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while await self.depth():  # noqa: ASYNC110 - the broker does not signal it
                await asyncio.sleep(0.01)


@pytest.fixture
async def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Pair]:
    monkeypatch.setattr(courier, "COURIER_AGAIN_S", 0.05)
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
    await pair.until(lambda: any("dead letters" in record.message for record in caplog.records))
    pair.tell("")
    pair.tell(NOWHERE)
    await pair.until(lambda: NOWHERE in pair.near.courier._channels)
    assert await pair.depth() == 1
    found = await pair.near_stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"q")))
    assert not found.deliveries
    pair.tell(pair.far_address)
    await pair.until_done()
    assert await pair.copies() == [b"1"] and NOWHERE not in pair.near.courier._channels


async def test_a_lost_answer_makes_no_second_copy(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = pair.near.dispatcher.registry.returns.letters
    sent, lost = letters.sent, list[Letter]()

    def answered(letter: Letter) -> None:
        if len(lost) < 3:
            lost.append(letter)
            letters.not_sent(letter)
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
