"""A message whose queue has left the inbox, while the program works on it, keeps its queue's name; a transaction that
acks it is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import shoal
from shoal import Broker, QueueOptions
from shoal.queue_names import QueueNames
from tests.client.calls import fresh, tagged, take, until
from tests.client.fake_cluster import FakeCluster

WAYS = ["detached", "attached again", "taken over"]


async def given(broker: Broker, way: str) -> tuple[str, shoal.Inbox]:
    """A queue with a message, and an inbox of it and another one. It is not open yet."""
    tag = fresh("tag")
    queue, other = tagged(tag, "jobs"), tagged(tag, "other")
    await broker.declare(queue, QueueOptions(exclusive="newest" if way == "taken over" else "none"))
    await broker.declare(other)
    await broker.send(queue, b"job")
    return queue, broker.consume([queue, other])


async def leave(way: str, broker: Broker, inbox: shoal.Inbox, queue: str) -> None:
    name = queue.encode()
    if way == "taken over":
        async with broker.consume(queue) as newer:
            await take(newer, 1)
            await until(lambda: name not in inbox._queues.values())
    else:
        await inbox.detach(queue)
        if way == "attached again":
            await inbox.attach(queue)


@pytest.mark.parametrize("way", WAYS)
async def test_a_message_keeps_the_name_of_a_queue_that_left_the_inbox(way: str, broker: Broker) -> None:
    queue, consuming = await given(broker, way)
    async with consuming as inbox:
        message = await inbox.get(20)
        before = repr(message)
        await leave(way, broker, inbox, queue)
        assert (message.queue, message.queue_bytes, repr(message)) == (queue, queue.encode(), before)
        assert [name for name, _ in message.parts] == [queue.encode()]
        await message.ack()
        await inbox.flush()


@pytest.mark.parametrize("way", WAYS)
async def test_a_transaction_that_acks_a_message_of_a_queue_that_left_the_inbox_is_refused(
    way: str, broker: Broker
) -> None:
    queue, consuming = await given(broker, way)
    async with consuming as inbox:
        message = await inbox.get(20)
        await leave(way, broker, inbox, queue)
        with pytest.raises(shoal.Conflict, match=r"queue \S+jobs\S* has left the inbox") as caught:
            async with broker.transaction() as tx:
                tx.publish(queue + "-results", b"result")
                tx.ack(message)
        assert caught.value.subject == queue


async def test_a_delivery_and_live_messages_keep_their_names(cluster: FakeCluster, fake_broker: Broker) -> None:
    queues, key = [fresh("queue") for _ in range(3)], cluster.key_of("s01")
    await fake_broker.declare(queues)
    for queue in queues:
        await fake_broker.bind(queue, key)
    async with fake_broker.consume(queues) as inbox:
        found: list[shoal.Delivery] = []
        deliveries = inbox.deliveries()
        for live in (False, True):
            await fake_broker.publish(key, b"x", live=live)
            while sum(len(one.queues) for one in found) < (6 if live else 3):
                found.append(await anext(deliveries))
        before = [(one.live, name) for one in found for name in one.queues]
        assert sorted(before) == sorted([(live, name) for live in (False, True) for name in queues])
        await inbox.detach(queues[1])
        assert [(one.live, name) for one in found for name in one.queues] == before
        assert [(one.live, message.queue) for one in found for message in one.messages()] == before
        with pytest.raises(shoal.Conflict):
            async with fake_broker.transaction() as tx:
                tx.ack(next(one for one in found if not one.live))


@pytest.mark.parametrize("handles", [[7], [9, 7, 8], []])
def test_names_are_found_by_handle(handles: Sequence[int]) -> None:
    queues = {7: b"seven", 8: b"eight"}
    names = QueueNames(handles, queues)
    queues.clear()
    found = {handle: names.of(handle) for handle in (6, 7, 8, 9)}
    assert found == {
        handle: {7: b"seven", 8: b"eight"}.get(handle, b"") if handle in handles else b"" for handle in found
    }
