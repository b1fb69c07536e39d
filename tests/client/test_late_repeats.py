"""What is remembered of acks that were answered and came too late (core/late_acks.py), and what becomes of messages."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core import repeats
from shoal.core.acks import Acked
from shoal.core.late_acks import LateAcks
from shoal.core.offset_ranges import Ranges
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeats import UNTOLD, Repeats, Told


class Late:
    """An inbox whose acks are late: the slice answers them, and has their messages unacked."""

    def __init__(self, **bounds: int) -> None:
        self.pending: list[Acked] = []
        """Acks without an answer."""
        self.pending_acks = PendingAcks(lambda: self.pending)
        self.seen = Repeats(self.pending_acks, **bounds)

    def ack(self, first: int, end: int) -> None:
        self.seen.acked(b"a", first, end, [1])
        self.pending.append(Acked(b"a", first, end, [1]))
        self.pending_acks.add(*self.pending[-1])

    def too_late(self) -> None:
        answered = [self.pending.pop(0)]
        self.pending_acks.answered(answered)
        self.seen.acked_late(answered)

    def deliver(self, first: int, end: int, told: Told = UNTOLD) -> tuple[Ranges, Ranges]:
        """What is handed out, and what is acked again."""
        news, again = self.seen.deliver(b"a", first, end, [1], told)
        return tuple(one[:2] for one in news), tuple(one[:2] for one in again)

    @property
    def late(self) -> list[tuple[int, int]]:
        return [(one.first, one.end) for one in self.seen.late.some(99)]


def test_what_was_acked_late_is_acked_again_when_it_comes_again() -> None:
    inbox = Late()
    inbox.deliver(1, 10)
    inbox.ack(3, 6)
    inbox.too_late()
    assert (inbox.late, inbox.seen.unacked(1), inbox.seen.in_doubt) == ([(3, 6)], 6, False)
    assert inbox.deliver(4, 5) == ((), ((4, 5),))
    inbox.ack(4, 5)
    assert inbox.late == [(3, 4), (5, 6)]
    inbox.seen.late_settled([Acked(b"a", 3, 4, [1])])
    inbox.seen.answered(b"a", ((4, 5),), [1])
    inbox.pending_acks.answered(inbox.pending)
    inbox.pending.clear()
    assert inbox.deliver(3, 5) == (((3, 5),), ()), "what is done and comes again is of another binding"
    inbox.seen.stream_ended([])
    assert (inbox.late, inbox.seen.in_doubt) == ([(5, 6)], False), "it is no ack of a lost stream"
    assert inbox.deliver(5, 6) == ((), ((5, 6),))


def test_what_its_leader_gives_for_the_first_time_is_of_another_binding() -> None:
    inbox, first, again = Late(), Told(epoch=3), Told(epoch=3, redelivered=1)
    inbox.deliver(1, 10, first)
    inbox.ack(2, 6)
    inbox.too_late()
    assert inbox.deliver(3, 4, again) == ((), ((3, 4),))
    assert inbox.deliver(4, 12, first) == (((4, 6), (10, 12)), ()), "in order"
    assert inbox.late == [(2, 3)] and inbox.seen.late.take_untold() == 1


def test_what_comes_for_the_first_time_while_an_ack_of_the_binding_before_is_under_way_is_new() -> None:
    """A slice answers acks after 70 ms: a queue bound again meanwhile had its replay acked and handed to nobody."""
    inbox, told = Late(), Told(epoch=3)
    inbox.deliver(1, 10, told)
    inbox.ack(2, 6)
    assert inbox.deliver(1, 12, told) == (((2, 6), (10, 12)), ())
    assert inbox.deliver(3, 4, Told(epoch=3, redelivered=1)) == ((), ()), "the program has it, and may ack it yet"
    inbox.too_late()
    assert not inbox.late, "that was the binding before"


@pytest.mark.parametrize("told", [Told(epoch=4), Told()], ids=["another", "not known"])
def test_another_leader_does_not_know_what_was_given_before(told: Told) -> None:
    inbox = Late()
    inbox.deliver(1, 3, Told(epoch=3))
    inbox.ack(1, 3)
    inbox.too_late()
    assert inbox.deliver(1, 2, told) == ((), ((1, 2),))
    assert inbox.deliver(2, 3, told) == ((), ((2, 3),)), "though it is the same leader now: it had given neither"


def test_acks_in_doubt_are_repeats_whatever_is_told() -> None:
    """The slice is asked for them within moments."""
    inbox, told = Late(), Told(epoch=3)
    inbox.deliver(1, 5, told)
    inbox.seen.stream_ended([Acked(b"a", 1, 4, [1])])
    inbox.seen.settled([Acked(b"a", 3, 4, [1])])
    assert inbox.deliver(1, 5, told) == (((3, 4),), ((1, 3),))


def test_what_came_again_before_its_late_ack_was_answered_is_late_no_more() -> None:
    inbox = Late()
    inbox.deliver(1, 3)
    inbox.ack(1, 3)
    assert inbox.deliver(2, 3) == ((), ((2, 3),))
    inbox.ack(2, 3)
    inbox.too_late()
    assert inbox.late == [(1, 2)]


def test_what_was_nacked_is_not_kept_as_acked_late() -> None:
    inbox = Late()
    inbox.deliver(1, 4)
    inbox.seen.nack(b"a", ((2, 3),), 1, now=True)
    inbox.ack(1, 4)  # The whole delivery, of which one message is on its way back.
    inbox.ack(1, 4)
    inbox.too_late()
    assert inbox.late == [], "it was acked once more, and that ack will be answered"
    inbox.too_late()
    assert inbox.late == [(1, 2), (3, 4)]
    assert inbox.deliver(2, 3) == (((2, 3),), ())


def test_what_was_nacked_and_came_anew_while_it_was_acked_is_not_acked() -> None:
    inbox = Late()
    inbox.deliver(1, 4)
    inbox.seen.nack(b"a", ((2, 3),), 1, now=True)
    inbox.ack(1, 4)
    assert inbox.deliver(2, 3) == (((2, 3),), ())
    inbox.too_late()
    assert inbox.late == [(1, 2), (3, 4)]
    assert inbox.seen.nack(b"a", ((2, 3),), 1, now=True) == ((2, 3),), "the program has it, and may give it back"
    assert inbox.deliver(2, 3) == (((2, 3),), ())
    inbox.ack(2, 3)
    inbox.too_late()
    assert inbox.late == [(1, 4)], "that ack was of what came last"


def test_late_acks_are_bounded_and_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "SEEN_RANGES_MAX", 2)
    inbox = Late()
    inbox.deliver(1, 20)
    for offset in (2, 4, 6, 8):
        inbox.ack(offset, offset + 1)
        inbox.too_late()
    assert inbox.late == [(6, 7), (8, 9)]
    assert (inbox.seen.late.take_untold(), inbox.seen.late.take_untold()) == (4, 0)
    assert inbox.seen.take_forgotten() == 0, "these were lost with no stream"
    inbox = Late(entries_max=1)
    inbox.deliver(1, 3)
    inbox.ack(1, 3)
    inbox.too_late()
    inbox.seen.deliver(b"b", 1, 2, [1])
    assert (inbox.late, inbox.seen.late.take_untold()) == ([], 2)


@pytest.mark.parametrize("leave", [Repeats.forget, Repeats.forget_doubts])
def test_late_acks_of_queues_that_ended_left_or_were_taken_over_are_none(leave: Any) -> None:
    inbox = Late()
    inbox.deliver(1, 3)
    inbox.ack(1, 3)
    inbox.too_late()
    leave(inbox.seen, [1])
    assert not inbox.seen.late


def test_all_late_acks_have_their_turn_to_be_asked_for_a_few_at_a_time() -> None:
    """Each question copied and framed all of them, five times a second: 10,000 took 0.26 s. Where the program went on
    acking late, the first ones only were asked for."""
    late = LateAcks()
    for number in range(20):
        late.add((b"told", number), ((1, 3),))
    late.take_untold()
    for number in range(20):
        late.add((b"%d" % (number % 5), number), ((1, 3),))
    asked: set[tuple[bytes, object]] = set()
    for question in range(8):
        blocks = late.some(5)
        pairs = {(block.key, handle) for block in blocks for handle in block.consumers}
        assert 5 <= len(pairs) <= 10
        assert question >= 4 or sum(key != b"told" for key, _ in pairs) >= 5, "what no flush has told of is among them"
        late.add((b"more", 100 + question), ((1, 2),))
        asked |= pairs
    assert len({pair for pair in asked if pair[0] != b"more"}) == 40


def test_scattered_late_acks_have_their_turn_to_be_asked_for_too() -> None:
    """A thousand keys were taken with all of their ranges, and eight frames of these sent: the same ones each time.
    Those behind them were never asked for, while another consumer worked on those in front."""
    late = LateAcks()
    pairs = [(b"key %d" % (number % 2), number) for number in range(4)]
    for pair in pairs:
        late.add(pair, tuple((1 + 2 * number, 2 + 2 * number) for number in range(25)))
    late.take_untold()
    asked: list[tuple[object, int]] = []
    for _ in range(10):
        blocks = late.some(10)
        asked += [(handle, block.first) for block in blocks for handle in block.consumers]
        for block in blocks:
            if 3 in block.consumers:  # Acked by another consumer.
                late.take((block.key, 3), ((block.first, block.end),))
        assert len(asked) % 10 == 0
    assert len(set(asked)) == len(asked) == 100 and not late.get(pairs[3])
    asked_again = {(handle, block.first) for _ in range(9) for block in late.some(10) for handle in block.consumers}
    assert len(asked_again) == 75


def test_a_queue_of_several_keys_with_many_late_acks_leaves_others_their_turn() -> None:
    """Its keys had turns among themselves, and no other queue had one."""
    late = LateAcks()
    for key in (b"a", b"b"):
        late.add((key, 1), tuple((1 + 2 * number, 2 + 2 * number) for number in range(25)))
    for handle in range(2, 6):
        late.add((b"c", handle), ((1, 2),))
    late.take_untold()
    asked = {(key, handle) for _ in range(8) for key, _, _, handles in late.some(10) for handle in handles}
    assert asked == {(b"a", 1), (b"b", 1), *((b"c", handle) for handle in range(2, 6))}


def test_late_acks_are_asked_for_in_halves_too_where_not_all_are_acked() -> None:
    late = LateAcks()
    late.add((b"a", 1), ((1, 41),))
    for _ in range(7):
        for one in late.some(100):
            if one.first <= 7 < one.end:
                late.divide([one])
            else:
                late.take((b"a", 1), ((one.first, one.end),))
    assert late.get((b"a", 1)) == ((7, 8),)
