"""Acks of a lost stream are asked for without a flush; what is settled is no repeat when a new bind brings it again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

import shoal
from shoal.core.acks import Acked
from shoal.core.offset_ranges import Ranges
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeats import Repeats, Told
from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from tests.client.acks_in_doubt import in_doubt, questions, take
from tests.client.calls import bound, until
from tests.client.fake_cluster import FakeCluster

KEY = b"a"
WAIT_S = 30


def of_slice(inbox: shoal.Inbox) -> Repeats:
    repeats = inbox._slices["s01"].repeats
    assert repeats is not None
    return repeats


async def settled(inbox: shoal.Inbox) -> None:
    await until(lambda: not of_slice(inbox).in_doubt)


@pytest.mark.parametrize("had", [True, False])
async def test_acks_in_doubt_are_asked_for_without_a_flush(
    cluster: FakeCluster, fake_broker: shoal.Broker, had: bool
) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 2)
        slice_.state.release = lambda *arguments: None  # type: ignore[method-assign]  # So none comes again.
        await in_doubt(inbox, slice_, messages[:1], had=had)
        await settled(inbox)
        assert not of_slice(inbox).remembers_acks
        inbox.ack(messages[1])
        assert of_slice(inbox).in_doubt, "it is of the lost stream"
        await settled(inbox)
        assert [len(question.acks) for question in questions(slice_)] == [1, 1]
        assert (await fake_broker.describe(queue)).messages == 0


@pytest.mark.parametrize("flushes", [True, False])
async def test_acks_of_attached_queues_are_asked_for_while_another_one_cannot_be_attached(
    cluster: FakeCluster, fake_broker: shoal.Broker, flushes: bool
) -> None:
    queue, key = await bound(fake_broker, cluster)
    other = cluster.queue_with_home("s01", "other")
    await fake_broker.declare(other)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish(key, b"1")
    async with asyncio.timeout(WAIT_S), fake_broker.consume([queue, other]) as inbox:
        await in_doubt(inbox, slice_, await take(inbox, 1))
        attachments = inbox._slices["s01"].attachments
        attachments.ended(inbox._handles[other.encode()])
        assert not attachments.complete and of_slice(inbox).in_doubt
        if flushes:
            await inbox.flush()
        await settled(inbox)


@pytest.mark.parametrize("flushes", [True, False])
async def test_what_a_new_bind_brings_is_handed_out_though_it_was_acked_as_the_former_leader_ended(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, flushes: bool
) -> None:
    """It was acked again, and handed to nobody, for as long as the stream lived: the new leader had given none of what
    was remembered of the key."""
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.configure(key, shoal.KeyOptions(history_messages=9))
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 3)
        monkeypatch.setattr("shoal.testing.fake_slice.FAKE_EPOCH", 7)
        times = slice_.state.keys[key.encode()].bindings[queue.encode()].times_given
        times.update(dict.fromkeys(times, 0))
        await in_doubt(inbox, slice_, messages[:2])
        if flushes:
            await inbox.flush()
        await settled(inbox)
        await fake_broker.publish(key, b"4")
        assert [one.body for one in await take(inbox, 1)] == [b"4"], "the program has the third"
        await fake_broker.unbind(queue, key, discard=True)
        await fake_broker.bind(queue, key, start=shoal.EARLIEST)
        again = await take(inbox, 2)
        assert [one.body for one in again] == [b"1", b"2"]
        assert not of_slice(inbox).copies.nack, "it was passed"
        inbox.ack(*again)
        await inbox.flush()


@pytest.mark.parametrize("bound_again", [True, False])
async def test_a_copy_that_was_on_its_way_is_given_back_not_acked(
    cluster: FakeCluster, fake_broker: shoal.Broker, bound_again: bool
) -> None:
    """Of another binding it comes again then. It names nothing that waits: that would come behind what is after it."""
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.configure(key, shoal.KeyOptions(history_messages=9))
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2"])
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue) as inbox:
        await in_doubt(inbox, slice_, (await take(inbox, 2))[:1])
        await settled(inbox)
        at_slice = inbox._slices["s01"]
        await at_slice.nacks.flush_all()
        (session,) = [one for one in slice_._sessions if one.producer == at_slice.session._open.producer]
        fence, session.nacks_taken = session.nacks_taken, 0
        if bound_again:
            await fake_broker.unbind(queue, key, discard=True)
            await fake_broker.bind(queue, key, start=shoal.EARLIEST)
            session.nacks_taken = fence
            (again,) = await take(inbox, 1)
            assert (again.body, again.redelivered) == (b"1", 0)
            return
        copy = wire.Delivery(key=key.encode(), first=1, low=1, to=2, chunk=encode_chunk([b"1"]), handles=[1])
        session.outbox.put_nowait(wire.SessionResponse(deliveries=[copy]))
        await fake_broker.publish(key, b"3")
        assert [one.body for one in await take(inbox, 1)] == [b"3"]
        assert not at_slice.acks and fence
        await at_slice.nacks.flush_all()
        nacks = [one for frame in slice_.frames for one in frame.nacks.messages]
        assert [(one.low, one.to) for one in nacks] == [(1, 1), (1, 2)]


class InDoubt:
    """An inbox that acked 1 to 9 of a key for two handles, lost the stream, and got 9 again from another leader."""

    def __init__(self, epoch: int = 4) -> None:
        self.acked: list[Acked] = []
        self.pending = PendingAcks(lambda: self.acked)
        self.seen = Repeats(self.pending)
        self.epoch = epoch
        self.seen.deliver(KEY, 1, 11, [1, 2], Told(3))
        self.seen.stream_ended([Acked(KEY, 1, 10, [1, 2])])
        assert self.seen.deliver(KEY, 10, 11, [1, 2], Told(epoch)) == ([], [])

    def settle(self, first: int, end: int, handles: Sequence[int]) -> bool:
        return self.seen.forget_settled([Acked(KEY, first, end, handles)])

    def came(self, first: int, end: int, handle: int = 1) -> tuple[Ranges, Ranges]:
        """What is handed out, and what is acked again."""
        news, again = self.seen.deliver(KEY, first, end, [handle], Told(self.epoch))
        return tuple(one[:2] for one in news), tuple(one[:2] for one in again)


def test_what_is_settled_is_forgotten_but_for_copies() -> None:
    inbox = InDoubt()
    assert inbox.settle(1, 4, [1, 2]) and inbox.settle(6, 8, [1])
    assert inbox.seen.copies.split(KEY, 1, 9, [1, 2]) == (
        [(4, 6, [1]), (4, 9, [2]), (8, 9, [1])],
        [(1, 4, [1]), (6, 8, [1]), (1, 4, [2])],
    )
    assert inbox.came(1, 7) == (((1, 4), (6, 7)), ((4, 6),)), "4 is in doubt"


def test_copies_are_of_their_stream_and_of_queues_that_stay_and_before_the_nack() -> None:
    inbox = InDoubt()
    copies = inbox.seen.copies
    inbox.settle(1, 4, [1, 2])
    copies.nack = 5
    inbox.seen.forget([1])
    copies.passed(4)
    assert copies.split(KEY, 1, 4, [1, 2]) == ([(1, 4, [1])], [(1, 4, [2])])
    copies.passed(5)
    assert copies.nack == 0 and copies.split(KEY, 1, 4, [2]) == ([(1, 4, [2])], [])
    inbox.settle(4, 6, [2])
    copies.nack = 6
    inbox.seen.stream_ended([])
    assert copies.nack == 0 and copies.split(KEY, 4, 6, [2]) == ([(4, 6, [2])], []), "what comes then is not acked"


def test_only_what_was_in_doubt_is_settled() -> None:
    """What came again meanwhile is acked again, and the answer to a question that was asked twice settles nothing."""
    inbox = InDoubt()
    assert inbox.came(2, 3) == ((), ((2, 3),))
    assert inbox.settle(1, 5, [1]) and not inbox.settle(1, 5, [1])
    assert inbox.seen.copies.split(KEY, 1, 5, [1]) == ([(2, 3, [1])], [(1, 2, [1]), (3, 5, [1])])


def test_all_acks_in_doubt_have_their_turn() -> None:
    inbox = InDoubt()
    asked = [inbox.seen.some_doubts(1)[0] for _ in range(3)]
    assert sorted(one.consumers[0] for one in asked[:2]) == [1, 2] and asked[2] == asked[0]


def test_an_ack_under_way_says_nothing_of_another_binding_though_the_leader_is_new() -> None:
    """For as long as something of the key was remembered from before, a new bind beside an ack was acked unseen."""
    inbox = InDoubt()
    assert inbox.came(11, 13) == (((11, 13),), ())
    inbox.acked.append(Acked(KEY, 11, 13, [1]))
    assert inbox.came(11, 13) == (((11, 13),), ())


def test_what_is_not_all_acked_is_asked_for_in_halves() -> None:
    """One message that rested kept the acks of all of its range in doubt for as long."""
    repeats = Repeats(PendingAcks(list))
    repeats.deliver(KEY, 1, 41, [1, 2])
    repeats.stream_ended([Acked(KEY, 1, 41, [1, 2])])
    asked = 0
    for _ in range(7):
        for one in repeats.some_doubts(100):
            for handle in one.consumers:
                asked += 1
                rests = handle == 1 and any(one.first <= offset < one.end for offset in (7, 30, 31))
                (repeats.divide_doubts if rests else repeats.settled)([one._replace(consumers=[handle])])
    assert [one[:3] for one in repeats.doubts()] == [(KEY, 7, 8), (KEY, 30, 31), (KEY, 31, 32)]
    assert asked < 50
    repeats.settled(repeats.doubts())
    assert not repeats.in_doubt and not repeats._doubt._parts


async def test_a_flush_settles_all_but_what_rests(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"job"] * 20)
    async with asyncio.timeout(WAIT_S), fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 20)
        slice_.state.release = lambda *arguments: None  # type: ignore[method-assign]  # So none comes again.
        await in_doubt(inbox, slice_, messages, had=False)
        is_unacked = slice_.state.is_unacked

        def rests(name: bytes, ack: wire.Ack) -> bool:
            """Whether another consumer has nacked one of these with a delay; or they are unacked."""
            return ack.low <= 7 < ack.to or is_unacked(name, ack)

        monkeypatch.setattr(slice_.state, "is_unacked", rests)
        with pytest.raises(shoal.DeadlineExceeded):
            await inbox.flush(deadline_s=2)
        assert [(one.first, one.end) for one in of_slice(inbox).doubts()] == [(7, 8)]
        monkeypatch.undo()
        await inbox.flush()
