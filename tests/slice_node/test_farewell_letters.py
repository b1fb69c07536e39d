"""Farewells for a key of another slice: two brokers with gRPC and journals, which stop without a checkpoint between the
record and its delivery, and between the delivery and what is noted of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import InvalidName, Malformed, NoSuchQueue, OutOfRange, ShoalError
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_contract.partition_hash import partition_of
from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk, KeyOptions
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_coordination.cluster_view import ClusterView
from shoal_coordination.records import ClusterConfig, NodeRecord, SliceRecord
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.core.dispatch import farewells, letter_lines
from shoal_slice_node.core.dispatch.farewells import FarewellLetter

from .brokers import connected, running, served

AWAY = b"away"
QUEUE = b"anna"
WAIT_S = 30


class Far:
    """The slice that owns the key; queue `reader` is bound to it."""

    def __init__(self, broker: Broker, address: str, channel: grpc.aio.Channel) -> None:
        self.broker = broker
        self.address = address
        self.stub = SliceServiceStub(channel)

    async def said(self) -> list[bytes]:
        found = await self.stub.Pull(wire.PullRequest(pull=wire.Pull(queue=b"reader", peek=True)))
        return [body for one in found.deliveries for body in parse_chunk(one.chunk).bodies]

    def tell(self, near: Broker) -> None:
        """What etcd says of this slice's leader."""
        home = partition_of(AWAY, PARTITIONS_DEFAULT)
        owners = tuple(int(partition == home) for partition in range(PARTITIONS_DEFAULT))
        slices = {"near": SliceRecord("near"), "far": SliceRecord("far", leader="n2", leader_address=self.address)}
        nodes = {"n2": NodeRecord("n2", self.address, "far")}
        config = ClusterConfig("test", PARTITIONS_DEFAULT, 0, "0" * 32)
        near.courier.follow(ClusterView(1, config, PartitionMap(2, ("near", "far"), owners), slices, nodes))


@pytest.fixture
async def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Far]:
    monkeypatch.setattr(letter_lines, "LETTER_AGAIN_MS", 50)
    monkeypatch.setattr(letter_lines, "LETTER_AGAIN_MS_MAX", 50)
    folder = tmp_path / "far"
    async with (
        running(folder) as broker,
        served(broker, folder) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        found = Far(broker, address, channel)
        await found.stub.Declare(wire.DeclareRequest(queue=b"reader"))
        await found.stub.Bind(wire.BindRequest(queue=b"reader", keys=[AWAY]))
        yield found


@asynccontextmanager
async def near_slice(tmp_path: Path, epoch: int) -> AsyncIterator[Broker]:
    async with running(tmp_path / "near", epoch=epoch) as broker:
        owned = bytearray(b"\x01" * PARTITIONS_DEFAULT)
        owned[partition_of(AWAY, PARTITIONS_DEFAULT)] = 0
        await broker.set_owned(2, bytes(owned))
        yield broker


async def say(near: Broker, tmp_path: Path) -> None:
    async with connected(near, tmp_path / "near") as channel:
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=QUEUE))
        chunk = Chunk(bodies=[b"went offline"])
        await stub.Farewell(wire.FarewellRequest(queue=QUEUE, key=AWAY, chunk=chunk))


async def until(done: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not done():  # noqa: ASYNC110 - the broker does not signal it
            await asyncio.sleep(0.01)


def rows(near: Broker) -> list[bytes]:
    return [row_key[:1] for row_key, _ in near.state.tables.farewell.scan()]


async def test_it_is_brought_to_the_slice_that_owns_its_key(far: Far, tmp_path: Path) -> None:
    async with near_slice(tmp_path, 1) as near:
        far.tell(near)
        await say(near, tmp_path)
        await until(lambda: not rows(near))
        assert await far.said() == [b"went offline"]


async def test_one_that_a_full_key_refuses_waits_for_an_hour_and_then_ends(
    far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await far.stub.Configure(wire.ConfigureRequest(key=AWAY, options=KeyOptions(capacity_messages=1)))
    await far.stub.Publish(wire.PublishRequest(key=AWAY, chunk=Chunk(bodies=[b"first"])))
    async with near_slice(tmp_path, 1) as near:
        box = near.dispatcher.farewells.letters
        far.tell(near)
        await say(near, tmp_path)
        await until(lambda: near.courier._numbers)
        assert rows(near) and box.ended < 1
        monkeypatch.setattr(farewells, "FAREWELL_LETTER_REFUSED_MS", 0)
        await until(lambda: not rows(near))
        assert box.ended == 1 and await far.said() == [b"first"]


async def test_a_crash_between_the_record_and_its_delivery_loses_nothing(far: Far, tmp_path: Path) -> None:
    async with near_slice(tmp_path, 1) as near:  # It does not know where the far slice is.
        await say(near, tmp_path)
        await until(lambda: rows(near) == [b"l"])
        assert await far.said() == []
    async with near_slice(tmp_path, 2) as near:
        far.tell(near)
        await until(lambda: not rows(near))
        assert await far.said() == [b"went offline"]
    async with near_slice(tmp_path, 3) as near:
        assert not rows(near)


async def test_a_crash_between_the_delivery_and_its_record_makes_no_second_copy(
    far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with near_slice(tmp_path, 1) as near:
        brought: list[FarewellLetter] = []
        monkeypatch.setattr(near.dispatcher.farewells.letters, "sent", brought.append)
        far.tell(near)
        await say(near, tmp_path)
        await until(lambda: brought)
        assert await far.said() == [b"went offline"] and rows(near) == [b"l"]
    async with near_slice(tmp_path, 2) as near:
        far.tell(near)
        await until(lambda: not rows(near))
        assert await far.said() == [b"went offline"]


async def test_the_unary_call(far: Far) -> None:
    """What is taken back need not be there; what is wrong is named."""
    bye = Chunk(bodies=[b"bye"])
    await far.stub.Farewell(wire.FarewellRequest(queue=b"reader", key=AWAY, chunk=bye, after_s=600))
    assert rows(far.broker) == [b"q"]
    for _ in range(2):
        await far.stub.Farewell(wire.FarewellRequest(queue=b"reader"))
        assert not rows(far.broker)
    wrong: list[tuple[wire.FarewellRequest, type[ShoalError]]] = [
        (wire.FarewellRequest(queue=b"nobody", key=AWAY, chunk=bye), NoSuchQueue),
        (wire.FarewellRequest(queue=b"reader", chunk=bye), InvalidName),
        (wire.FarewellRequest(queue=b"reader", key=AWAY), Malformed),
        (wire.FarewellRequest(queue=b"reader", after_s=5), Malformed),
        (wire.FarewellRequest(queue=b"reader", key=AWAY, chunk=bye, after_s=86_401), OutOfRange),
    ]
    for request, error in wrong:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await far.stub.Farewell(request)
        assert type(from_rpc_error(refused.value)) is error
    assert not rows(far.broker)
