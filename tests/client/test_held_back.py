"""What an inbox holds back after a lost stream, until the slice tells the lives of its queues."""

from __future__ import annotations

from typing import Any

import pytest

import shoal
from shoal import held_back
from shoal.attachments import Attachments
from shoal.gaps import GapNews
from shoal.held_back import HeldBack
from shoal.testing.fake_state import Binding
from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import ResourceExhausted
from shoal_contract.limits import FIRST_OFFSET
from shoal_contract.options import DURABLE
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import WAIT_S, bound, take, take_anew, until
from tests.client.fake_cluster import FakeCluster


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
            with pytest.raises(shoal.Unavailable, match="after a lost connection, 2 acks cannot be followed"):
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


@pytest.mark.parametrize("times", [1, 2])
async def test_late_acks_of_a_life_that_perhaps_goes_on_are_told(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """They are not sent, as they may be of another life: flush returned, and their messages came again. It may be in
    question more than once."""
    monkeypatch.setattr(held_back, "INBOX_BYTES_MAX", 0)
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue) as inbox:
        first = again = await take(inbox, 3)
        slice_.late_attached = True
        for _ in range(times):
            await until(lambda: inbox._slices["s01"].attachments.complete)
            slice_.cut()
            again = await take(inbox, 3)
        inbox.ack(*first[:2])
        with pytest.raises(shoal.Unavailable, match=r"after a lost connection, 2 acks cannot be .* were not sent"):
            await inbox.flush()
        inbox.ack(*again)
        await inbox.flush()
        assert (await fake_broker.describe(queue)).messages == 0


@pytest.mark.parametrize("dropped", [True, False])
async def test_acks_of_a_life_that_ended_for_certain_are_not_told(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, dropped: bool
) -> None:
    """That the life before it perhaps went on matters no more, and is forgotten; also where the queue is detached."""
    monkeypatch.setattr(held_back, "INBOX_BYTES_MAX", 0)
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with fake_broker.consume(queue) as inbox:
        part = inbox._slices["s01"]
        first = await take(inbox, 2)
        slice_.late_attached = True
        slice_.cut()
        await take(inbox, 2)
        await until(lambda: part.attachments.complete)
        assert part._perhaps_from
        if dropped:
            await fake_broker.drop(queue)
            await until(lambda: part.attachments.resets_seen == 1)
        else:
            await inbox.detach(queue)
        assert not part._perhaps_from
        inbox.ack(*first)
        await inbox.flush()


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
    held.forget([1])
    attachments.unconfirmed = set()
    common, told = held.passed([])
    assert isinstance(common, wire.Delivery) and (common.low, list(common.handles)) == (1, [2])
    assert told is gap, "it is told all the same"


def delivery(key: str, offset: int, *handles: int) -> wire.Delivery:
    chunk = encode_chunk([b"of the first life"])
    return wire.Delivery(key=key.encode(), first=offset, low=offset, to=offset + 1, chunk=chunk, handles=handles)


async def test_what_a_refused_attach_delivered_is_forgotten_when_it_is_asked_for_again(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """The slice gives it again, or the queue has another life by then."""
    queue, key = await bound(fake_broker, cluster)
    async with fake_broker.consume(queue) as inbox:
        at_slice, handle = inbox._slices["s01"], inbox._handles[queue.encode()]
        at_slice.attachments.unconfirmed.add(handle)
        await at_slice.delivered(wire.SessionResponse(deliveries=[delivery(key, 1, handle)]))
        assert at_slice.held
        at_slice.attachments._no_room = {handle: ResourceExhausted("no room", subject="room", limit=1, value=2)}
        at_slice.attachments._unanswered.add(handle)
        at_slice.attachments._attach_again()
        assert not at_slice.held
