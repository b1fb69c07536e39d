"""How many of the queues that a message was routed to are consumed: receipts, against any cluster and on the fake."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from shoal.testing import FakeCluster
from tests.client.calls import fresh


@pytest.mark.parametrize("live", [False, True])
async def test_a_receipt_counts_the_queues_that_are_consumed(broker: shoal.Broker, live: bool) -> None:
    queue, other, key = fresh("queue"), fresh("queue"), fresh("key")
    await broker.declare([queue, other])
    for one in (queue, other):
        await broker.bind(one, key)
    receipt = await broker.publish(key, b"before", live=live)
    assert (receipt.queues, receipt.consumed) == (2, 0)
    async with broker.consume(queue):
        receipt = await broker.publish(key, b"now", live=live)
        assert (receipt.queues, receipt.consumed) == (2, 1)
        receipt = await broker.publish_many(key, [b"a", b"b"], live=live)
        assert (receipt.queues, receipt.consumed) == (2, 1)
        receipt = await broker.send(queue, b"direct", live=live)
        assert (receipt.queues, receipt.consumed) == (1, 1)
        receipt = await broker.send(other, b"direct", live=live)
        assert (receipt.queues, receipt.consumed) == (1, 0)


@pytest.mark.parametrize("live", [False, True])
async def test_publishes_that_leave_together_have_their_own_counts(broker: shoal.Broker, live: bool) -> None:
    """Those behind a refused one got the counts of those before them."""
    queues, tag = [fresh("queue") for _ in range(3)], fresh("tag")
    none, one, two, three = keys = [f"{{{tag}}}{number}" for number in range(4)]
    await broker.declare(queues)
    for number, key in enumerate(keys):
        for queue in queues[:number]:
            await broker.bind(queue, key)
    async with broker.consume(queues[:2]):
        together = [broker.publish_nowait(key, b"x", mandatory=True, live=live) for key in (one, none, three, two)]
        found = await asyncio.gather(*together, return_exceptions=True)
    assert isinstance(found.pop(1), shoal.Unroutable)
    assert [(one.queues, one.consumed) for one in found if isinstance(one, shoal.Receipt)] == [(1, 1), (3, 2), (2, 2)]


@pytest.mark.parametrize("later", ["repeatable", "delayed"])
async def test_publishes_in_calls_of_their_own_count_too(broker: shoal.Broker, later: str) -> None:
    """What is published with an idempotency key has a call of its own; what waits for its time is routed later."""
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    async with broker.consume(queue):
        if later == "repeatable":
            receipt = await broker.publish(key, b"x", idempotency_key=fresh("idempotency"))
            assert (receipt.queues, receipt.consumed) == (1, 1)
        else:
            receipt = await broker.publish(key, b"x", not_before=1e9)
            assert (receipt.queues, receipt.consumed) == (0, 0)


async def test_publishes_of_this_test_leave_in_one_frame(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    """So that the counts above are of one answer."""
    tag = fresh("tag")
    keys = [f"{{{tag}}}{number}" for number in range(4)]
    await fake_broker.publish(keys[0], b"first")
    for slice_ in cluster.slices.values():
        slice_.frames.clear()
    await asyncio.gather(*(fake_broker.publish_nowait(key, b"x") for key in keys))
    assert [len(slice_.frames) for slice_ in cluster.slices.values() if slice_.frames] == [1]
