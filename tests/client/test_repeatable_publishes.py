"""Publishes under an idempotency key: on the fake, over gRPC and in memory, and on a real cluster (conftest)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import shoal
from shoal.repeatable_publishes import producer_of
from shoal.testing import FakeCluster as MemoryCluster
from shoal.transport.methods import DESCRIBE
from shoal_contract.errors import InvalidName, Malformed, ResourceExhausted, Unroutable
from shoal_contract.wire.common_pb2 import Chunk, Headers
from tests.client.calls import fresh, until
from tests.client.conftest import Connect
from tests.client.fake_cluster import FakeCluster

WAIT_S = 60


async def bodies(broker: shoal.Broker, queue: str) -> list[bytes]:
    return [message.body for message in await broker.peek(queue, 100)]


async def bound(broker: shoal.Broker) -> tuple[str, str]:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    return queue, key


async def test_a_repeat_from_another_process_is_stored_once(connect: Connect) -> None:
    async with connect() as one, connect() as other:
        queue, key = await bound(one)
        first = await one.publish(key, b"order", headers={"a": b"1", "b": b"2"}, idempotency_key="4711")
        again = await other.publish(key, b"order", headers={"b": b"2", "a": b"1"}, idempotency_key=b"4711")
        assert first == again and first.queues == 1 and first.offset
        assert await bodies(one, queue) == [b"order"]


async def test_what_differs_is_no_repeat(broker: shoal.Broker) -> None:
    """Another message under the same idempotency key is stored: a mistake of the caller loses nothing."""
    queue, key = await bound(broker)
    await broker.publish(key, b"a", idempotency_key="1")
    await broker.publish(key, b"b", idempotency_key="1")
    await broker.publish(key, b"a", idempotency_key="2")
    await broker.publish(key, b"a", headers={"x": b"y"}, idempotency_key="1")
    await broker.publish(key, b"a")
    assert await bodies(broker, queue) == [b"a", b"b", b"a", b"a", b"a"]


async def test_batches_and_sends(broker: shoal.Broker) -> None:
    queue, key = await bound(broker)
    receipts = [await broker.publish_many(key, [b"1", b"2"], idempotency_key="many") for _ in range(2)]
    assert receipts[0] == receipts[1] and receipts[0].messages == 2
    sent = [await broker.send(queue, b"3", idempotency_key="send") for _ in range(2)]
    assert sent[0] == sent[1] and sent[0].key == queue
    assert sorted(await bodies(broker, queue)) == [b"1", b"2", b"3"]


async def test_a_delayed_publish_is_kept_once(broker: shoal.Broker) -> None:
    _, key = await bound(broker)
    not_before = time.time() + 3600
    receipts = [await broker.publish(key, b"later", not_before=not_before, idempotency_key="x") for _ in range(2)]
    assert receipts[0] == receipts[1] and receipts[0].delayed


async def test_a_refusal_is_the_first_answer_too(broker: shoal.Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    with pytest.raises(Unroutable):
        await broker.publish(key, b"x", mandatory=True, idempotency_key="1")
    await broker.declare(queue)
    await broker.bind(queue, key)
    await broker.configure(key, shoal.KeyOptions(capacity_messages=1))
    with pytest.raises(Unroutable):
        await broker.publish(key, b"x", mandatory=True, idempotency_key="1")
    assert (await broker.publish(key, b"x", mandatory=True, idempotency_key="2")).queues == 1
    for _ in range(2):
        with pytest.raises(ResourceExhausted):
            await broker.publish(key, b"x", idempotency_key="3")


async def test_bad_keys_and_live_publishes(broker: shoal.Broker) -> None:
    queue, key = await bound(broker)
    with pytest.raises(Malformed, match="live and idempotency_key exclude each other"):
        await broker.publish(key, b"x", live=True, idempotency_key="1")
    for wrong in ("", "x" * 256):
        with pytest.raises(InvalidName, match="idempotency key"):
            await broker.publish(key, b"x", idempotency_key=wrong)
    with pytest.raises(TypeError, match="idempotency key"):
        await broker.publish(key, b"x", idempotency_key=7)  # type: ignore[arg-type]
    with pytest.raises(shoal.TooLarge):
        await broker.publish(key, bytes(1 << 21), idempotency_key="1")
    await broker.publish(key, b"x", idempotency_key="x" * 255)
    assert await bodies(broker, queue) == [b"x"]


async def test_a_call_that_was_cut_off_is_repeated(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    """The slice has stored it, and goes away before it answers: the library asks again, and the answer is the first."""
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s01")
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    slice_ = cluster.slices["s01"]
    applied = slice_.state.applied
    slice_.answering.clear()
    publishing = asyncio.ensure_future(fake_broker.publish(key, b"x", idempotency_key="1", deadline_s=WAIT_S))
    await until(lambda: slice_.state.applied > applied)
    await slice_.stop()
    slice_.answering.set()
    await slice_.start()
    assert (await publishing).queues == 1 and slice_.state.applied == applied + 1
    assert await bodies(fake_broker, queue) == [b"x"]


def test_the_producer_is_made_of_all_that_is_published() -> None:
    """Lengths go before parts, so that no two publishes give the same bytes; the order of headers does not count."""
    plain = Chunk(bodies=[b"ab", b"c"])
    seen = {
        producer_of(b"key", b"id", plain),
        producer_of(b"keyi", b"d", plain),
        producer_of(b"key", b"id", Chunk(bodies=[b"a", b"bc"])),
        producer_of(b"key", b"id", Chunk(bodies=[b"abc"])),
        producer_of(b"key", b"id", Chunk(bodies=[b"ab", b"c"], headers=[Headers(), Headers()])),
        producer_of(b"key", b"id", Chunk(bodies=[b"ab", b"c"], headers=[Headers(fields={"a": b"b"}), Headers()])),
        producer_of(b"key", b"id", Chunk(bodies=[b"ab", b"c"], headers=[Headers(fields={"ab": b""}), Headers()])),
        producer_of(b"key", b"id", Chunk(bodies=[b"ab", b"c"], headers=[Headers(), Headers(fields={"a": b"b"})])),
    }
    assert len(seen) == 8 and {len(one) for one in seen} == {16}
    one, other = Headers(fields={"a": b"1", "b": b"2"}), Headers(fields={"b": b"2", "a": b"1"})
    assert producer_of(b"k", b"i", Chunk(headers=[one])) == producer_of(b"k", b"i", Chunk(headers=[other]))
    assert producer_of(b"key", b"id", Chunk(bodies=[b"body"])).hex() == "7c911b965025d7f23de28ac50544d6df"


@pytest.mark.parametrize("error", [shoal.Unavailable("away"), shoal.Fenced("the lease may be over", subject="lease")])
async def test_calls_go_on_while_another_leader_comes(error: shoal.ShoalError) -> None:
    """The leader before answers nothing more: the outcome is unknown, and the call is made again."""
    async with MemoryCluster().connect() as broker:
        await broker.declare("q")
        await broker.bind("q", "k")
        transport, attempts = broker.connection._transport, 0
        call = transport.call

        async def first_fails(address: str, method: Any, *arguments: Any) -> Any:
            nonlocal attempts
            attempts += method is not DESCRIBE
            if attempts % 2 and method is not DESCRIBE:
                raise error
            return await call(address, method, *arguments)

        transport.call = first_fails  # type: ignore[assignment, method-assign]
        assert (await broker.publish("k", b"x", idempotency_key="1")).offset == 1
        assert len(await shoal.Leases(broker).pull("q", 1, lease_ms=1000)) == 1
        assert attempts == 4
