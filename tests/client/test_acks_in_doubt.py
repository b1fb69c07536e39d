"""`flush` after a lost stream: it returns when the slice has every ack, asks for those in doubt, and says what it
cannot know. The first cases are in test_broker.py, against a real cluster too."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from shoal.core import repeats
from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import PermissionDenied, ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from tests.client.acks_in_doubt import attached_again, in_doubt, questions, take
from tests.client.calls import bound, until
from tests.client.fake_cluster import FakeCluster

PROMPT_S = 5


async def test_one_question_settles_what_the_slice_has(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue) as inbox:
        first, _, last = await take(inbox, 3)
        await in_doubt(inbox, slice_, [first, last])
        async with asyncio.timeout(PROMPT_S):
            await asyncio.gather(inbox.flush(), inbox.flush())
        (question,) = questions(slice_)
        assert [(ack.low, ack.to, list(ack.handles)) for ack in question.acks] == [(1, 2, [1]), (3, 4, [1])]
        await inbox.flush()
        assert len(questions(slice_)) == 1, "nothing is in doubt any more"


async def test_of_several_queues_the_slice_tells_which_acks_it_lacks(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    second = cluster.queue_with_home("s01", "second")
    slice_ = cluster.slices["s01"]
    slice_.takes_acks_of_lost_streams = False
    await fake_broker.declare(second)
    await fake_broker.bind(second, key)
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with fake_broker.consume([queue, second]) as inbox:
        messages = await take(inbox, 6)
        await in_doubt(inbox, slice_, [message for message in messages if message.offset != 2])
        binding = slice_.state.keys[key.encode()].bindings[second.encode()]
        binding.done.remove(3)
        binding.given[3] = "another session"
        with pytest.raises(shoal.DeadlineExceeded, match="slice s01: up to 1 ack "):
            await inbox.flush(deadline_s=0.5)
        asked = [(ack.low, ack.to, list(ack.handles)) for ack in questions(slice_)[0].acks]
        assert asked == [(1, 2, [1, 2]), (3, 4, [1, 2])]
        repeats = inbox._slices["s01"].repeats
        assert repeats is not None
        assert [(one.key, one.first, one.end, *one.consumers) for one in repeats.doubts()] == [(key.encode(), 3, 4, 2)]
        binding.done.add(3)
        await inbox.flush()


@pytest.mark.parametrize("takes", [True, False])
async def test_flush_waits_while_another_consumer_has_the_message_if_the_slice_is_of_an_older_version(
    cluster: FakeCluster, fake_broker: shoal.Broker, takes: bool
) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    slice_.takes_acks_of_lost_streams = takes
    async with (
        shoal.connect(cluster.redirectors[0].address, deadline_s=10) as second,
        fake_broker.consume(queue) as inbox,
        second.consume(queue) as other,
    ):
        await fake_broker.publish(key, b"1")
        binding = slice_.state.keys[key.encode()].bindings[queue.encode()]
        (message,) = await take(inbox, 1)
        slice_.ignored = {"acks"}
        inbox.ack(message)
        await until(lambda: any(frame.HasField("acks") for frame in slice_.frames))
        opens, session = len(slice_.opens), slice_._sessions[-1]
        stream = inbox._slices["s01"].session._stream
        assert stream is not None
        stream.cancel()
        (again,) = await take(other, 1)
        assert binding.given == {1: session} and again.body == b"1"
        slice_.ignored = set()
        await attached_again(inbox, slice_, opens)
        if takes:
            await inbox.flush()
            assert binding.done == {1}
            return
        with pytest.raises(shoal.DeadlineExceeded, match=r"slice s01: up to 1 ack .* another consumer"):
            await inbox.flush(deadline_s=0.5)
        flushing = asyncio.ensure_future(inbox.flush())
        asked = len(questions(slice_))
        await until(lambda: len(questions(slice_)) > asked)
        assert not flushing.done()
        other.ack(again)
        await flushing
        assert binding.done == {1}


async def test_flush_waits_for_an_ack_that_was_sent_again_and_lost_again(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message came again, so its ack was in doubt no more, and that stream was lost before the answer: flush
    returned."""
    monkeypatch.setattr("shoal.ack_doubts.DOUBTS_ASK_FIRST_S", 60)
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    slice_.takes_acks_of_lost_streams = False
    await fake_broker.publish(key, b"1")
    async with fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 1)
        slice_.state.release = lambda *arguments: None  # type: ignore[method-assign]  # So it comes when the test says.
        await in_doubt(inbox, slice_, messages, had=False)
        flushing = asyncio.create_task(inbox.flush())
        at_slice = inbox._slices["s01"]
        repeats = at_slice.repeats
        assert repeats is not None
        await until(lambda: len(questions(slice_)) == 1 and not at_slice.session._ledger)
        opens, asked = len(slice_.opens), len(slice_.frames)
        slice_.ignored = {"acks"}
        (session,) = [one for one in slice_._sessions if one.producer == at_slice.session._open.producer]
        again = wire.Delivery(key=key.encode(), first=1, low=1, to=2, chunk=encode_chunk([b"1"]), handles=[1])
        session.outbox.put_nowait(wire.SessionResponse(deliveries=[again]))
        await until(lambda: any(frame.HasField("acks") for frame in slice_.frames[asked:]))
        assert not repeats.in_doubt and not flushing.done()
        slice_.ignored = set()
        slice_.cut()
        await attached_again(inbox, slice_, opens)
        assert repeats.in_doubt
        await until(lambda: flushing.done() or len(questions(slice_)) == 2)
        assert not flushing.done(), "no slice has the ack"
        binding = slice_.state.keys[key.encode()].bindings[queue.encode()]
        binding.done.add(1)
        slice_.cut()
        await flushing


