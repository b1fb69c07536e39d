"""Acks and nacks whose answers do not come: whoever flushes is told, and nothing waits for what cannot be known."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from tests.client.acks_in_doubt import in_doubt, take
from tests.client.calls import bound, lost, until
from tests.client.fake_cluster import FakeCluster


async def test_each_flush_under_way_hears_of_acks_that_were_lost(cluster: FakeCluster) -> None:
    """Several tasks flush one connection, or one inbox: none is told that its acks are durable."""
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=20) as broker:
        queue, key = await bound(broker, cluster)
        slice_ = cluster.slices["s01"]
        await broker.publish_many(key, [b"1", b"2"])
        messages = await broker.pull(queue, 2)
        slice_.ignored = {"acks"}
        flushing = []
        for message in messages:
            await message.ack()
            flushing.append(asyncio.ensure_future(broker.flush()))
        await until(lambda: any(frame.HasField("acks") for frame in slice_.frames))
        slice_.ignored = set()
        await lost(broker, slice_)
        for one in flushing:
            with pytest.raises(shoal.Unavailable, match="was lost after messages were pulled from it"):
                await one
        await broker.flush()


async def test_acks_of_a_queue_that_left_hold_up_no_flush_once_they_are_lost(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """The slice knows nothing of it any more: it said "unacked" for ever."""
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish(key, b"1")
    async with asyncio.timeout(60), fake_broker.consume([queue]) as inbox:
        message = await anext(inbox)
        slice_.ignored = {"acks", "detach"}
        await message.ack()
        with pytest.raises(shoal.DeadlineExceeded):
            await inbox.detach(queue, deadline_s=0.2)
        slice_.ignored = set()
        slice_.cut()
        await until(lambda: bool(inbox._slices["s01"].session.streaming))
        await inbox.flush(deadline_s=5)


async def test_a_nack_of_what_was_pulled_again_counts_beside_a_late_ack(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """The ack of when it was pulled before had no answer yet, and the nack was taken for one of a message that was
    acked."""
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish(key, b"1")
    (late,) = await fake_broker.pull(queue, 1)
    slice_.ignored = {"acks"}
    await late.ack()
    await until(lambda: any(frame.HasField("acks") for frame in slice_.frames))
    await late.nack()
    await until(lambda: any(frame.HasField("nacks") for frame in slice_.frames))
    assert len(await fake_broker.pull(queue, 1)) == 1


async def test_an_ack_of_what_was_pulled_goes_before_a_nack_behind_it(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """Acks are sent a little later than nacks. If the nack went first, work that is done came again."""
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish(key, b"1")
    (message,) = await fake_broker.pull(queue, 1)
    await message.ack()
    await message.nack()
    await fake_broker.flush()
    assert (await fake_broker.describe(queue)).messages == 0


async def test_flush_returns_where_the_message_is_gone(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    slice_.takes_acks_of_lost_streams = False
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 2)
        slice_.state.release = lambda *arguments: None  # type: ignore[method-assign]  # So it does not come again.
        await in_doubt(inbox, slice_, messages[:1], had=False)
        with pytest.raises(shoal.DeadlineExceeded, match="up to 1 ack "):
            await inbox.flush(deadline_s=0.5)
        await fake_broker.unbind(queue, key, discard=True)
        await inbox.flush()
