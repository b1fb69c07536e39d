"""Live publishes, against any cluster and on the fake: which queues get them, in which order, and never twice."""

from __future__ import annotations

import asyncio
import logging

import pytest

import shoal
from shoal_contract.chunk import encode_chunk
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import bound, fresh, new_key, take, until
from tests.client.fake_cluster import PARTITIONS, FakeCluster


async def test_a_live_message_reaches_an_open_inbox_and_needs_no_ack(broker: shoal.Broker) -> None:
    queue, key = fresh("queue"), await new_key(broker)
    await broker.declare(queue)
    await broker.bind(queue, key)
    async with broker.consume(queue) as inbox:
        receipt = await broker.publish(key, b"live", headers={"from": b"anna"}, live=True)
        assert (receipt.offset, receipt.queues) == (0, 1)
        (message,) = await take(inbox, 1)
        assert (message.live, message.offset, message.body, message.headers) == (True, 0, b"live", {"from": b"anna"})
        assert (message.queue, message.key) == (queue, key)
        await message.ack()
        await broker.ack(message)
        await inbox.flush()
        await broker.publish(key, b"stored")
        (stored,) = await take(inbox, 1)
        assert (stored.live, stored.offset) == (False, 1)
    assert (await broker.describe(queue)).messages == 1


async def test_live_and_stored_publishes_keep_their_order(broker: shoal.Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    async with broker.consume(queue) as inbox:
        futures = [broker.publish_nowait(key, b"%d" % number, live=number % 3 != 0) for number in range(60)]
        await asyncio.gather(*futures)
        messages = await take(inbox, 60)
    assert [message.body for message in messages] == [b"%d" % number for number in range(60)]
    assert [message.live for message in messages] == [number % 3 != 0 for number in range(60)]


async def test_equal_live_messages_are_no_repeats(broker: shoal.Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    async with broker.consume(queue) as inbox:
        receipt = await broker.publish_many(key, [b"a", b"b"], live=True)
        assert (receipt.offset, receipt.messages) == (0, 2)
        await broker.publish_many(key, [b"a", b"b"], live=True)
        assert [message.body for message in await take(inbox, 4)] == [b"a", b"b", b"a", b"b"]
        await broker.publish_many(key, [b"c", b"d"], live=True)
        async with asyncio.timeout(10):
            delivery = await anext(inbox.deliveries())
        assert (delivery.live, delivery.first, delivery.end, delivery.bodies) == (True, 0, 2, [b"c", b"d"])
        await delivery.ack()


async def test_a_live_message_that_nothing_consumes_is_gone(broker: shoal.Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    receipt = await broker.publish(key, b"gone", live=True)
    assert (receipt.offset, receipt.queues, receipt.consumed) == (0, 1, 0)
    assert await broker.peek(queue, 10) == []
    async with broker.consume(queue) as inbox:
        await broker.publish(key, b"stored")
        assert [message.body for message in await take(inbox, 1)] == [b"stored"]


async def test_a_queue_gets_live_messages_at_its_direct_key(broker: shoal.Broker) -> None:
    queue = fresh("queue")
    await broker.declare(queue)
    async with broker.consume(queue) as inbox:
        await broker.send(queue, b"direct", live=True)
        (message,) = await take(inbox, 1)
        assert (message.live, message.body, message.key) == (True, b"direct", f"@{queue}")
    with pytest.raises(shoal.Unroutable):
        await broker.send(fresh("no-such"), b"x", live=True)
    with pytest.raises(shoal.Unroutable):
        await broker.publish(fresh("nothing-bound"), b"x", mandatory=True, live=True)


async def test_the_flag_is_checked(broker: shoal.Broker) -> None:
    with pytest.raises(TypeError, match="live"):
        await broker.publish("k", b"x", live=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="live"):
        await broker.publish_many("k", [b"x"], live="yes")  # type: ignore[arg-type]
    with pytest.raises(shoal.Malformed, match="not_before"):
        await broker.publish("k", b"x", live=True, not_before=1e9)


async def test_a_live_publish_under_way_when_the_stream_is_lost_is_not_repeated(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    _, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    slice_.answering.clear()
    live = fake_broker.publish_nowait(key, b"live", live=True)
    stored = fake_broker.publish_nowait(key, b"stored")
    await until(lambda: slice_.state.keys[key.encode()].head > 1)
    slice_.cut()
    slice_.answering.set()
    with pytest.raises(shoal.Unavailable, match="may have been delivered or not"):
        await live
    assert (await stored).offset == 1
    changes = [wire.Change.FromString(frame.change) for frame in slice_.frames if frame.HasField("change")]
    chunks = [list(step.publishes.chunks) for change in changes for step in change.steps if step.HasField("publishes")]
    assert chunks.count([encode_chunk([b"live"])]) == 1
    assert chunks.count([encode_chunk([b"stored"])]) == 2


async def test_a_live_publish_that_was_not_sent_yet_waits_for_the_next_stream(
    cluster: FakeCluster, fake_broker: shoal.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shoal")
    _, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await slice_.stop()
    await until(lambda: "requests to slice s01: away" in caplog.text)
    publish = asyncio.create_task(fake_broker.publish(key, b"live", live=True))
    await slice_.start()
    assert (await publish).queues == 1


async def test_a_live_publish_that_its_slice_refused_goes_to_the_new_owner(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    _, key = await bound(fake_broker, cluster)
    await fake_broker.publish(key, b"x", live=True)
    cluster.move({partition_of(key.encode(), PARTITIONS): "s02"}, tell=False)
    live = asyncio.create_task(fake_broker.publish(key, b"x", live=True))
    frames = cluster.slices["s01"].frames
    seen = len(frames)
    await until(lambda: len(frames) > seen)
    assert not live.done()
    cluster.announce()
    assert (await live).queues == 0, "nothing is bound there"