async def test_a_slice_of_an_older_version_cannot_tell(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    """It may have the acks or not: what is not known is not promised."""
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    slice_.tells_unacked = False
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 2)
        await in_doubt(inbox, slice_, messages[:1], had=False)
        await inbox.flush()  # It came again, and was acked again.
        await in_doubt(inbox, slice_, messages[1:])
        with pytest.raises(shoal.DeadlineExceeded, match="acks at slice s01"):
            await inbox.flush(deadline_s=0.5)
        slice_.tells_unacked = True
        await inbox.flush()


async def test_a_question_without_room_is_asked_again_and_a_refusal_is_raised(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish(key, b"1")
    async with fake_broker.consume(queue) as inbox:
        await in_doubt(inbox, slice_, await take(inbox, 1))
        await until(lambda: fake_broker.slices["s01"].state == shoal.State.OPEN)
        slice_.refuse_frames = [ResourceExhausted("no room"), PermissionDenied("not you")]
        with pytest.raises(PermissionDenied, match="not you"):
            await inbox.flush()
        await inbox.flush()


async def test_acks_that_were_refused_are_not_promised(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish(key, b"1")
    async with fake_broker.consume(queue) as inbox:
        cluster.slices["s01"].refuse_frames = [PermissionDenied("not you")]
        inbox.ack(*await take(inbox, 1))
        with pytest.raises(PermissionDenied, match="not you"):
            await inbox.flush()
        await inbox.flush()


async def test_questions_are_bounded(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, key = await bound(fake_broker, cluster)
    queues = [queue, *(cluster.queue_with_home("s01", f"more-{number}") for number in range(30))]
    slice_ = cluster.slices["s01"]
    await fake_broker.declare(queues[1:])
    for one in queues[1:]:
        await fake_broker.bind(one, key)
    await fake_broker.publish(key, b"1")
    async with fake_broker.consume(queues) as inbox:
        await in_doubt(inbox, slice_, await take(inbox, len(queues)))
        monkeypatch.setattr("shoal.core.acks.ACK_HANDLES_MAX", 2)
        await inbox.flush()
        asked = [handle for question in questions(slice_) for ack in question.acks for handle in ack.handles]
        assert sorted(asked) == list(range(1, len(queues) + 1)), "each is asked for once"
        assert all(sum(len(ack.handles) for ack in question.acks) <= 2 for question in questions(slice_))


async def test_of_detached_queues_nothing_is_promised(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    slice_.takes_acks_of_lost_streams = False
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with fake_broker.consume(queue, window_messages=2) as inbox:
        messages = await take(inbox, 2)
        slice_.state.release = lambda *arguments: None  # type: ignore[method-assign]  # So it does not come again.
        await in_doubt(inbox, slice_, messages[:1], had=False)
        flushing = asyncio.ensure_future(inbox.flush())
        await until(lambda: bool(questions(slice_)))
        assert not flushing.done()
        await inbox.detach(queue)
        async with asyncio.timeout(PROMPT_S):
            await flushing


async def test_of_exclusive_queues_that_a_slice_took_away_nothing_is_promised(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    slice_ = cluster.slices["s02"]
    await fake_broker.declare(queue, shoal.QueueOptions(exclusive="newest"))
    await fake_broker.bind(queue, key)
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 2)
        slice_.state.release = lambda *arguments: None  # type: ignore[method-assign]  # So it does not come again.
        await in_doubt(inbox, slice_, messages[:1], had=False)
        slice_.ignored = {"attach"}
        inbox._slices["s02"]._queue_ended(next(iter(inbox._queues)), shoal.Conflict("another session has it"))
        async with asyncio.timeout(PROMPT_S):
            await inbox.flush()


async def test_where_repeats_are_asked_for_acks_of_a_lost_stream_are_the_applications(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish(key, b"1")
    async with fake_broker.consume(queue, drop_repeats=False) as inbox:
        await in_doubt(inbox, slice_, await take(inbox, 1), had=False)
        await inbox.flush()
        (again,) = await take(inbox, 1)
        assert not questions(slice_)
        inbox.ack(again)
        await inbox.flush()
    assert (await fake_broker.describe(queue)).messages == 0


async def test_too_many_acks_in_doubt_are_said_once(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "SEEN_RANGES_MAX", 64)
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"x"] * 200)
    async with fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 200)
        await in_doubt(inbox, slice_, messages[::2], had=False)
        with pytest.raises(shoal.Unavailable, match=r"slice s01: .* 36 acks .* may come again"):
            await inbox.flush()
        again = await take(inbox, 36)
        assert [message.offset for message in again] == [message.offset for message in messages[:72:2]]
        inbox.ack(*again)
        await inbox.flush()
        binding = slice_.state.keys[key.encode()].bindings[queue.encode()]
        assert binding.done == {message.offset for message in messages[::2]}


async def test_acks_of_messages_that_were_forgotten_are_said_once(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "SEEN_RANGES_MAX", 4)
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"x"] * 20)
    async with fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 20)
        inbox.ack(*messages[1::2])
        await inbox.flush()
        await fake_broker.publish(key, b"y")
        await take(inbox, 1)
        opens = len(slice_.opens)
        slice_.cut()
        await attached_again(inbox, slice_, opens)
        again = await take(inbox, 7)
        assert [message.offset for message in again] == [1, 3, 5, 7, 9, 11, 13], "they are new"
        slice_.ignored = {"acks"}
        inbox.ack(*again)
        slice_.cut()
        slice_.ignored = set()
        await attached_again(inbox, slice_, opens + 1)
        inbox.ack(*messages[::2])
        with pytest.raises(shoal.Unavailable, match=r"slice s01: .* \d+ acks .* may come again"):
            await inbox.flush()
        await inbox.flush()
        binding = slice_.state.keys[key.encode()].bindings[queue.encode()]
        assert binding.done.issuperset(range(15, 21))


