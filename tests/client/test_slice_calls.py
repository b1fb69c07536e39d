"""Unary calls: what they travel over."""

from __future__ import annotations

from typing import Any

import pytest

import shoal
from shoal import looks
from shoal.testing import FakeCluster
from shoal.transport.grpc import GrpcTransport
from shoal.transport.methods import DESCRIBE
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.channels import open_channel
from tests.client.fake_cluster import FakeCluster as ServedCluster


def noted(broker: shoal.Broker) -> list[tuple[str, str]]:
    """Method and connection of the calls that the broker makes from now on."""
    transport, calls = broker.connection._transport, list[tuple[str, str]]()
    real = transport.call

    async def call(address: str, method: Any, request: Any, timeout_s: float, apart: str = "") -> Any:
        calls.append((method.path.rpartition("/")[2], apart))
        return await real(address, method, request, timeout_s, apart)

    transport.call = call  # type: ignore[method-assign]
    return calls


async def test_administration_and_looks_hold_up_no_other_calls() -> None:
    async with FakeCluster(["s01"]).connect() as broker:
        await broker.declare("q")
        calls, leases, admin = noted(broker), shoal.Leases(broker), shoal.Admin(broker)
        await broker.publish("@q", b"x", idempotency_key="once")
        (message,) = await leases.pull("q", 1, lease_ms=60_000)
        await leases.ack("q", [shoal.Done(message.key, message.offset, message.offset + 1)])
        await leases.nack("q", [shoal.Done(message.key, message.offset, message.offset + 1)])
        await broker.peek("q", 1)
        await broker.describe("q")
        await broker.describe_key("k")
        await admin.figures("s01")
        await admin.queues()
        await shoal.Parts(broker).look("s01", [b"q"], deadline_s=10)
    assert calls == [
        ("Publish", ""),
        ("Describe", looks.QUICK),
        ("Pull", ""),
        ("Ack", ""),
        ("Nack", ""),
        ("Pull", looks.QUICK),
        ("Describe", looks.QUICK),
        ("Describe", looks.QUICK),
        ("Figures", "administration"),
        ("ListQueues", "administration"),
        ("Describe", looks.QUICK),
    ]


async def test_what_stands_apart_has_a_connection_of_its_own(
    cluster: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each word, which its calls share."""
    opened: list[str] = []

    def open_one(address: str, options: Any) -> Any:
        opened.append(address)
        return open_channel(address, options)

    monkeypatch.setattr("shoal.transport.grpc.open_channel", open_one)
    transport, addresses = GrpcTransport(), [slice_.address for slice_ in cluster.slices.values()][:2]
    request = wire.DescribeRequest(describe=wire.Describe())
    for _ in range(2):
        for apart in ("", "looks", "slow looks"):
            for address in addresses:
                await transport.call(address, DESCRIBE, request, 30, apart)
    await transport.close()
    assert opened == addresses * 3
