"""Transactions: what applications see, on the fake over gRPC, in memory, and on a real cluster (conftest)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import shoal
from shoal import Broker
from tests.client.calls import fresh, tagged, take


async def elsewhere(broker: Broker, slice_name: str, word: str) -> str:
    """A name that is on another slice, as a key and as a queue's home."""
    owners = await shoal.Admin(broker).partitions()
    connection = broker.connection.map.current
    assert slice_name in owners
    while True:
        name = fresh(word)
        if slice_name not in (connection.owner_of(name.encode()), connection.owner_of(b"@" + name.encode())):
            return name


def slice_of(broker: Broker, key: str) -> str:
    return broker.connection.map.current.owner_of(key.encode())


async def test_all_of_a_transaction_is_done_and_each_step_has_its_result(broker: Broker) -> None:
    tag = fresh("room")
    queue, talk, other = tagged(tag, "queue"), tagged(tag, "talk"), tagged(tag, "other")
    async with broker.transaction() as tx:
        tx.declare(queue)
        bound = tx.bind(queue, talk)
        many = tx.bind(queue, [other, talk])
        first = tx.publish(talk, b"hello", headers={"from": b"anna"}, mandatory=True)
        second = tx.publish(talk, b"again")
        kept_by_none = tx.publish(tagged(tag, "empty"), b"x")
        left = tx.unbind(queue, other)
        with pytest.raises(RuntimeError, match="not committed"):
            _ = first.value
        assert "not committed" in repr(first)
    assert first.value == shoal.Receipt(talk, bound.value, 1, 0)
    assert second.value.offset == bound.value + 1
    assert (kept_by_none.value.offset, kept_by_none.value.queues) == (0, 0)
    assert list(many.value) == [other, talk] and many.value[talk] == bound.value
    assert left.value == many.value[other]
    async with broker.consume(queue) as inbox:
        messages = await take(inbox, 2)
    assert [(one.key, one.body, one.headers) for one in messages] == [
        (talk, b"hello", {"from": b"anna"}),
        (talk, b"again", {}),
    ]
    assert [one.key for one in (await broker.describe(queue, bindings=True)).bindings if one.key[0] != "@"] == [talk]


async def test_keys_are_configured_with_the_rest_or_not_at_all(broker: Broker) -> None:
    tag = fresh("room")
    key, other, options = tagged(tag, "talk"), tagged(tag, "other"), shoal.KeyOptions(history_messages=5)
    async with broker.transaction() as tx:
        tx.configure([key, other], options)
        first = tx.publish(key, b"kept by the history alone")
    assert first.value.offset > 0 and first.value.queues == 0
    assert {(await broker.describe_key(one)).options for one in (key, other)} == {options}
    with pytest.raises(shoal.Unroutable):
        async with broker.transaction() as tx:
            tx.configure(key, shoal.KeyOptions(history_messages=9))
            tx.publish(key, b"x", mandatory=True)
    assert (await broker.describe_key(key)).options == options
    with pytest.raises(shoal.ResourceExhausted, match=r"its capacity is 2|is full"):
        async with broker.transaction() as tx:
            tx.configure(key, shoal.KeyOptions(history_messages=1, capacity_messages=2))
            tx.publish(key, b"second")
            tx.publish(key, b"third")
    found = await broker.describe_key(key)
    assert (found.options, found.head) == (options, 2)
    async with broker.transaction() as tx:
        with pytest.raises(shoal.InvalidName):
            tx.configure([key, "@direct"], options)
        with pytest.raises(TypeError):
            tx.configure(key, 7)  # type: ignore[arg-type]
        with pytest.raises(shoal.OutOfRange):
            tx.configure(key, shoal.KeyOptions(-1))


async def test_nothing_is_sent_if_the_block_raises(broker: Broker) -> None:
    tag = fresh("room")
    queue, key = tagged(tag, "queue"), tagged(tag, "key")
    with pytest.raises(ZeroDivisionError):
        async with broker.transaction() as tx:
            tx.declare(queue)
            receipt = tx.publish(key, b"x")
            _ = 1 / 0
    assert not (await broker.describe(queue)).exists
    with pytest.raises(RuntimeError):
        _ = receipt.value
    async with broker.transaction():
        pass


async def test_a_refusal_leaves_no_trace(broker: Broker) -> None:
    tag = fresh("room")
    queue, key, new = tagged(tag, "queue"), tagged(tag, "key"), tagged(tag, "new")
    await broker.declare(queue)
    await broker.bind(queue, key)
    before = await broker.describe(queue, bindings=True)
    with pytest.raises(shoal.Unroutable):
        async with broker.transaction() as tx:
            tx.declare(new)
            tx.bind(new, key)
            receipt = tx.publish(key, b"x")
            tx.unbind(queue, key)
            tx.publish(tagged(tag, "nobody"), b"y", mandatory=True)
    with pytest.raises(shoal.Conflict):
        async with broker.transaction() as tx:
            tx.publish(key, b"x")
            tx.declare(queue, shoal.QueueOptions(expires_after_s=7))
    with pytest.raises(shoal.NoSuchQueue, match="nobody"):
        async with broker.transaction() as tx:
            tx.publish(key, b"x")
            tx.bind(tagged(tag, "nobody"), key)
    assert await broker.describe(queue, bindings=True) == before
    assert not (await broker.describe(new)).exists
    with pytest.raises(RuntimeError):
        _ = receipt.value
    assert (await broker.publish(key, b"first")).queues == 1