@pytest.mark.parametrize("had", [True, False])
async def test_acks_in_doubt_at_a_slice_where_the_queue_was_bound_after_its_attach_are_told(
    cluster: FakeCluster, fake_broker: shoal.Broker, had: bool
) -> None:
    """A slice of an older version tells no life of such a part: the client takes it for another one on the next
    stream."""
    queue, key, slice_ = cluster.queue_with_home("s01"), cluster.key_of("s02"), cluster.slices["s02"]
    slice_.tells_lives_of_new_parts = False
    await fake_broker.declare(queue)
    async with fake_broker.consume(queue) as inbox:
        await fake_broker.bind(queue, key)
        await fake_broker.publish_many(key, [b"1", b"2"])
        await in_doubt(inbox, slice_, await take(inbox, 2), had=had)
        with pytest.raises(shoal.Unavailable, match="after a lost connection, 2 acks cannot be followed"):
            await inbox.flush(deadline_s=PROMPT_S)
        again = [] if had else await take(inbox, 2)
        inbox.ack(*again)
        await inbox.flush(deadline_s=PROMPT_S)
    assert (await fake_broker.describe(queue)).messages == 0


@pytest.mark.parametrize("had", [True, False])
async def test_a_part_that_came_after_the_attach_is_known_again_after_a_lost_stream(
    cluster: FakeCluster, fake_broker: shoal.Broker, had: bool
) -> None:
    """It was taken for another life: all that the program had came again, and its later acks had no effect."""
    queue, key, slice_ = cluster.queue_with_home("s01"), cluster.key_of("s02"), cluster.slices["s02"]
    await fake_broker.declare(queue)
    async with fake_broker.consume(queue) as inbox:
        await fake_broker.bind(queue, key)
        await fake_broker.publish_many(key, [b"1", b"2", b"3"])
        messages = await take(inbox, 3)
        await in_doubt(inbox, slice_, messages[:2], had=had)
        await inbox.flush(deadline_s=PROMPT_S)
        inbox.ack(messages[2])
        await inbox.flush(deadline_s=PROMPT_S)
        await fake_broker.publish(key, b"4")
        assert [message.body for message in await take(inbox, 1)] == [b"4"], "nothing came again"
    assert (await fake_broker.describe(queue)).messages == 1


