"""An inbox that is full: answers are not stuck behind unread deliveries, and memory stays bounded (correctness H3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import shoal
from shoal.inbox_buffer import InboxBuffer
from tests.client.calls import bound, until
from tests.client.fake_cluster import FakeCluster

BODY = bytes(20_000)


async def full(broker: shoal.Broker, cluster: FakeCluster, messages: int) -> tuple[str, str]:
    """A queue with a backlog of messages, many times what the inboxes here hold."""
    queue, key = await bound(broker, cluster)
    for _ in range(messages):
        await broker.publish(key, BODY)
    return queue, key


async def test_acks_are_flushed_while_the_buffer_is_full(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, _ = await full(fake_broker, cluster, 100)
    async with asyncio.timeout(20), fake_broker.consume(queue, buffer_bytes=50_000) as inbox:
        for _ in range(100):
            await (await anext(inbox)).ack()
            await inbox.flush()
    assert (await fake_broker.describe(queue)).messages == 0


async def test_queues_join_and_leave_while_the_buffer_is_full(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await full(fake_broker, cluster, 100)
    await fake_broker.declare("second")
    await fake_broker.bind("second", key)
    async with asyncio.timeout(20), fake_broker.consume(queue, buffer_bytes=50_000) as inbox:
        await anext(inbox)
        await inbox.attach("second")
        await inbox.detach(queue)
        await fake_broker.publish(key, b"for the second")
        while (message := await anext(inbox)).body != b"for the second":
            await message.ack()
        assert message.queue == "second"


async def test_flush_ends_at_its_deadline_and_names_the_slice(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, _ = await full(fake_broker, cluster, 2)
    async with fake_broker.consume(queue) as inbox:
        await (await anext(inbox)).ack()
        cluster.slices["s01"].answering.clear()
        with pytest.raises(shoal.DeadlineExceeded, match="acks at slice s01: no answer"):
            await inbox.flush(deadline_s=0.2)
        cluster.slices["s01"].answering.set()
        await inbox.flush()
    assert (await fake_broker.describe(queue)).messages == 1


async def test_flush_of_a_connection_ends_at_its_deadline(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    _, key = await bound(fake_broker, cluster)
    cluster.slices["s01"].answering.clear()
    future = fake_broker.publish_nowait(key, b"x")
    with pytest.raises(shoal.DeadlineExceeded, match="flush"):
        await fake_broker.flush(deadline_s=0.1)
    cluster.slices["s01"].answering.set()
    await fake_broker.flush()
    assert (await future).offset == 1


async def test_what_comes_while_an_answer_is_awaited_is_bounded(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.inbox_buffer.INBOX_EXCESS_BYTES", 200_000)
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    async with fake_broker.consume(queue, buffer_bytes=50_000) as inbox:
        slice_.ignored = {"acks"}
        await fake_broker.publish(key, BODY)
        await (await anext(inbox)).ack()
        flushing = asyncio.ensure_future(inbox.flush(deadline_s=5))
        for _ in range(500):
            await fake_broker.publish(key, BODY)
        await until(lambda: slice_.unsent_responses > 5)
        assert 200_000 < inbox._buffer.bytes < 50_000 + 200_000 + 2 * len(BODY)
        flushing.cancel()
        slice_.ignored = set()


async def test_what_waited_for_room_is_let_go_once_it_has_it() -> None:
    class Held:
        size_bytes, live, key_bytes, handles, end = 100, False, b"k", (1,), 2

    buffer: Any = InboxBuffer({1: b"q"}, 100)

    async def put_all() -> None:
        for _ in range(50):
            await buffer.put(Held())

    async def take_all() -> None:
        taken = 0
        while taken < 50:
            await asyncio.sleep(0)
            while buffer:
                buffer.take()
                taken += 1

    await asyncio.wait_for(asyncio.gather(put_all(), take_all()), 30)
    assert not buffer._waiting
