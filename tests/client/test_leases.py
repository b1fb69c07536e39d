"""Pull, ack and nack without a session, as applications see it: on fakes, and on a real cluster (conftest)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

import shoal
import shoal.testing
from tests.client.calls import fresh, new_key, take

LEASE_MS = 60_000
WAIT_S = 30


async def bound(broker: shoal.Broker, keys: int = 1) -> tuple[str, list[str]]:
    queue, names = fresh("queue"), [await new_key(broker) for _ in range(keys)]
    await broker.declare(queue)
    await broker.bind(queue, names)
    return queue, names


def done(message: shoal.Message) -> shoal.Done:
    return shoal.Done(message.key, message.offset, message.offset + 1)


async def pulled(leases: shoal.Leases, queue: str, lease_ms: int = LEASE_MS) -> list[shoal.Message]:
    """What comes within the time."""
    async with asyncio.timeout(WAIT_S):
        while not (found := await leases.pull(queue, 100, lease_ms=lease_ms)):
            pass
    return found


async def test_what_is_leased_is_acked_by_anyone(connect: Callable[[], shoal.Broker]) -> None:
    async with connect() as broker, connect() as other:
        leases, others = shoal.Leases(broker), shoal.Leases(other)
        queue, keys = await bound(broker, 12)
        for key in keys:
            await broker.publish_many(key, [b"one", b"two"])
        before, missing = await leases.backlogs([queue, fresh("nobody")])
        assert (before.messages, missing.exists) == (24, False)
        assert len(before.slices) > 1, "the keys lie on several slices"
        found = await leases.pull(queue, 100, lease_ms=LEASE_MS)
        assert len(found) == 24
        assert await others.pull(queue, 100, lease_ms=LEASE_MS) == [], "what is leased is given to no other"
        await others.ack(queue, [shoal.Done(key, 1, 3) for key in keys])
        assert (await leases.backlogs([queue]))[0].messages == 0
        await others.ack(queue, [shoal.Done(key, 1, 3) for key in keys])


async def gap_of_what_is_gone(broker: shoal.Broker, queue: str, key: str, offset: int) -> None:
    """The queue has nothing to get any more, and hears of it."""
    heard: list[shoal.Gap] = []
    leases = shoal.Leases(broker)
    async with asyncio.timeout(WAIT_S):
        while (await leases.backlogs([queue]))[0].messages:
            pass
        assert await leases.pull(queue, 10, lease_ms=LEASE_MS, on_gap=heard.append) == []
    assert [(gap.key, gap.first, gap.end, gap.why) for gap in heard] == [(key, offset, offset + 1, "expired")]


async def test_gaps_are_told_where_all_messages_are_gone(broker: shoal.Broker, request: pytest.FixtureRequest) -> None:
    if "[real]" not in request.node.name:
        return  # A fake has no clock: see the next test.
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    receipt = await broker.publish(key, b"x", ttl=0.001)
    await gap_of_what_is_gone(broker, queue, key, receipt.offset)


async def test_a_fake_tells_gaps_where_all_messages_are_gone() -> None:
    cluster = shoal.testing.FakeCluster()
    async with cluster.connect() as broker:
        await broker.declare("q")
        await broker.bind("q", "k")
        await broker.publish("k", b"1", ttl=5)
        for one in cluster.slices.values():
            one.state.expire()
        await gap_of_what_is_gone(broker, "q", "k", 1)


async def test_a_lease_that_is_over_gives_its_messages_again(broker: shoal.Broker) -> None:
    queue, (key,) = await bound(broker)
    leases = shoal.Leases(broker)
    await broker.publish(key, b"x")
    (first,) = await leases.pull(queue, 1, lease_ms=50)
    (again,) = await pulled(leases, queue)
    assert (again.offset, again.redelivered) == (first.offset, 1)
    await leases.ack(queue, [done(again)])
    assert (await broker.describe(queue)).messages == 0


async def test_a_pull_takes_no_more_than_was_asked_for(broker: shoal.Broker) -> None:
    queue, (key,) = await bound(broker)
    leases = shoal.Leases(broker)
    await broker.publish_many(key, [b"x"] * 3)
    for _ in range(7):
        await broker.publish(key, b"x" * 100)
    assert [one.offset for one in await leases.pull(queue, 3, lease_ms=LEASE_MS)] == [1, 2, 3]
    found = await leases.pull(queue, 100, lease_ms=LEASE_MS, bytes_max=250)
    assert 0 < len(found) < 7 and [one.offset for one in found] == list(range(4, 4 + len(found)))


async def test_an_ack_by_name_counts_for_an_attached_session(broker: shoal.Broker) -> None:
    queue, (key,) = await bound(broker)
    leases = shoal.Leases(broker)
    async with asyncio.timeout(WAIT_S), broker.consume(queue, window_messages=1) as inbox:
        await broker.publish(key, b"one")
        await broker.publish(key, b"two")
        first = await anext(inbox)
        await leases.ack(queue, [done(first)])
        second = await anext(inbox)
        assert second.body == b"two", "the ack opened the window"
        await leases.nack(queue, [done(second)])
    assert [one.body for one in await pulled(leases, queue)] == [b"two"]


async def test_a_nacked_lease_comes_to_a_session_after_its_delay(broker: shoal.Broker) -> None:
    queue, (key,) = await bound(broker)
    leases = shoal.Leases(broker)
    await broker.publish(key, b"x")
    (message,) = await leases.pull(queue, 1, lease_ms=LEASE_MS)
    async with broker.consume(queue) as inbox:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        await leases.nack(queue, [done(message)], delay_s=0.2)
        (again,) = await take(inbox, 1)
        assert loop.time() - begun_s >= 0.2 and again.redelivered == 1
        await again.ack()
        await inbox.flush()
    assert (await broker.describe(queue)).messages == 0


async def test_a_block_of_process_does_not_begin_for_what_is_leased(broker: shoal.Broker) -> None:
    """Such a message is acked by its name only: the work would be done, and the message given again."""
    queue, (key,) = await bound(broker)
    await broker.publish(key, b"job")
    (message,) = await pulled(shoal.Leases(broker), queue)
    with pytest.raises(RuntimeError, match=r"acked with Leases\.ack"):
        async with message.process():
            pytest.fail("the block began")


async def test_what_cannot_be_pulled_is_named(broker: shoal.Broker) -> None:
    leases, queue = shoal.Leases(broker), fresh("queue")
    with pytest.raises(shoal.NoSuchQueue):
        await leases.pull(queue, 1, lease_ms=LEASE_MS)
    await broker.declare(queue, shoal.QueueOptions(exclusive="newest"))
    await broker.send(queue, b"x")
    async with broker.consume(queue):
        with pytest.raises(shoal.Conflict):
            await leases.pull(queue, 1, lease_ms=LEASE_MS)


async def test_a_leased_message_is_nacked_by_its_name(broker: shoal.Broker) -> None:
    queue, (key,) = await bound(broker)
    await broker.publish(key, b"a")
    leases = shoal.Leases(broker)
    (message,) = await leases.pull(queue, 1, lease_ms=600_000)
    with pytest.raises(RuntimeError, match=r"Leases\.nack"):
        await message.nack()
    done = shoal.Done(key, message.offset, message.offset + 1)
    await leases.nack(queue, [done])
    (again,) = await leases.pull(queue, 1, lease_ms=600_000)
    assert again.redelivered == 1
    with pytest.raises(shoal.OutOfRange, match="delay_s"):
        await leases.nack(queue, [done], delay_s=1e9)
    await leases.ack(queue, [done])
    await leases.nack(queue, [done])
    assert await leases.pull(queue, 1, lease_ms=1000) == []


async def test_what_the_first_slice_gave_is_returned_where_the_next_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = shoal.testing.FakeCluster(["s01", "s02"])

    async def refuse(*_: object) -> None:
        raise shoal.PermissionDenied("not you")

    async with cluster.connect() as broker:
        await broker.declare("q")
        await broker.bind("q", keys := [cluster.key_of("s01"), cluster.key_of("s02")])
        for key in keys:
            await broker.publish(key, b"x")
        leases = shoal.Leases(broker)
        monkeypatch.setattr(cluster.slices["s02"], "Pull", refuse)
        assert [one.key for one in await leases.pull("q", 9, lease_ms=LEASE_MS)] == keys[:1]
        with pytest.raises(shoal.PermissionDenied):
            await leases.pull("q", 9, lease_ms=LEASE_MS)


async def test_a_queue_is_as_large_as_it_was_while_a_slice_that_may_have_most_of_it_is_silent() -> None:
    async with shoal.testing.FakeCluster().connect() as broker:
        leases = shoal.Leases(broker)
        sizes = []
        for bindings, silent in ((5, False), (2, True), (9, True), (None, True), (2, False), (None, False)):
            leases._note_bindings(b"q", bindings, silent)
            sizes.append(leases.bindings_of(b"q"))
        assert sizes == [5, 5, 9, 9, 2, None]
