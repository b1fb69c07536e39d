"""Answers of slices that cannot be read: a typed error, at once, and the rest of the connection goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import shoal
import shoal.testing
from shoal.testing.fake_slice import FakeSlice
from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import bound, until
from tests.client.fake_cluster import FakeCluster

RANGES = [(1, 1, 3), (1, 1, 1000), (1, 2, 2), (1, 2, 1), (100, 1, 101), (2, 1, 3), (1, 5, 6), (1, 1, 0)]
"""(first, low, to) that one message cannot be: none of it lies in the chunk, or more than it holds."""


def delivery(place: tuple[int, int, int], **more: Any) -> wire.Delivery:
    first, low, to = place
    return wire.Delivery(key=b"key", first=first, low=low, to=to, chunk=encode_chunk([b"x"]), **more)


@pytest.mark.parametrize("place", RANGES)
@pytest.mark.parametrize("live", [False, True])
async def test_a_delivery_of_offsets_that_its_chunk_does_not_hold_is_refused(
    cluster: FakeCluster, fake_broker: shoal.Broker, place: tuple[int, int, int], live: bool
) -> None:
    queue, _ = await bound(fake_broker, cluster)
    slice_ = cluster.home_of(queue)
    async with fake_broker.consume(queue) as inbox, asyncio.timeout(10):
        await until(lambda: any(one.queues for one in slice_._sessions))
        session = next(one for one in slice_._sessions if one.queues)
        told = delivery(place, handles=list(session.queues), live=live)
        session.outbox.put_nowait(wire.SessionResponse(deliveries=[told]))
        with pytest.raises(shoal.Malformed, match="offsets"):
            await anext(inbox)


@pytest.mark.parametrize("place", RANGES)
async def test_a_pull_refuses_offsets_that_the_chunk_does_not_hold(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, place: tuple[int, int, int]
) -> None:
    """What another slice gave is returned first."""
    queue, key = await bound(fake_broker, cluster)
    real = FakeSlice._answer

    def answer(self: FakeSlice, session: Any, request: wire.SessionRequest) -> wire.Answer:
        found = real(self, session, request)
        if request.WhichOneof("frame") == "pull" and not found.pulled.deliveries:
            found.pulled.deliveries.append(delivery(place))
        return found

    monkeypatch.setattr(FakeSlice, "_answer", answer)
    with pytest.raises(shoal.Malformed, match="offsets"):
        await fake_broker.pull(queue, 10, deadline_s=5)
    await fake_broker.publish(key, b"good")
    assert [message.body for message in await fake_broker.pull(queue, 10, deadline_s=5)] == [b"good"]


@pytest.mark.parametrize("place", RANGES)
async def test_a_leased_pull_refuses_offsets_that_the_chunk_does_not_hold(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, place: tuple[int, int, int]
) -> None:
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish(key, b"good")

    async def pull(self: FakeSlice, request: wire.PullRequest, context: object) -> wire.PullResponse:
        return wire.PullResponse(deliveries=[delivery(place)])

    monkeypatch.setattr(FakeSlice, "Pull", pull)
    with pytest.raises(shoal.Malformed, match="offsets"):
        await shoal.Leases(fake_broker).pull(queue, 10, lease_ms=60_000, deadline_s=5)
