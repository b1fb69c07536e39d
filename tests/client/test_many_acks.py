"""Thousands of acks in doubt, or out of order, cost about as much as there are: work is counted here, not time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

import shoal
from shoal.ack_sender import AckSender
from shoal.core import acks, offset_ranges, pair_ranges, repeats
from shoal.core.acks import AckConsumer, Acked
from shoal.core.offset_ranges import Ranges, both, count, joined, merged, outside, without
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeats import Repeats
from shoal.slice_session import SliceSession
from shoal_contract.wire import slice_pb2 as wire
from tests.client.acks_in_doubt import in_doubt, take
from tests.client.calls import bound
from tests.client.fake_cluster import FakeCluster

LINEAR = 40
"""How often a range may be looked at in one of these steps. Each range with all others would be some hundred times."""


async def test_what_comes_again_or_is_nacked_looks_at_each_unanswered_ack_once(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message that came again, and each nack, looked at all: an event loop stood still for seconds."""
    looks = 0
    pending = AckSender.pending

    def looked(sender: AckSender) -> Iterator[Acked]:
        nonlocal looks
        for block in pending(sender):
            looks += 1
            yield block

    queue, key = await bound(fake_broker, cluster)
    slice_, many = cluster.slices["s01"], 200
    monkeypatch.setattr(AckSender, "pending", looked)
    for _ in range(3 * many):
        await fake_broker.publish(key, b"x")
    async with fake_broker.consume(queue) as inbox:
        messages = await take(inbox, 3 * many)
        await in_doubt(inbox, slice_, messages[::3], had=False)
        await inbox.flush()
        slice_.ignored = {"acks"}
        inbox.ack(*messages[1::3])
        inbox.nack(*messages[2::3])
        slice_.ignored = set()
    assert looks <= 3 * many


def test_questions_about_acks_agree_with_a_list_of_them() -> None:
    chance = random.Random(27)
    given: list[Acked] = []
    pending = PendingAcks(lambda: given)
    for _ in range(300):
        given.clear()
        pending.clear()
        for _ in range(chance.randrange(40)):
            first = chance.randrange(12)
            consumers: list[AckConsumer] = [*chance.sample(range(3), chance.randint(1, 3))]
            ack = Acked(chance.choice([b"a", b"b"]), first, first + chance.randint(1, 4), consumers)
            match chance.randrange(3):
                case 0:
                    given.append(ack)
                    pending.add(*ack)
                case 1:
                    done = given[:2]
                    del given[:2]
                    pending.answered(done)
                case 2:
                    key, consumer = ack.key, consumers[0]
                    held = {
                        offset
                        for one in given
                        if one.key == key and consumer in one.consumers
                        for offset in range(one.first, one.end)
                    }
                    span = set(range(ack.first, ack.end))
                    assert offsets(pending.within(key, consumer, ack.first, ack.end)) == held & span
                    assert offsets(pending.outside(key, consumer, ack.first, ack.end)) == span - held
                    others = {
                        (one.key, offset)
                        for one in given
                        if consumer in one.consumers
                        for offset in range(one.first, one.end)
                    }
                    assert pending.messages({consumer}) == len(others)


def test_an_index_of_acks_is_made_once_and_not_kept_when_they_are_answered() -> None:
    looks = 0
    given = [Acked(b"k", 2 * number, 2 * number + 1, [1]) for number in range(1_000)]

    def blocks() -> Iterator[Acked]:
        nonlocal looks
        looks += len(given)
        return iter(given)

    pending = PendingAcks(blocks)
    pending.add(b"k", 0, 1, [1])
    assert looks == 0, "an inbox that does not ask pays nothing"
    for one in given:
        assert pending.within(b"k", 1, one.first, one.end) and not pending.outside(b"k", 1, one.first, one.end)
    assert looks == len(given)
    pending.answered(given)
    assert pending._index is None


def offsets(ranges: Ranges) -> set[int]:
    return {offset for low, high in ranges for offset in range(low, high)}


def ranges_of(found: set[int]) -> Ranges:
    return merged((offset, offset + 1) for offset in found)


