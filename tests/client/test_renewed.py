"""Messages that are handed out anew while an earlier ack of theirs has no answer: it says nothing of them."""

from __future__ import annotations

import pytest

from shoal.core import repeats
from shoal.core.acks import AckConsumer, Acked
from shoal.core.offset_ranges import Ranges, without
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeat_rules import DropRepeats
from shoal.core.repeats import Told

KEY = b"a"
ALL: Ranges = ((1, 5),)


class Anew:
    """An inbox that acked messages, and was given them again, as their queue was bound again, before the answer."""

    def __init__(self) -> None:
        self._unanswered: list[Acked] = []
        self._pending = PendingAcks(lambda: self._unanswered)
        self.rule = DropRepeats(self._pending)
        assert self.came() == ALL
        self.ack()
        assert self.came() == ALL

    def came(self, redelivered: int = 0) -> Ranges:
        """What is handed out."""
        news, self.again = self.rule.came(KEY, 1, 5, [1], Told(3, redelivered))
        return tuple(one[:2] for one in news)

    def ack(self, first: int = 1, end: int = 5) -> None:
        self.rule.acked(KEY, first, end, [1])
        self._send(first, end)

    def ack_again(self) -> None:
        """Acks what came once more."""
        for first, end, _ in self.again:
            self._send(first, end)

    def _send(self, first: int, end: int) -> None:
        self._unanswered.append(Acked(KEY, first, end, [1]))
        self._pending.add(*self._unanswered[-1])

    def answer(self, *, acks: int = 1, late: bool = False) -> None:
        answered, self._unanswered[:acks] = self._unanswered[:acks], []
        self._pending.answered(answered)
        (self.rule.acked_late if late else self.rule.answered)(answered)

    def stream_ended(self) -> None:
        lost, self._unanswered[:] = self._unanswered[:], []
        self._pending.clear()
        self.rule.stream_ended(lost)

    @property
    def unsettled(self) -> int:
        """For how many messages a drain waits."""
        return sum(self.rule.unsettled({1}, dict, 0))


def test_a_nack_of_it_is_sent_but_for_what_was_acked_anew() -> None:
    """It was taken for acked: nobody got it again for as long as the connection lived."""
    inbox = Anew()
    inbox.ack(2, 4)
    assert inbox.rule.nacked(KEY, 1, 5, 1, True) == ((1, 2), (4, 5))
    assert inbox.came(1) == ((1, 2), (4, 5)), "what was nacked is new"


@pytest.mark.parametrize("late", [False, True])
def test_the_answer_to_the_earlier_ack_ends_nothing(late: bool) -> None:
    inbox = Anew()
    inbox.answer(late=late)
    assert inbox.unsettled == 4 and not inbox.rule.repeats.late
    inbox.stream_ended()
    assert not inbox.rule.repeats.in_doubt
    assert inbox.rule.acked_of_before(KEY, 1, 5, [1], ()) == [] and inbox.rule.repeats.in_doubt
    assert (inbox.came(1), inbox.again) == ((), [(1, 5, (1,))]), "the ack goes with what comes again"


def test_an_earlier_ack_that_a_lost_stream_left_without_an_answer_is_not_in_doubt() -> None:
    inbox = Anew()
    inbox.ack(1, 2)
    inbox.stream_ended()
    assert [one[:3] for one in inbox.rule.repeats.doubts()] == [(KEY, 1, 2)]
    assert (inbox.came(1), inbox.again) == ((), [(1, 2, (1,))]), "the program works on the rest"
    assert inbox.unsettled == 4


@pytest.mark.parametrize("together", [False, True])
def test_its_own_ack_ends_it_once_both_are_answered(together: bool) -> None:
    inbox = Anew()
    inbox.ack()
    if together:
        inbox.answer(acks=2)
    else:
        inbox.answer()
        assert inbox.unsettled == 4, "the earlier one was answered"
        inbox.answer()
    assert inbox.unsettled == 0 and not inbox.rule.repeats.renewed
    assert inbox.came() == ALL, "of yet another binding"


def test_its_own_ack_may_be_late_after_the_earlier_one_was_answered() -> None:
    """The flush told nothing, and it came again."""
    inbox = Anew()
    inbox.answer()
    inbox.ack()
    inbox.answer(late=True)
    assert inbox.rule.repeats.late.take_untold() == 4
    assert (inbox.came(1), inbox.again) == ((), [(1, 5, (1,))])


def test_it_is_no_repeat_to_be_acked_again_before_the_program_acks_it() -> None:
    inbox = Anew()
    assert (inbox.came(1), inbox.again) == ((), [])
    inbox.answer()
    assert inbox.unsettled == 4


def test_a_third_binding_before_any_answer_hands_out_what_was_acked_only() -> None:
    inbox = Anew()
    inbox.ack(1, 3)
    assert inbox.came() == ((1, 3),)
    inbox.answer()
    inbox.answer()
    assert inbox.unsettled == 4


