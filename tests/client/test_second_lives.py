"""A queue's second life, and what is bound again, reach the consumer that knew the first (correctness M5, M7)."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from shoal.messages import Delivery
from shoal_contract.options import DURABLE
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import WAIT_S, bound, take, take_anew, until
from tests.client.fake_cluster import FakeCluster


async def second_life(broker: shoal.Broker, queue: str, key: str) -> None:
    await broker.drop(queue)
    await broker.declare(queue)
    await broker.bind(queue, key, start=shoal.EARLIEST)


@pytest.mark.parametrize("acked", [True, False])
async def test_a_second_life_begins_anew_on_the_same_stream(
    cluster: FakeCluster, fake_broker: shoal.Broker, acked: bool
) -> None:
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue) as inbox:
        first = await take(inbox, 3)
        if acked:
            inbox.ack(*first)
            await inbox.flush()
        await second_life(fake_broker, queue, key)
        again = await take_anew(inbox, 3)
        assert [message.body for message in again] == [b"1", b"2", b"3"]
        inbox.ack(*again)
        await inbox.flush()
    assert (await fake_broker.describe(queue)).messages == 0


async def test_acks_of_the_first_life_do_not_count_for_the_second(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue) as inbox:
        first = await take(inbox, 3)
        await second_life(fake_broker, queue, key)
        again = await take_anew(inbox, 3)
        inbox.ack(*first)
        await inbox.flush()
        assert (await fake_broker.describe(queue)).messages == 3
        inbox.ack(again[0])
        await inbox.flush()
    assert (await fake_broker.describe(queue)).messages == 2


async def test_acks_and_nacks_of_the_first_life_end_no_work_on_the_second(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """Messages of both lives may have the same offsets: a drain waits for those of the second."""
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.configure(key, shoal.KeyOptions(history_messages=9))
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue, drop_repeats=False) as inbox:
        first = await take(inbox, 3)
        await second_life(fake_broker, queue, key)
        again = await take_anew(inbox, 3)
        assert [message.offset for message in again] == [message.offset for message in first]
        await first[0].ack()
        await first[1].nack()
        assert sum(inbox._unacked()) == 3
        inbox.ack(*again)
        await inbox.drain()


@pytest.mark.parametrize("drop_repeats", [True, False])
async def test_nacks_of_the_second_life_count_beside_acks_of_the_first_that_are_not_answered(
    cluster: FakeCluster, fake_broker: shoal.Broker, drop_repeats: bool
) -> None:
    """Such a nack was taken for one of a message that was acked, and the message was silent until the session ended."""
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.configure(key, shoal.KeyOptions(history_messages=9))
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue, drop_repeats=drop_repeats) as inbox:
        first = await take(inbox, 3)
        slice_.ignored = {"acks"}
        inbox.ack(*first)
        await until(lambda: any(frame.HasField("acks") for frame in slice_.frames))
        slice_.ignored = set()
        await second_life(fake_broker, queue, key)
        for message in await take_anew(inbox, 3):
            await message.nack()
        again = await take(inbox, 3)
        assert [(message.body, message.redelivered) for message in again] == [(b"1", 1), (b"2", 1), (b"3", 1)]
        inbox.ack(*again)
        async with asyncio.timeout(WAIT_S):
            while (await fake_broker.describe(queue)).messages:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.01)
        slice_.cut()  # Else the end waits for the answer to the first acks.


async def test_a_nack_that_is_on_its_way_brings_back_nothing_of_the_next_life(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """Nacks that wait to be sent when the next life is told are sent as they were meant."""
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.configure(key, shoal.KeyOptions(history_messages=9))
    await fake_broker.publish(key, b"1")
    async with fake_broker.consume(queue) as inbox:
        (first,) = await take(inbox, 1)
        part, session = inbox._slices["s01"], slice_._sessions[-1]
        slice_.ignored = {"nacks"}
        await first.nack()
        await part.delivered(wire.SessionResponse(resets=[1]))  # Before the nack is sent: it goes first.
        await until(lambda: any(frame.HasField("nacks") for frame in slice_.frames))
        (frame,) = (frame for frame in slice_.frames if frame.HasField("nacks"))
        assert frame.nacks.HasField("resets_seen") and frame.nacks.resets_seen == 0
        slice_.ignored = set()
        await second_life(fake_broker, queue, key)
        (again,) = await take_anew(inbox, 1)
        slice_._answer(session, frame)
        slice_.pump()
        with pytest.raises(shoal.DeadlineExceeded):
            await inbox.get(timeout=0.1)  # It is the program's.
        await again.nack()
        assert (await inbox.get(timeout=WAIT_S)).redelivered == 1
        slice_.cut()  # Else the end waits for the answer to the first nack.


async def test_acks_of_a_queue_that_leaves_are_forgotten_with_its_life(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """It is still attached until what it was given is back: such an ack, sent later, was taken for the next life."""
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish(key, b"1")
    async with fake_broker.consume(queue) as inbox:
        (first,) = await take(inbox, 1)
        await first.ack()
        part = inbox._slices["s01"]
        part.take_out({1: inbox._queues.pop(1)})
        await part.delivered(wire.SessionResponse(resets=[1]))
        assert not list(part.acks.pending())


async def test_what_was_not_taken_of_the_first_life_gives_back_nothing_of_the_second(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.configure(key, shoal.KeyOptions(history_messages=9))
    await fake_broker.publish(key, b"1")
    async with fake_broker.consume(queue, drop_repeats=False) as inbox:
        await until(lambda: bool(inbox._buffer))
        earlier = inbox._buffer.take()
        await second_life(fake_broker, queue, key)
        (message,) = await take_anew(inbox, 1)
        assert isinstance(earlier, Delivery) and (earlier.first, message.offset) == (1, 1)
        earlier.give_back()
        await inbox.flush()
        with pytest.raises(shoal.DeadlineExceeded):
            await inbox.get(timeout=0.1)  # It is the program's.
        await message.ack()
        await inbox.flush()
        earlier.note_handed_out()
        assert not any(inbox._unacked()), "a drain does not wait for what is gone"
    assert (await fake_broker.describe(queue)).messages == 0


@pytest.mark.parametrize("absent", [True, False])
async def test_a_second_life_that_began_while_the_stream_was_lost(
    cluster: FakeCluster, fake_broker: shoal.Broker, absent: bool
) -> None:
    """The slice comes back with another life of the queue; or without it, and it is declared later."""
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue) as inbox:
        await take(inbox, 3)
        await slice_.stop()
        await until(lambda: bool(inbox._slices["s01"].session.away))
        slice_.state.queues.drop(queue.encode(), 0)
        slice_.state.take_dropped()
        if not absent:
            slice_.state.queues.declare(queue.encode(), DURABLE, 0)
        await slice_.start()
        await until(lambda: inbox._slices["s01"].attachments.complete)
        await fake_broker.declare(queue)
        await fake_broker.bind(queue, key, start=shoal.EARLIEST)
        assert [message.body for message in await take_anew(inbox, 3)] == [b"1", b"2", b"3"]


async def test_deliveries_that_come_before_the_life_is_known_wait_for_it(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with fake_broker.consume(queue) as inbox:
        await take(inbox, 2)
        slice_.late_attached = True  # The answer to an attach comes behind the first deliveries.
        slice_.cut()
        slice_.state.queues.drop(queue.encode(), 0)
        slice_.state.queues.declare(queue.encode(), DURABLE, 0)
        slice_.state.take_dropped()
        await fake_broker.bind(queue, key, start=shoal.EARLIEST)
        assert [message.body for message in await take_anew(inbox, 2)] == [b"1", b"2"]
        await fake_broker.publish(key, b"3")
        assert [message.body for message in await take(inbox, 1)] == [b"3"]


async def test_the_same_life_after_a_lost_stream_is_not_handed_out_again(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 3)
        for _ in range(3):
            slice_.cut()
            await until(lambda: inbox._slices["s01"].attachments.complete and slice_.session_count > 1)
        await fake_broker.publish(key, b"4")
        (last,) = await take(inbox, 1)
        assert last.body == b"4"
        inbox.ack(*messages, last)
        await inbox.flush()
    assert (await fake_broker.describe(queue)).messages == 0


async def test_what_is_bound_again_after_it_was_acked_is_news(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue) as inbox:
        inbox.ack(*await take(inbox, 3))
        await inbox.flush()
        await fake_broker.unbind(queue, key)
        await fake_broker.publish(key, b"nobody's")
        await fake_broker.bind(queue, key, start=shoal.EARLIEST)
        again = await take(inbox, 3)
        assert [message.body for message in again] == [b"1", b"2", b"3"]
        inbox.ack(*again)
        await inbox.flush()
    assert (await fake_broker.describe(queue)).messages == 0


async def test_what_was_handed_out_and_not_acked_stays_a_repeat(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue) as inbox:
        first = await take(inbox, 3)
        await fake_broker.unbind(queue, key, discard=True)
        await fake_broker.bind(queue, key, start=shoal.EARLIEST)
        await fake_broker.publish(key, b"4")
        assert [message.body for message in await take(inbox, 1)] == [b"4"]
        inbox.ack(*first)
        await inbox.flush()
    assert (await fake_broker.describe(queue)).messages == 1


async def test_a_cancelled_anext_takes_no_message(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    count = 3 * shoal.limits.MESSAGES_PER_TURN_MAX
    await fake_broker.publish_many(key, [b"%d" % number for number in range(count)])
    got: list[bytes] = []
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue, window_messages=count) as inbox:
        while len(got) < count:
            one = asyncio.ensure_future(anext(inbox))
            await asyncio.sleep(0)
            if not one.cancel():
                got.append(one.result().body)
            else:
                await asyncio.wait([one])
    assert got == [b"%d" % number for number in range(count)]


async def test_an_ack_without_effect_says_so(cluster: FakeCluster) -> None:
    async with shoal.connect(cluster.redirectors[0].address) as broker:
        queue, key = await bound(broker, cluster)
        await broker.publish_many(key, [b"1", b"2", b"3"])
        async with broker.consume(queue, window_messages=1) as inbox:
            (message,) = await take(inbox, 1)
        with pytest.raises(shoal.Unavailable, match="the inbox is closed; what it had unacked is given again"):
            await message.ack()
        with pytest.raises(shoal.Unavailable, match="the inbox is closed; ask the broker for another one"):
            await inbox.__aenter__()
        with pytest.raises(shoal.Unavailable, match="the inbox is not open"):
            await inbox.attach("q")
        (pulled,) = await broker.pull(queue, 1)
    with pytest.raises(shoal.Unavailable, match="the connection is closed"):
        await pulled.ack()
    with pytest.raises(shoal.Unavailable, match=r"call shoal\.connect\(\.\.\.\) again"):
        await broker.__aenter__()


@pytest.mark.parametrize("drop_repeats", [True, False])
async def test_nothing_is_said_of_a_queue_whose_life_is_not_known(
    cluster: FakeCluster, fake_broker: shoal.Broker, drop_repeats: bool
) -> None:
    """Acks of what came before, and doubts of a queue that leaves, would end messages of a life that began while the
    stream was lost."""
    slice_ = cluster.slices["s01"]
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with fake_broker.consume(queue, drop_repeats=drop_repeats) as inbox:
        first, second = await take(inbox, 2)
        at_slice = inbox._slices["s01"]
        slice_.ignored = {"acks"}
        inbox.ack(first)
        await until(lambda: any(frame.HasField("acks") for frame in slice_.frames))
        slice_.ignored, seen = {"attach"}, len(slice_.frames)
        slice_.cut()
        await until(lambda: any(frame.HasField("attach") for frame in slice_.frames[seen:]))
        await second_life(fake_broker, queue, key)
        inbox.ack(second)
        assert not at_slice.acks
        if at_slice.repeats is not None:
            assert at_slice.repeats.in_doubt
            at_slice.take_out({inbox._handles[queue.encode()]: queue.encode()})
            assert not at_slice.repeats.in_doubt
        slice_.ignored = set()