@pytest.mark.parametrize("late", [False, True])
async def test_an_ack_of_what_a_first_attach_delivered_is_told_where_a_lost_stream_leaves_the_life_unknown(
    cluster: FakeCluster, fake_broker: shoal.Broker, caplog: pytest.LogCaptureFixture, late: bool
) -> None:
    """The queue was taken for one that was dropped: flush returned, though the ack had never arrived. `late`: it is
    given when the queue is attached again."""
    caplog.set_level("INFO", logger="shoal")
    other, _ = await bound(fake_broker, cluster)
    queue, key, slice_ = cluster.queue_with_home("s01", "second"), cluster.key_of("s01", "jobs"), cluster.slices["s01"]
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"job")
    async with fake_broker.consume(other) as inbox:
        slice_.ignored = {"attach", "acks"}
        asked = len(slice_.frames)
        attaching = asyncio.create_task(inbox.attach(queue))
        await until(lambda: any(frame.HasField("attach") for frame in slice_.frames[asked:]))
        (session,) = [one for one in slice_._sessions if one.producer == inbox._slices["s01"].session._open.producer]
        job = wire.Delivery(
            key=key.encode(),
            first=1,
            low=1,
            to=2,
            chunk=encode_chunk([b"job"]),
            handles=[inbox._handles[queue.encode()]],
        )
        session.outbox.put_nowait(wire.SessionResponse(deliveries=[job]))
        messages = await take(inbox, 1)
        if not late:
            inbox.ack(*messages)
            await until(lambda: any(frame.HasField("acks") for frame in slice_.frames[asked:]))
        slice_.ignored = set()
        slice_.cut()
        await attaching
        if late:
            inbox.ack(*messages)
        with pytest.raises(shoal.Unavailable, match="after a lost connection, 1 ack cannot be followed"):
            await inbox.flush(deadline_s=PROMPT_S)
        inbox.ack(*await take(inbox, 1))
        await inbox.flush(deadline_s=PROMPT_S)
    assert (await fake_broker.describe(queue)).messages == 0
    assert "was dropped" not in caplog.text
