"""What applications see, against any cluster: on the fake, over gRPC and in memory, and on a real one (conftest)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

import shoal
from shoal import Broker
from tests.client.calls import fresh, take


async def test_publish_reaches_a_bound_queue(broker: Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    offset = await broker.bind(queue, key)
    receipt = await broker.publish(key, b"hello", headers={"from": b"anna"})
    assert (receipt.key, receipt.offset, receipt.queues) == (key, offset, 1)
    async with broker.consume(queue) as inbox:
        (message,) = await take(inbox, 1)
        assert (message.queue, message.key, message.offset) == (queue, key, offset)
        assert (message.body, message.headers) == (b"hello", {"from": b"anna"})
        await message.ack()
        await inbox.flush()
    assert (await broker.describe(queue)).messages == 0


async def test_binds_many_keys_over_all_slices(broker: Broker) -> None:
    queue = fresh("queue")
    keys = [fresh("key") for _ in range(20)]
    await broker.declare(queue)
    offsets = await broker.bind(queue, keys)
    assert list(offsets) == keys
    for key in keys:
        await broker.publish(key, key.encode())
    async with broker.consume(queue) as inbox:
        messages = await take(inbox, len(keys))
    assert {(message.key, message.body, message.offset) for message in messages} == {
        (key, key.encode(), offsets[key]) for key in keys
    }


async def test_bind_by_another_client_finds_the_queue_at_its_home(
    connect: Callable[[], Broker], broker: Broker
) -> None:
    queue = fresh("queue")
    await broker.declare(queue)
    async with connect() as other:
        await other.bind(queue, [fresh("key") for _ in range(20)])
    assert len((await broker.describe(queue, bindings=True)).bindings) >= 20


async def test_bind_of_an_unknown_queue_is_refused(broker: Broker) -> None:
    with pytest.raises(shoal.NoSuchQueue, match="no-such"):
        await broker.bind(fresh("no-such"), [fresh("key") for _ in range(9)])


async def test_consume_of_an_unknown_queue_is_refused(broker: Broker) -> None:
    with pytest.raises(shoal.NoSuchQueue, match="no-such"):
        async with broker.consume(fresh("no-such")):
            pass


async def test_declare_with_other_options_conflicts(broker: Broker) -> None:
    queue = fresh("queue")
    await broker.declare(queue)
    with pytest.raises(shoal.Conflict):
        await broker.declare(queue, shoal.QueueOptions(expires_after_s=60))


async def test_single_publishes_in_flight_keep_their_order(broker: Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    first = await broker.bind(queue, key)
    futures = [broker.publish_nowait(key, b"%d" % number) for number in range(500)]
    receipts = await asyncio.gather(*futures)
    assert [receipt.offset for receipt in receipts] == list(range(first, first + 500))
    async with broker.consume(queue) as inbox:
        messages = await take(inbox, 500)
    assert [message.body for message in messages] == [b"%d" % number for number in range(500)]


async def test_publish_many_is_one_chunk(broker: Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    first = await broker.bind(queue, key)
    receipt = await broker.publish_many(key, [b"a", b"b", b"c"])
    assert (receipt.offset, receipt.messages) == (first, 3)
    async with broker.consume(queue) as inbox:
        delivery = await anext(inbox.deliveries())
        assert (delivery.key, delivery.first, delivery.bodies, delivery.queues) == (
            key,
            first,
            [b"a", b"b", b"c"],
            [queue],
        )
        await delivery.ack()


async def test_mandatory_publish_without_bindings_is_unroutable(broker: Broker) -> None:
    assert (await broker.publish(fresh("key"), b"x")).queues == 0
    with pytest.raises(shoal.Unroutable):
        await broker.publish(fresh("key"), b"x", mandatory=True)


async def test_a_publish_waits_for_its_time(broker: Broker) -> None:
    """The fake's clock stands; a real slice's goes on."""
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    later = datetime.now(UTC) + timedelta(hours=1)
    receipts = [
        await broker.publish(key, b"later", not_before=later),
        await broker.publish_nowait(key, b"later", not_before=later.timestamp()),
        await broker.publish_many(key, [b"later", b"later"], not_before=later),
    ]
    assert [(one.offset, one.queues, one.messages, one.delayed) for one in receipts] == [
        (0, 0, 1, True),
        (0, 0, 1, True),
        (0, 0, 2, True),
    ]
    receipt = await broker.publish(key, b"now")
    assert receipt.offset and not receipt.delayed
    assert [message.body for message in await broker.pull(queue, 9)] == [b"now"]
    with pytest.raises(shoal.Unroutable):
        await broker.publish(fresh("key"), b"x", mandatory=True, not_before=later)


async def test_a_key_with_a_history_gives_it_to_who_joins(broker: Broker) -> None:
    queue, keys = fresh("queue"), [fresh("key") for _ in range(3)]
    await broker.declare(queue)
    await broker.configure(keys, shoal.KeyOptions(history_messages=10, capacity_messages=20))
    for key in keys:
        receipts = [await broker.publish(key, b"%d" % number) for number in range(5)]
        assert [(one.offset, one.queues) for one in receipts] == [(offset, 0) for offset in range(1, 6)]
        with pytest.raises(shoal.ResourceExhausted) as refused:
            await broker.publish_many(key, [b"x"] * 16)
        assert (refused.value.subject, refused.value.limit, refused.value.value) == (key, 20, 21)
        await broker.bind(queue, key, start=shoal.Last(2))
    found = await broker.pull(queue, 100)
    assert sorted((one.key, one.body) for one in found) == sorted((key, body) for key in keys for body in (b"3", b"4"))
    assert (await broker.describe_key(keys[0])).options == shoal.KeyOptions(10, 0, 20, 0)
    await broker.configure(keys[0], shoal.KeyOptions())
    assert (await broker.describe_key(keys[0])).options == shoal.KeyOptions()
    with pytest.raises(shoal.InvalidName):
        await broker.configure(["fine", f"@{queue}"], shoal.KeyOptions(history_messages=1))


async def test_send_goes_to_the_direct_key(broker: Broker) -> None:
    queue = fresh("queue")
    await broker.declare(queue)
    await broker.send(queue, b"psst")
    async with broker.consume(queue) as inbox:
        (message,) = await take(inbox, 1)
    assert (message.key, message.body) == (f"@{queue}", b"psst")
    with pytest.raises(shoal.Unroutable):
        await broker.send(fresh("no-such"), b"psst")


async def test_unbind_ends_what_is_delivered_but_keeps_the_backlog(broker: Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    await broker.publish(key, b"before")
    end = await broker.unbind(queue, key)
    await broker.publish(key, b"after")
    messages = await broker.pull(queue, 10)
    assert [(message.body, message.offset) for message in messages] == [(b"before", end - 1)]


async def test_unbind_of_what_was_never_bound_does_nothing_on_any_slice(broker: Broker) -> None:
    queue, keys = fresh("queue"), [fresh("key") for _ in range(30)]
    await broker.declare(queue)
    assert await broker.unbind(queue, keys) == dict.fromkeys(keys, 0)
    with pytest.raises(shoal.NoSuchQueue):
        await broker.unbind(fresh("queue"), keys)


async def test_pull_takes_until_acked(broker: Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    await broker.publish_many(key, [b"a", b"b", b"c"])
    assert [message.body for message in await broker.peek(queue, 10)] == [b"a", b"b", b"c"]
    taken = await broker.pull(queue, 2)
    assert [message.body for message in taken] == [b"a", b"b"]
    await broker.ack(*taken)
    await broker.flush()
    assert (await broker.describe(queue)).messages == 1
    assert [message.body for message in await broker.pull(queue, 10)] == [b"c"]


async def test_unacked_messages_are_delivered_again_to_the_next_inbox(broker: Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    await broker.publish_many(key, [b"a", b"b", b"c"])
    async with broker.consume(queue) as inbox:
        messages = await take(inbox, 3)
        await messages[1].ack()
    async with broker.consume(queue) as inbox:
        again = await take(inbox, 2)
    assert [message.body for message in again] == [b"a", b"c"]
    assert all(message.redelivered for message in again)


async def bound_to_two_of_one_slice(broker: Broker) -> tuple[str, str, str]:
    """A queue, and two keys of one slice that it is bound to."""
    queue, first, owner_of = fresh("queue"), fresh("key"), broker._routing.map.current.owner_of
    await broker.declare(queue)
    keys = (fresh("key") for _ in range(1000))
    second = next(key for key in keys if owner_of(key.encode()) == owner_of(first.encode()))
    for key in (first, second):
        await broker.bind(queue, key)
    return queue, first, second


def lose_stream(broker: Broker, inbox: shoal.Inbox, key: str) -> None:
    stream = inbox._slices[broker._routing.map.current.owner_of(key.encode())].session._stream
    assert stream is not None
    stream.cancel()


async def test_flush_does_not_return_while_a_slice_lacks_an_ack(broker: Broker) -> None:
    queue, other, key = await bound_to_two_of_one_slice(broker)
    async with broker.consume(queue, window_messages=2) as inbox:
        await broker.publish_many(key, [b"1", b"2"])
        messages = await take(inbox, 2)
        await broker.publish_many(other, [b"3", b"4"])
        inbox.ack(*messages)
        lose_stream(broker, inbox, key)
        others = await take(inbox, 2)
        assert [message.body for message in others] == [b"3", b"4"], "they fill the window of the new stream"
        await inbox.flush()
        assert (await broker.describe(queue)).messages == 2, "the slice took acks of messages that could not come again"
        inbox.ack(*others)
        await inbox.flush()
        assert (await broker.describe(queue)).messages == 0


async def test_two_consumers_of_a_queue_that_flush_do_not_wait_for_each_other(broker: Broker) -> None:
    """What each had acked on a lost connection lay unread in the other one, until both deadlines; again and again."""
    queue, _, key = await bound_to_two_of_one_slice(broker)
    async with broker.consume(queue, window_messages=4) as one, broker.consume(queue, window_messages=4) as other:
        await broker.publish_many(key, [b"x"] * 8)
        taken = await take(one, 4), await take(other, 4)
        for inbox, messages in zip((one, other), taken, strict=True):
            inbox.ack(*messages[:2])
            lose_stream(broker, inbox, key)
        await asyncio.gather(one.flush(), other.flush())
        assert (await broker.describe(queue)).messages == 4
        for inbox, messages in zip((one, other), taken, strict=True):
            inbox.ack(*messages[2:])
        await asyncio.gather(one.flush(), other.flush())
        assert (await broker.describe(queue)).messages == 0


async def test_flush_returns_when_a_slice_has_the_acks_that_it_could_not_answer(broker: Broker) -> None:
    queue, other, key = await bound_to_two_of_one_slice(broker)
    async with broker.consume(queue, window_messages=4) as inbox:
        await broker.publish_many(key, [b"1", b"2"])
        messages = await take(inbox, 2)
        inbox.ack(*messages)
        await inbox._slices[broker._routing.map.current.owner_of(key.encode())].acks.sent()
        lose_stream(broker, inbox, key)
        await inbox.flush()
        assert (await broker.describe(queue)).messages == 0
        await broker.publish(other, b"3")
        assert [message.body for message in await take(inbox, 1)] == [b"3"], "what was acked does not come again"


async def test_one_delivery_for_many_queues(broker: Broker) -> None:
    queues, key = [fresh("queue") for _ in range(50)], fresh("key")
    await broker.declare(queues)
    await asyncio.gather(*(broker.bind(queue, key) for queue in queues))
    async with broker.consume(queues) as inbox:
        receipt = await broker.publish(key, b"all")
        assert receipt.queues == 50
        got: list[str] = []
        async with asyncio.timeout(10):
            async for delivery in inbox.deliveries():
                got += delivery.queues
                await delivery.ack()
                if len(got) == 50:
                    break
        await inbox.flush()
    assert sorted(got) == sorted(queues)
    assert (await broker.describe(queues[0])).messages == 0


async def test_queues_join_and_leave_an_inbox(broker: Broker) -> None:
    first, second, key = fresh("queue"), fresh("queue"), fresh("key")
    await broker.declare([first, second])
    for queue in (first, second):
        await broker.bind(queue, key)
    async with broker.consume(first) as inbox:
        await inbox.attach(second)
        await broker.publish(key, b"both")
        both = await take(inbox, 2)
        inbox.ack(*both)
        assert {message.queue for message in both} == {first, second}
        await inbox.detach(first)
        await broker.publish(key, b"one")
        (message,) = await take(inbox, 1)
        assert (message.queue, message.body) == (second, b"one")


async def test_drop_ends_a_queue_on_all_slices(broker: Broker) -> None:
    queue = fresh("queue")
    await broker.declare(queue)
    await broker.bind(queue, [fresh("key") for _ in range(9)])
    await broker.drop(queue)
    assert not (await broker.describe(queue)).exists
    with pytest.raises(shoal.NoSuchQueue):
        await broker.drop(queue)


async def test_a_described_key_has_its_head_and_its_queues(broker: Broker) -> None:
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    offset = await broker.bind(queue, key)
    await broker.publish(key, b"x")
    description = await broker.describe_key(key)
    assert (description.key, description.exists, description.head, description.queues) == (key, True, offset + 1, 1)


async def test_bind_from_earliest_sees_what_is_kept(broker: Broker) -> None:
    first, late, key = fresh("queue"), fresh("queue"), fresh("key")
    await broker.declare([first, late])
    offset = await broker.bind(first, key)
    await broker.publish_many(key, [b"a", b"b", b"c"])
    assert await broker.bind(late, key, start=shoal.EARLIEST) == offset
    assert [message.body for message in await broker.pull(late, 9)] == [b"a", b"b", b"c"]


async def test_bad_names_and_large_bodies_are_refused_before_sending(broker: Broker) -> None:
    with pytest.raises(shoal.InvalidName, match="300 bytes; the limit is 255"):
        await broker.declare("q" * 300)
    with pytest.raises(shoal.InvalidName, match="empty"):
        await broker.publish("", b"x")
    with pytest.raises(shoal.TooLarge, match="limit is 1048576"):
        await broker.publish("key", bytes((1 << 20) + 1))
    with pytest.raises(shoal.TooLarge, match="limit is 4096"):
        await broker.publish_many("key", [b""] * 4097)


async def test_purge_drops_the_backlog_of_all_slices_and_keeps_the_bindings(broker: Broker) -> None:
    queue, keys = fresh("queue"), [fresh("key") for _ in range(9)]
    await broker.declare(queue)
    await broker.bind(queue, keys)
    for key in keys:
        await broker.publish_many(key, [b"a", b"b"])
    assert await broker.purge(queue) == 18
    assert (await broker.describe(queue)).messages == 0
    await broker.publish(keys[0], b"c")
    assert [message.body for message in await broker.pull(queue, 9)] == [b"c"]
    with pytest.raises(shoal.NoSuchQueue):
        await broker.purge(fresh("no-such"))


async def test_a_queue_declared_anew_has_nothing_of_what_was_dropped(broker: Broker) -> None:
    queue, keys = fresh("queue"), [fresh("key") for _ in range(9)]
    await broker.declare(queue)
    await broker.bind(queue, keys)
    for key in keys:
        await broker.publish(key, b"before")
    await broker.drop(queue)
    await broker.declare(queue)
    await broker.bind(queue, keys[0])
    assert await broker.pull(queue, 9) == []
    assert [(await broker.publish(key, b"after")).queues for key in keys] == [1, *[0] * 8]


async def test_the_direct_key_is_a_binding_once_something_was_sent(broker: Broker) -> None:
    queue = fresh("queue")
    for _ in range(2):
        await broker.declare(queue)
        assert (await broker.describe(queue)).binding_count == 0
        assert (await broker.send(queue, b"x")).queues == 1
        found = await broker.describe(queue, bindings=True)
        assert (found.binding_count, [one.key for one in found.bindings]) == (1, [f"@{queue}"])
        await broker.drop(queue)


async def test_names_of_queues_come_in_pages_over_all_slices(broker: Broker) -> None:
    prefix = fresh("page")
    queues = [f"{prefix}-{number}" for number in range(5)]
    await broker.declare(queues)
    admin, found, after = shoal.Admin(broker), list[str | bytes](), ""
    for _ in range(3):
        page = await admin.queues(prefix, after, limit=2)
        found += page.items
        after = page.next
    assert (found, after) == (queues, "")
    assert len(await admin.partitions()) > 0