def test_steps_with_many_ranges_agree_with_sets_of_offsets() -> None:
    chance = random.Random(28)
    for _ in range(3_000):
        one, other = ({offset for offset in range(30) if chance.random() < 0.5} for _ in range(2))
        ranges, others = ranges_of(one), ranges_of(other)
        assert without(ranges, others) == ranges_of(one - other)
        assert joined(ranges, others) == ranges_of(one | other)
        assert both(ranges, others) == ranges_of(one & other)
        first = chance.randrange(30)
        assert outside(ranges, first, first + 9) == ranges_of(set(range(first, first + 9)) - one)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has in its one place how many ranges were given to the functions of offset_ranges.py."""
    found = [0]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            found[0] += 1 + sum(len(one) for one in arguments if isinstance(one, (tuple, list)))
            return function(*arguments)

        return call

    for name in ("with_range", "without_range", "within", "without", "joined", "both", "outside"):
        call = counted(getattr(offset_ranges, name))
        for module in (offset_ranges, pair_ranges, repeats, acks):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, call)
    return found


def test_what_is_done_with_all_ranges_of_a_queue_passes_over_them_a_few_times(passed: list[int]) -> None:
    """Each range was taken out alone, and all others were copied each time."""
    many = 500
    seen = Repeats(PendingAcks(tuple))
    seen.deliver(b"a", 0, 4 * many, [1])
    work: dict[str, int] = {}

    def note(what: str, step: Callable[[], object]) -> object:
        passed[0] = 0
        found = step()
        work[what] = passed[0]
        return found

    lost = [Acked(b"a", 2 * number, 2 * number + 1, [1]) for number in range(2 * many)]
    note("acks of a lost stream", lambda: seen.stream_ended(lost))
    note("a look of a drain", lambda: sum(seen.unanswered([1])))
    doubts = seen.doubts()
    note("doubts are settled", lambda: seen.settled(doubts[::2]))
    note("the next lost stream", lambda: seen.stream_ended([]))
    assert count(seen.known(b"a", 1)) == 3 * many
    assert len(seen.deliver(b"a", 0, 4 * many, [1])[1]) == many
    seen.stream_ended(())
    note("what comes again", lambda: seen.deliver(b"a", 0, 4 * many, [1]))
    note("acks of all", lambda: seen.ack(b"a", 0, 4 * many, [1]))
    done = merged((4 * number, 4 * number + 1) for number in range(many))
    note("answers", lambda: seen.answered(b"a", done, [1]))
    assert max(work.values()) <= LINEAR * 2 * many, work


def test_doubts_of_many_consumers_are_lost_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each consumer all keys were looked at: 10,000 of each took 16 s in one step of the program's event loop."""
    many, asked = 40, 0
    found = PendingAcks._found

    def counted(self: PendingAcks) -> Any:
        nonlocal asked
        asked += 1
        return found(self)

    blocks = [Acked(b"k%d" % number, 1, 3, (number, number + 1)) for number in range(many)]
    seen = Repeats(PendingAcks(lambda: blocks))
    monkeypatch.setattr(PendingAcks, "_found", counted)
    seen.lose_doubts(range(10, many))
    assert asked == 1
    assert seen.take_forgotten() == 2 * 2 * (many - 10)


async def test_the_index_of_unanswered_acks_is_told_of_all_that_becomes_of_them() -> None:
    """Where it was not, a drain took what had come again for acked, and an index was never let go of."""
    session = Mock(spec_set=SliceSession)
    sender = AckSender(session, on_error=lambda _: None, of_stream=True)

    def acked() -> int:
        return sender.pending_acks.messages({1})

    sender.add(b"a", 1, 5, [1])
    assert acked() == 4
    sender.add(b"a", 7, 9, [1, 2])
    assert acked() == 6
    await sender.sent()
    session.send.call_args.args[0].answered(wire.Answer())
    assert not sender and acked() == 0 and sender.pending_acks._index is None
    for end in (sender.stream_ended, lambda: sender.forget([1])):
        sender.add(b"a", 1, 5, [1])
        assert acked() == 4
        end()
        assert acked() == 0
    sender.stream_ended()
