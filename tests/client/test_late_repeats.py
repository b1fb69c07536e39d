"""What is remembered of acks that were answered and came too late (core/late_acks.py), and what becomes of messages."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.core import repeats
from shoal.core.acks import Acked
from shoal.core.offset_ranges import Ranges
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeats import Repeats


class Late:
    """An inbox whose acks are late: the slice answers them, and has their messages unacked."""

    def __init__(self, **bounds: int) -> None:
        self.pending: list[Acked] = []
        """Acks without an answer."""
        self.pending_acks = PendingAcks(lambda: self.pending)
        self.seen = Repeats(self.pending_acks, **bounds)

    def ack(self, first: int, end: int) -> None:
        self.pending.append(Acked(b"a", first, end, [1]))
        self.pending_acks.add(*self.pending[-1])

    def too_late(self) -> None:
        answered = [self.pending.pop(0)]
        self.pending_acks.answered(answered)
        self.seen.acked_late(answered)

    def deliver(self, first: int, end: int) -> tuple[Ranges, Ranges]:
        """What is handed out, and what is acked again."""
        news, again = self.seen.deliver(b"a", first, end, [1])
        return tuple(one[:2] for one in news), tuple(one[:2] for one in again)

    @property
    def late(self) -> list[tuple[int, int]]:
        return [(one.first, one.end) for one in self.seen.late.blocks()]


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