async def test_keys_of_two_slices_are_refused_before_anything_is_sent(broker: Broker) -> None:
    tag = fresh("room")
    queue, key = tagged(tag, "queue"), tagged(tag, "key")
    far = await elsewhere(broker, slice_of(broker, key), "far")
    await broker.declare(queue)
    await broker.bind(queue, key)
    reads: list[Callable[[shoal.Transaction], object]] = [
        lambda tx: tx.publish(far, b"x"),
        lambda tx: tx.bind(queue, [key, far]),
        lambda tx: tx.unbind(queue, far),
        lambda tx: tx.declare(far),
        lambda tx: tx.ack_done(queue, [shoal.Done(far, 1, 2)]),
    ]
    for step in reads:
        with pytest.raises(shoal.CrossSlice, match=f"{far} .*tag in braces"):
            async with broker.transaction() as tx:
                tx.publish(key, b"never")
                step(tx)
    assert (await broker.describe(queue)).messages == 0


async def test_a_queue_that_lives_elsewhere_is_bound_and_unbound(connect: Callable[[], Broker], broker: Broker) -> None:
    key = fresh("key")
    queue = await elsewhere(broker, slice_of(broker, key), "queue")
    await broker.declare(queue)
    async with broker.transaction() as tx:
        offset = tx.bind(queue, key)
        receipt = tx.publish(key, b"hello")
    assert (receipt.value.offset, receipt.value.queues) == (offset.value, 1)
    async with connect() as other:  # which knows nothing of the queue
        async with other.transaction() as tx:
            again = tx.bind(queue, key)
        assert again.value == offset.value
        async with other.transaction() as tx:
            left = tx.unbind(queue, key)
        assert left.value == receipt.value.offset + 1
        unknown = await elsewhere(broker, slice_of(broker, key), "unknown")
        with pytest.raises(shoal.NoSuchQueue, match="unknown"):
            async with other.transaction() as tx:
                tx.publish(key, b"never")
                tx.bind(unknown, key)
    async with broker.consume(queue) as inbox:
        assert [one.body for one in await take(inbox, 1)] == [b"hello"]


async def test_a_queue_that_was_dropped_and_declared_again_is_found_in_its_new_life(
    connect: Callable[[], Broker], broker: Broker
) -> None:
    key = fresh("key")
    queue = await elsewhere(broker, slice_of(broker, key), "queue")
    await broker.declare(queue)
    await broker.bind(queue, key)
    async with connect() as other:
        await other.drop(queue)
        await other.declare(queue)
    async with broker.transaction() as tx:
        tx.bind(queue, key)
        receipt = tx.publish(key, b"new life", mandatory=True)
    assert receipt.value.queues == 1
    assert (await broker.describe(queue)).messages == 1
    async with connect() as other:
        await other.drop(queue)
    with pytest.raises(shoal.NoSuchQueue):
        async with broker.transaction() as tx:
            tx.bind(queue, key)


async def test_of_two_consumers_with_the_same_message_one_commits(
    connect: Callable[[], Broker], broker: Broker
) -> None:
    tag = fresh("room")
    work, results = tagged(tag, "work"), tagged(tag, "results")
    await broker.declare([work, results])
    await broker.bind(work, work)
    await broker.bind(results, results)
    await broker.publish(work, b"job")
    async with connect() as slow:
        async with slow.consume(work) as inbox:
            (seen,) = await take(inbox, 1)
        async with broker.consume(work) as inbox:
            (again,) = await take(inbox, 1)
            assert again.offset == seen.offset
            async with broker.transaction() as tx:
                tx.publish(results, b"done by the second")
                tx.ack(again)
            await inbox.flush()
        with pytest.raises(shoal.Conflict, match=work):
            async with slow.transaction() as tx:
                tx.publish(results, b"done by the first")
                tx.ack(seen)
    assert (await broker.describe(work)).messages == 0
    async with broker.consume(results) as inbox:
        assert [one.body for one in await take(inbox, 1)] == [b"done by the second"]
    assert (await broker.describe(results)).messages == 1


