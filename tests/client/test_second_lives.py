"""A queue's second life, and what is bound again, reach the consumer that knew the first (correctness M5, M7)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import shoal
from shoal import held_back
from shoal.attachments import Attachments
from shoal.gaps import GapNews
from shoal.held_back import HeldBack
from shoal.messages import Delivery
from shoal.testing.fake_state import Binding
from shoal_contract.chunk import encode_chunk
from shoal_contract.limits import FIRST_OFFSET
from shoal_contract.options import DURABLE
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import bound, until
from tests.client.fake_cluster import FakeCluster

WAIT_S = 60


async def take(inbox: shoal.Inbox, count: int) -> list[shoal.Message]:
    async with asyncio.timeout(WAIT_S):
        return [await anext(inbox) for _ in range(count)]


async def take_anew(inbox: shoal.Inbox, count: int) -> list[shoal.Message]:
    """Takes messages of a queue's second life. That the first one ended may be told before."""
    async with asyncio.timeout(WAIT_S):
        try:
            return [await anext(inbox)] + await take(inbox, count - 1)
        except shoal.NoSuchQueue:
            return await take(inbox, count)


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


@pytest.mark.parametrize("acked", [False, True])
async def test_a_second_life_begins_anew_where_too_much_comes_before_its_answer(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, acked: bool
) -> None:
    """Past the bound of what is held back, its messages were taken for repeats of the first life, and dropped: they
    came once the session ended."""
    monkeypatch.setattr(held_back, "INBOX_BYTES_MAX", 0)
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with fake_broker.consume(queue) as inbox:
        first = await take(inbox, 2)
        slice_.late_attached = True
        if acked:
            slice_.ignored = {"acks"}
            inbox.ack(*first)
            await until(lambda: any(frame.HasField("acks") for frame in slice_.frames))
            slice_.ignored = set()
        slice_.cut()
        slice_.state.queues.drop(queue.encode(), 0)
        slice_.state.queues.declare(queue.encode(), DURABLE, 0)
        slice_.state.take_dropped()
        slice_.state.keys[key.encode()].bindings[queue.encode()] = Binding(FIRST_OFFSET)
        second = await take_anew(inbox, 2)
        assert [message.body for message in second] == [b"1", b"2"]
        inbox.ack(*second)
        if acked:
            with pytest.raises(shoal.Unavailable, match="lost with a connection"):
                await inbox.flush()
        await inbox.flush()
        assert (await fake_broker.describe(queue)).messages == 0


@pytest.mark.parametrize("stream_lost", [False, True])
async def test_the_same_life_goes_on_where_too_much_comes_before_its_answer(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, stream_lost: bool
) -> None:
    """What the program has comes again, as it is not known whether it is the same; acks of it count from then on, also
    after another lost stream."""
    monkeypatch.setattr(held_back, "INBOX_BYTES_MAX", 0)
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with fake_broker.consume(queue) as inbox:
        await take(inbox, 2)
        slice_.late_attached = True
        slice_.cut()
        again = await take(inbox, 2)
        assert [message.body for message in again] == [b"1", b"2"]
        await until(lambda: inbox._slices["s01"].attachments.complete)
        if stream_lost:
            slice_.late_attached = False
            slice_.cut()
            await until(lambda: not inbox._slices["s01"].attachments.complete)
            await until(lambda: inbox._slices["s01"].attachments.complete)
        inbox.ack(*again)
        await inbox.flush()
        await fake_broker.publish(key, b"3")
        assert [message.body for message in await take(inbox, 1)] == [b"3"]
        assert (await fake_broker.describe(queue)).messages == 1


async def test_what_was_held_back_of_a_life_goes_with_it(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    """A slice delivers before it answers the attach, and the queue is dropped between the two."""
    slice_ = cluster.slices["s01"]
    queue, key = await bound(fake_broker, cluster)
    async with fake_broker.consume(queue) as inbox:
        handle, session = inbox._handles[queue.encode()], inbox._slices["s01"].session
        slice_.ignored, seen = {"attach"}, len(slice_.frames)
        slice_.cut()
        await until(lambda: any(frame.HasField("attach") for frame in slice_.frames[seen:]))
        asked = next(frame for frame in slice_.frames[seen:] if frame.HasField("attach"))
        outbox = next(one for one in slice_._sessions if one.producer == session._open.producer).outbox
        outbox.put_nowait(wire.SessionResponse(deliveries=[delivery(key, 1, handle)]))
        outbox.put_nowait(wire.SessionResponse(resets=[handle]))
        told = wire.Attached(absent=[handle], lives=[0], tells_nacks_taken=True)
        outbox.put_nowait(wire.SessionResponse(answers=[wire.Answer(sequence=asked.sequence, attached=told)]))
        await until(lambda: inbox._slices["s01"].attachments.has(handle))
        with pytest.raises(shoal.NoSuchQueue, match=queue):
            await inbox.get(timeout=WAIT_S)
        slice_.ignored = set()


def test_what_is_held_back_for_several_queues_stays_for_those_that_live_on() -> None:
    nothing: Any = lambda *told: None  # noqa: E731
    attachments = Attachments("s01", {1: b"q", 2: b"r"}, wire.Attach(), *(nothing,) * 5)
    attachments.unconfirmed = {1, 2}
    held = HeldBack(attachments)
    gap = GapNews(wire.Gap(key=b"k", first=3, to=4, handles=[1]), {1: b"q"})
    assert held.passed([delivery("k", 1, 1, 2), delivery("k", 2, 1), gap]) == []
    held.lives_ended([1])
    attachments.unconfirmed = set()
    common, told = held.passed([])
    assert isinstance(common, wire.Delivery) and (common.low, list(common.handles)) == (1, [2])
    assert told is gap, "it is told all the same"


def delivery(key: str, offset: int, *handles: int) -> wire.Delivery:
    chunk = encode_chunk([b"of the first life"])
    return wire.Delivery(key=key.encode(), first=offset, low=offset, to=offset + 1, chunk=chunk, handles=handles)
