"""What is handed out again and what is not, against a small model; memory is bounded (correctness M5)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import repeats
from shoal.core.acks import AckConsumer, Acked
from shoal.core.handled_ranges import HandledRange
from shoal.core.offset_ranges import Ranges, count, with_range, within, without_range
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeat_rules import DropRepeats
from shoal.core.repeats import Repeats
from shoal.limits import SEEN_RANGES_MAX

SPANS = st.tuples(st.integers(1, 9), st.integers(1, 4)).map(lambda span: (span[0], span[0] + span[1]))
Message = tuple[bytes, int, int]
"""key, handle, offset."""


def offsets(ranges: Ranges) -> set[int]:
    return {offset for low, high in ranges for offset in range(low, high)}


@given(st.lists(st.tuples(st.booleans(), SPANS), max_size=40), SPANS)
def test_ranges_agree_with_a_set_of_offsets(steps: list[tuple[bool, tuple[int, int]]], look: tuple[int, int]) -> None:
    ranges: Ranges = ()
    model: set[int] = set()
    for adds, (first, end) in steps:
        span = set(range(first, end))
        if adds:
            ranges, new = with_range(ranges, first, end)
            assert offsets(new) == span - model
            model |= span
        else:
            ranges = without_range(ranges, first, end)
            model -= span
        assert offsets(ranges) == model and count(ranges) == len(model)
        assert all(one[1] < two[0] for one, two in pairwise(ranges)), "ascending and apart"
        assert offsets(within(ranges, *look)) == model & set(range(*look))


class Model:
    """An application and a slice around `Repeats`; whatever its bounds forget, no message is swallowed."""

    def __init__(self, exact: bool) -> None:
        self.exact = exact
        """Nothing is forgotten for want of room: what is handed out is known exactly."""
        self.pending: list[Acked] = []
        self.stream = 1
        self.held: dict[Message, int] = {}
        """What the application has and has not acked, with the stream that brought it last."""
        self.remembered: set[Message] = set()
        """Handed out, and not known to be acked: a repeat."""
        self.acked: set[Message] = set()
        """Acked by the application, and not known to be durable."""
        self.settled: set[Message] = set()
        """Acked on an earlier stream, and durable as the slice says; they may still be on their way."""
        self.renewed: set[Message] = set()
        """Handed out anew while an earlier ack has no answer, and not acked since."""
        self.acked_anew: set[Message] = set()
        """Of these, the ones that were acked since."""
        self.given: dict[Message, int] = {}
        """What the slice has given on this stream, and has no ack of: the step in which it gave it last."""
        self.sent_at: list[int] = []
        """The step in which each of `pending` was sent."""
        self.step = 0
        self.pending_acks = PendingAcks(lambda: self.pending)
        self.repeats = Repeats(self.pending_acks, 1000 if exact else 2)

    def deliver(self, key: bytes, span: tuple[int, int], handles: list[int]) -> None:
        came = {(key, handle, offset) for handle in handles for offset in range(*span)}
        sent = messages(key, [(block.first, block.end, block.consumers) for block in self.pending if block.key == key])
        news, acked_again = self.repeats.deliver(key, *span, handles)
        new, again = messages(key, news), messages(key, acked_again)
        assert len(new) == sum((end - first) * len(same) for first, end, same in news), "nothing twice"
        assert new | again <= came and not new & again
        assert new >= came - self.remembered, "what is not known is handed out"
        if self.exact:
            assert new == came - self.remembered
            assert again == came & self.remembered & (self.acked | self.settled | (sent - self.renewed))
        for message in came - new - again:
            assert message in self.held, "what is neither handed out nor acked, the application has and may still ack"
        self.step += 1
        self.given |= dict.fromkeys(came, self.step)
        self.held |= dict.fromkeys(came & (new | self.held.keys()), self.stream)
        self.remembered |= new
        self.renewed |= new & sent
        self.acked_anew -= new
        self.acked -= again | new
        self.settled -= again | new
        self.send(key, acked_again)

    def ack(self, key: bytes, span: tuple[int, int], handles: list[int]) -> None:
        for handle in handles:
            for offset in range(*span):
                message = (key, handle, offset)
                if message in self.held:
                    self.ack_one(message, self.held.pop(message))

    def ack_one(self, message: Message, stream: int) -> None:
        key, handle, offset = message
        if stream == self.stream:
            self.acked_anew |= self.renewed & {message}
            self.renewed.discard(message)
            self.repeats.acked(key, offset, offset + 1, [handle])
            self.send(key, [(offset, offset + 1, (handle,))])
            return
        sent = self.repeats.ack(key, offset, offset + 1, [handle])
        assert not (sent and self.exact), "it has not come again on this stream, so its ack would do nothing"
        if sent:
            self.pending.append(Acked(key, offset, offset + 1, [handle]))
            self.pending_acks.add(key, offset, offset + 1, [handle])
            self.sent_at.append(self.step)
        else:
            self.acked.add(message)

    def send(self, key: bytes, parts: Sequence[HandledRange]) -> None:
        for first, end, same in parts:
            self.pending.append(Acked(key, first, end, same))
            self.pending_acks.add(key, first, end, same)
            self.sent_at.append(self.step)
            if self.exact:
                assert messages(key, [(first, end, same)]) <= self.given.keys(), "an ack works on what this stream gave"

    def answer(self) -> None:
        """The slice has the oldest ack, durably. It does not give these again, but for another binding."""
        if self.pending:
            key, first, end, same = self.pending.pop(0)
            sent_at = self.sent_at.pop(0)
            self.pending_acks.answered([Acked(key, first, end, same)])
            self.repeats.acks_answered([Acked(key, first, end, same)])
            done, left = messages(key, [(first, end, same)]), messages_of(self.pending)
            for message in done:
                if self.given.get(message, sent_at + 1) <= sent_at:  # Else it was given again since.
                    del self.given[message]
            self.remembered -= done - self.renewed - (self.acked_anew & left)
            self.acked -= done - self.renewed
            self.renewed -= done - left
            self.acked_anew -= done

    def settle(self, chance: random.Random) -> None:
        """The slice says of some acks in doubt that it has them."""
        doubts = self.repeats.doubts()
        found = messages_of(doubts)
        assert len(found) == sum((one.end - one.first) * len(one.consumers) for one in doubts), "nothing twice"
        assert found == self.acked or (not self.exact and found <= self.acked)
        for key, first, end, same in doubts:
            handles = [handle for handle in same if chance.random() < 0.5]
            self.repeats.settled([Acked(key, first, end, handles)] if handles else [])
            some = messages(key, [(first, end, handles)])
            self.acked -= some
            self.settled |= some

    def lose_stream(self) -> None:
        lost, self.pending, self.sent_at = self.pending, [], []
        self.pending_acks.clear()
        self.remembered -= self.settled  # Nothing is on its way any more, and the slice does not give them again.
        self.settled = set()
        self.acked |= messages_of(lost) - (self.renewed if self.exact else set())
        self.renewed, self.acked_anew = set(), set()
        self.acked &= self.remembered
        self.repeats.stream_ended(lost)
        self.stream += 1
        self.given = {}

    def end_lives(self, handles: list[int]) -> None:
        """Messages of the ended life cannot be acked any more."""
        self.repeats.forget(handles)
        for book in (self.remembered, self.acked, self.settled, self.renewed, self.acked_anew):
            book -= {message for message in book if message[1] in handles}
        self.given = {message: step for message, step in self.given.items() if message[1] not in handles}
        self.held = {message: stream for message, stream in self.held.items() if message[1] not in handles}
        left = [
            block._replace(consumers=[one for one in block.consumers if one not in handles]) for block in self.pending
        ]
        self.sent_at = [at for at, block in zip(self.sent_at, left, strict=True) if block.consumers]
        self.pending = [block for block in left if block.consumers]
        self.pending_acks.clear()

    def remembers_no_more_than_was_handed_out(self) -> None:
        for key in (b"a", b"b"):
            for handle in range(1, 4):
                known = {(key, handle, offset) for offset in offsets(self.repeats.known(key, handle))}
                assert known <= self.remembered
                if self.exact:
                    assert known == {one for one in self.remembered if one[:2] == (key, handle)}
        if self.exact:
            assert self.repeats.in_doubt == bool(self.acked)

    def keeps_nothing_else(self) -> None:
        """What is kept of messages is kept of remembered ones only, and of each handle within the bound."""
        for book in (self.repeats._acked, self.repeats._doubt, self.repeats._again):
            for (key, handle), ranges in book.items():
                if self.exact or book is not self.repeats._again:
                    assert offsets(ranges) <= offsets(self.repeats.known(key, handle))
                assert len(ranges) <= repeats.SEEN_RANGES_MAX  # type: ignore[attr-defined]


def messages(key: bytes, parts: Sequence[tuple[int, int, Sequence[AckConsumer]]]) -> set[Message]:
    found = [(key, handle, offset) for first, end, same in parts for handle in same for offset in range(first, end)]
    return set(found)  # type: ignore[arg-type]  # handles


def messages_of(blocks: Sequence[Acked]) -> set[Message]:
    return {one for key, first, end, same in blocks for one in messages(key, [(first, end, same)])}


def walk(seed: int, exact: bool) -> None:
    """Some steps at random, all checked."""
    chance = random.Random(seed)
    model, steps = Model(exact), []
    for _ in range(chance.randint(4, 40)):
        first = chance.randint(1, 8)
        span, key = (first, first + chance.randint(1, 4)), chance.choice([b"a", b"b"])
        handles = chance.sample([1, 2, 3], chance.randint(1, 3))
        step: tuple[str, Any] = chance.choices(
            [
                ("deliver", (key, span, handles)),
                ("ack", (key, span, handles)),
                ("answer", ()),
                ("lose_stream", ()),
                ("settle", (chance,)),
                ("end_lives", (handles,)),
            ],
            [8, 5, 4, 2, 2, 1],
        )[0]
        steps.append(step)
        try:
            getattr(model, step[0])(*step[1])
            model.remembers_no_more_than_was_handed_out()
            model.keeps_nothing_else()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error} after {steps}") from error


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_repeats_are_found_as_the_model_finds_them(monkeypatch: pytest.MonkeyPatch, exact: bool, seed: int) -> None:
    if not exact:
        monkeypatch.setattr(repeats, "SEEN_RANGES_MAX", 2)
        monkeypatch.setattr(repeats, "FORGOTTEN_HANDLES_MAX", 1)
    for number in range(700):
        walk(seed * 10_000 + number, exact)


def nothing() -> Iterator[Acked]:
    return iter(())


def test_handles_in_step_stay_one_part() -> None:
    seen = Repeats(PendingAcks(nothing))
    handles = [1, 2, 3]
    assert seen.deliver(b"key", 5, 9, handles) == ([(5, 9, handles)], [])
    assert seen.deliver(b"key", 9, 12, handles) == ([(9, 12, handles)], [])
    assert seen.deliver(b"key", 9, 12, handles) == ([], [])
    seen.answered(b"key", ((5, 12),), handles)
    assert not seen._keys, "what is done takes no memory"


def test_forgets_the_key_used_longest_ago() -> None:
    seen = Repeats(PendingAcks(nothing), entries_max=4)
    seen.deliver(b"a", 1, 2, [1, 2])
    seen.deliver(b"b", 1, 2, [1, 2])
    seen.deliver(b"a", 2, 3, [1, 2])
    seen.deliver(b"c", 1, 2, [1])
    assert seen.known(b"a", 1) == ((1, 3),)
    assert seen.known(b"b", 1) == ()


def test_forgets_the_lowest_ranges() -> None:
    seen = Repeats(PendingAcks(nothing))
    for number in range(SEEN_RANGES_MAX + 1):
        seen.deliver(b"a", 10 * number + 1, 10 * number + 2, [1])
    assert seen.known(b"a", 1)[0] == (11, 12)
    assert seen.unacked(1) == SEEN_RANGES_MAX


def in_doubt(count: int, **bounds: int) -> Repeats:
    """Every second of so many messages of handle 1 is acked, and the stream is lost then."""
    seen = Repeats(PendingAcks(nothing), **bounds)
    seen.deliver(b"a", 1, 2 * count + 1, [1])
    seen.stream_ended(Acked(b"a", 2 * number, 2 * number + 1, [1]) for number in range(1, count + 1))
    return seen


def test_what_the_slice_has_is_not_in_doubt_and_stays_a_repeat_until_the_stream_ends() -> None:
    seen = in_doubt(2)
    seen.settled([Acked(b"a", 2, 3, [1])])
    assert seen.doubts() == [Acked(b"a", 4, 5, [1])]
    assert seen.deliver(b"a", 2, 3, [1]) == ([], [(2, 3, (1,))]), "it was on its way"
    seen.settled([Acked(b"a", 4, 5, [1])])
    assert not seen.in_doubt and seen.known(b"a", 1) == ((1, 5),)
    seen.stream_ended([])
    assert seen.known(b"a", 1) == ((1, 4),), "what comes again from now on is of another binding"
    assert seen.take_forgotten() == 0


def test_doubts_that_are_forgotten_are_counted() -> None:
    seen = in_doubt(SEEN_RANGES_MAX + 3)
    assert len(seen.doubts()) == SEEN_RANGES_MAX
    assert (seen.take_forgotten(), seen.take_forgotten()) == (3, 0)
    seen = in_doubt(5, entries_max=1)
    seen.deliver(b"b", 1, 2, [1])
    assert (seen.in_doubt, seen.take_forgotten()) == (False, 5)
    seen = in_doubt(5)
    for number in range(SEEN_RANGES_MAX):
        seen.deliver(b"a", 100 + 2 * number, 101 + 2 * number, [1])
    assert (seen.in_doubt, seen.take_forgotten()) == (False, 5)


def test_doubts_of_queues_that_ended_left_or_were_taken_over_are_none() -> None:
    for leave in (Repeats.forget, Repeats.forget_doubts):
        seen = in_doubt(5)
        leave(seen, [1])
        assert (seen.in_doubt, seen.take_forgotten()) == (False, 0)


def test_many_ends_of_lives_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "FORGOTTEN_HANDLES_MAX", 10)
    seen = Repeats(PendingAcks(nothing))
    for number in range(1000):
        seen.deliver(b"a", 1, 2, [number % 7])
        seen.forget([number % 7])
        assert len(seen._forgotten) <= 10
    assert seen._entries <= 7 and not seen.known(b"a", 3)


def test_queues_that_leave_with_unacked_messages_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "FORGOTTEN_HANDLES_MAX", 10)
    rule = DropRepeats(PendingAcks(nothing))
    rule.came(b"topic", 1, 2, [1])
    for number in range(2, 1_000):
        rule.came(b"topic", number, number + 1, [number])
        rule.came(b"own-%d" % number, 1, 2, [number])
        rule.left([number])
        assert rule.repeats._entries <= 2 * 12 and len(rule.repeats._keys) <= 12
    assert list(rule.repeats.unanswered({1})) == [1], "what stays is remembered"
    assert rule.came(b"topic", 1, 2, [1]) == ([], [])


def test_what_another_session_had_for_a_while_stays_a_repeat() -> None:
    rule = DropRepeats(PendingAcks(nothing))
    rule.came(b"k", 1, 3, [7])
    rule.taken_over([7])
    assert rule.came(b"k", 1, 4, [7]) == ([(3, 4, [7])], []), "the program still has the first two"


def test_of_one_key_with_too_many_queues_those_are_forgotten_that_it_had_for_longest() -> None:
    seen = Repeats(PendingAcks(nothing), entries_max=80)
    for handle in range(1, 1_001):
        seen.deliver(b"a", 1, 2, [handle])
        assert len(seen._keys[b"a"].marks) == seen._entries <= 80
    assert seen.known(b"a", 1_000) == ((1, 2),) and not seen.known(b"a", 920)
    assert seen.deliver(b"a", 1, 2, [1, 1_000]) == ([(1, 2, [1])], []), "it is a repeat, and handed out"
    seen.deliver(b"b", 1, 2, list(range(1, 11)))
    assert len(seen.known(b"a", 1_000)) == 1, "another key does not end all that a large one has"


def test_to_forget_many_handles_costs_a_key_no_more_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "FORGOTTEN_HANDLES_MAX", 5_000)
    seen = Repeats(PendingAcks(nothing))
    for number in range(1, 5_001):
        seen.deliver(b"%d" % number, 1, 2, [number])
    looks = 0

    class Places(dict[int, int]):
        def get(self, handle: int, other: int = -1) -> int:  # type: ignore[override]  # as it is called
            nonlocal looks
            looks += 1
            return super().get(handle, other)

    class Handles(list[int]):
        def __getitem__(self, places: Any) -> Any:
            nonlocal looks
            found = super().__getitem__(places)
            looks += len(found)
            return found

    seen._forgotten, seen._forgotten_at = Handles(), Places()
    for number in range(10_000, 15_001):
        seen.forget([number])
    assert not seen._forgotten and looks <= seen._entries == 5_000


def test_what_was_acked_on_an_earlier_stream_is_not_given_back() -> None:
    rule = DropRepeats(PendingAcks(nothing))
    assert rule.came(b"k", 1, 4, [7]) == ([(1, 4, [7])], [])
    rule.stream_ended(())
    assert rule.acked_of_before(b"k", 1, 2, [7], ()) == []
    assert rule.given_back(b"k", 1, 4, [7], now=True) == [(2, 4, (7,))]
    assert rule.came(b"k", 1, 4, [7]) == ([(2, 4, [7])], [(1, 2, (7,))])