@pytest.mark.parametrize("way", ["pulled", "consumed"])
async def test_a_message_of_an_earlier_life_of_its_queue_is_not_acked_in_the_next(broker: Broker, way: str) -> None:
    """There the same offset is owed again, and was acked in its place."""
    tag = fresh("room")
    queue, key, results = tagged(tag, "queue"), tagged(tag, "key"), tagged(tag, "results")
    await broker.configure(key, shoal.KeyOptions(history_messages=9))
    await broker.declare([queue, results])
    await broker.bind(queue, key)
    await broker.bind(results, results)
    await broker.publish(key, b"job")

    async def second_life() -> None:
        await broker.drop(queue)
        await broker.declare(queue)
        await broker.bind(queue, key, start=shoal.EARLIEST)

    async def work(message: shoal.Message) -> None:
        async with broker.transaction() as tx:
            tx.publish(results, b"done")
            tx.ack(message)

    if way == "pulled":
        (seen,) = await broker.pull(queue, 1)
        await second_life()
        with pytest.raises(shoal.Conflict, match="declared anew"):
            await work(seen)
        (again,) = await broker.pull(queue, 1)
        await work(again)
    else:
        async with asyncio.timeout(60), broker.consume(queue) as inbox:
            (seen,) = await take(inbox, 1)
            await second_life()
            with pytest.raises(shoal.Conflict, match="declared anew"):
                await work(seen)  # Perhaps before the inbox has heard of it.
            try:
                again = await inbox.get()
            except shoal.NoSuchQueue:
                again = await inbox.get()
            assert again.offset == seen.offset
            with pytest.raises(shoal.Conflict, match="declared anew"):
                await work(seen)
            await work(again)
            await inbox.flush()
    assert (await broker.describe(queue)).messages == 0
    assert (await broker.describe(results)).messages == 1


async def test_acks_open_the_window_and_are_known_to_the_inbox(broker: Broker) -> None:
    tag = fresh("room")
    queue, key = tagged(tag, "queue"), tagged(tag, "key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    for number in range(6):
        await broker.publish(key, b"%d" % number)
    async with broker.consume(queue, window_messages=2) as inbox:
        bodies = []
        for _ in range(3):
            messages = await take(inbox, 2)
            bodies += [one.body for one in messages]
            async with broker.transaction() as tx:
                tx.ack(*messages)
                tx.ack(messages[0])
        await inbox.flush()
    assert bodies == [b"%d" % number for number in range(6)]
    assert (await broker.describe(queue)).messages == 0


async def test_deliveries_pulled_messages_and_offsets_are_acked(broker: Broker) -> None:
    tag = fresh("room")
    queue, key = tagged(tag, "queue"), tagged(tag, "key")
    await broker.declare(queue)
    first = await broker.bind(queue, key)
    await broker.publish_many(key, [b"a", b"b"])
    async with broker.consume(queue) as inbox:
        delivery = await anext(inbox.deliveries())
        async with broker.transaction() as tx:
            tx.ack(delivery)
    await broker.publish_many(key, [b"c", b"d", b"e"])
    pulled = await broker.pull(queue, 1)
    async with broker.transaction() as tx:
        tx.ack(*pulled)
        tx.ack_done(queue, [shoal.Done(key, first + 3, first + 4), shoal.Done(key, first + 4, first + 5)])
    assert (await broker.describe(queue)).messages == 0
    with pytest.raises(shoal.OutOfRange):
        async with broker.transaction() as tx:
            tx.ack_done(queue, [shoal.Done(key, first + 5, first + 9)])


async def test_publishes_keep_their_order_with_those_before_and_after(broker: Broker) -> None:
    tag = fresh("room")
    queue, key = tagged(tag, "queue"), tagged(tag, "key")
    await broker.declare(queue)
    first = await broker.bind(queue, key)
    before = [broker.publish_nowait(key, b"before") for _ in range(20)]
    async with broker.transaction() as tx:
        within = [tx.publish(key, b"within") for _ in range(5)]
    after = await broker.publish(key, b"after")
    offsets = [(await one).offset for one in before] + [one.value.offset for one in within] + [after.offset]
    assert offsets == list(range(first, first + 26))


async def test_wrong_use_is_told(broker: Broker) -> None:
    key = fresh("key")
    tx = broker.transaction()
    with pytest.raises(RuntimeError, match="within its block"):
        tx.publish(key, b"x")
    async with tx:
        with pytest.raises(TypeError, match="ack takes messages"):
            tx.ack("message")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            tx.publish(key, "text")  # type: ignore[arg-type]
        with pytest.raises(shoal.TooLarge):
            tx.publish(key, bytes((1 << 20) + 1))
        with pytest.raises(shoal.InvalidName):
            tx.bind("", key)
        with pytest.raises(shoal.OutOfRange, match="hold none"):
            tx.ack_done("q", [shoal.Done(key, 4, 4)])
        with pytest.raises(shoal.OutOfRange, match="hold none"):
            tx.ack_done("q", [shoal.Done(key, 0, 4)])
        with pytest.raises(TypeError):
            tx.unbind("q", key, discard=1)  # type: ignore[call-overload]
    with pytest.raises(RuntimeError, match="within its block"):
        tx.publish(key, b"x")
    with pytest.raises(RuntimeError, match="one block"):
        async with tx:
            pass


async def test_a_cancelled_block_sends_nothing(broker: Broker) -> None:
    tag = fresh("room")
    queue = tagged(tag, "queue")
    begun = asyncio.Event()

    async def block() -> None:
        async with broker.transaction() as tx:
            tx.declare(queue)
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (await broker.describe(queue)).exists