def test_what_leaves_is_forgotten() -> None:
    inbox = Anew()
    inbox.rule.left([1])
    assert not inbox.rule.repeats.renewed


class Asked(PendingAcks):
    """Counts the questions."""

    questions = 0

    def within(self, key: bytes, consumer: AckConsumer, first: int, end: int) -> Ranges:
        self.questions += 1
        return super().within(key, consumer, first, end)


def test_after_a_nack_deliveries_to_many_queues_are_looked_at_in_one_step() -> None:
    """Each handle of each delivery was asked about until the stream ended: 40 ms for thousands of queues."""
    unanswered: list[Acked] = []
    pending, many = Asked(lambda: unanswered), list(range(1, 1001))
    rule = DropRepeats(pending)
    rule.came(b"other", 1, 2, [1])
    assert rule.nacked(b"other", 1, 2, 1, True) == ((1, 2),)
    pending.questions = 0
    for offset in range(1, 11):
        assert rule.came(KEY, offset, offset + 1, many)[0] == [(offset, offset + 1, many)]
        rule.acked(KEY, offset, offset + 1, many)
        unanswered.append(Acked(KEY, offset, offset + 1, many))
        pending.add(*unanswered[-1])
    while unanswered:
        answered = [unanswered.pop(0)]
        pending.answered(answered)
        rule.answered(answered)
    assert pending.questions == 0
    assert rule.came(b"other", 1, 2, [1], Told(0, 1))[0] == [(1, 2, [1])], "what was nacked is new"


def test_an_ack_for_many_queues_of_which_one_holds_more_looks_once_at_what_they_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It looked at the ranges of each of thousands: 4 ms for each ack, while one queue held a message more."""
    looked: list[Ranges] = []

    def noted(ranges: Ranges, taken: Ranges) -> Ranges:
        looked.append(taken)
        return without(ranges, taken)

    rule, many = DropRepeats(PendingAcks(list)), list(range(1, 1001))
    rule.came(KEY, 1, 2, many[:1])
    rule.came(KEY, 2, 3, many)
    monkeypatch.setattr(repeats, "without", noted)
    rule.acked(KEY, 2, 3, many)
    assert sorted(looked) == [((1, 3),), ((2, 3),)]


def test_what_was_nacked_and_acked_twice_is_with_the_program_until_it_acks_it_anew() -> None:
    inbox = Anew()
    inbox.answer()
    assert inbox.rule.nacked(KEY, 1, 5, 1, True) == ALL
    inbox.ack()
    inbox.ack()
    inbox.answer()
    assert inbox.came(1) == ALL, "between the answers of both"
    inbox.answer()
    assert inbox.unsettled == 4
    inbox.ack()
    inbox.answer()
    assert inbox.unsettled == 0 and not inbox.rule.repeats.renewed


def test_two_earlier_acks_of_a_message_for_different_queues_are_answered_in_one_frame() -> None:
    """The second of them was taken for the program's ack of what it was handed out anew: a drain did not wait."""
    unanswered: list[Acked] = []
    pending = PendingAcks(lambda: unanswered)
    rule = DropRepeats(pending)
    rule.came(KEY, 1, 2, [1, 2])
    for handle in (1, 2):
        rule.nacked(KEY, 1, 2, handle, True)
    for handles in ([1, 2], [1]):
        rule.acked(KEY, 1, 2, handles)
        unanswered.append(Acked(KEY, 1, 2, handles))
        pending.add(*unanswered[-1])
    assert rule.came(KEY, 1, 2, [1, 2], Told(1, 1))[0] == [(1, 2, [1, 2])]
    answered, unanswered[:] = unanswered[:], []
    pending.answered(answered)
    rule.answered(answered)
    assert sum(rule.unsettled({1, 2}, dict, 0)) == 2


@pytest.mark.parametrize("one_by_one", [False, True])
def test_it_is_given_back_unseen_and_comes_once_more_before_the_answer(one_by_one: bool) -> None:
    """The answer took it for done, though the program had it by then, and a drain did not wait for it."""
    inbox = Anew()
    if one_by_one:
        assert inbox.rule.forgotten(KEY, 1, 5, 1, True) == ALL
    else:
        assert inbox.rule.given_back(KEY, 1, 5, [1], True) == [(1, 5, [1])]
    assert inbox.came() == ALL
    inbox.answer()
    assert inbox.unsettled == 4


def test_what_the_inbox_acked_again_may_come_anew_between_both_answers() -> None:
    """It was taken back at its ack timeout, and its queue was bound again then."""
    inbox = Anew()
    inbox.ack()
    inbox.answer(acks=2)
    assert inbox.came() == ALL
    inbox.ack()
    assert (inbox.came(1), inbox.again) == ((), [(1, 5, (1,))])
    inbox.ack_again()
    inbox.answer()
    assert inbox.came() == ALL
    inbox.answer()
    assert inbox.unsettled == 4
