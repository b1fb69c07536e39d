"""The comparison finds each kind of fault, and none where there is none."""

from __future__ import annotations

import random

import pytest

from shoal_ops.replay.comparison import Mismatches, compare
from shoal_ops.replay.expectation import Expectation
from shoal_ops.replay.offsets import Offsets
from shoal_ops.replay.ranges import merged, without
from shoal_ops.replay.received import Received

KEY = b"group"
FIRST_OFFSET = 7
"""Of the group's first message: offsets and message numbers must not be taken for each other."""


class Story:
    """anna gets messages 0-2, ben 1-3, then anna comes back for 4-5."""

    def __init__(self) -> None:
        self.expectation, self.offsets, self.received = Expectation(), Offsets(), Received()
        self.wrong: list[str] = []
        fold = self.expectation
        fold.join(KEY, b"anna")
        self._say(1)
        fold.join(KEY, b"ben")
        self._say(2)
        fold.leave(KEY, b"anna")
        self._say(1)
        fold.leave(KEY, b"ben")
        fold.join(KEY, b"anna")
        self._say(2)

    def _say(self, count: int) -> None:
        for _ in range(count):
            number = len(self.expectation.groups[KEY].digests) if KEY in self.expectation.groups else 0
            self.expectation.say(KEY, b"body %d" % number)
            self.offsets.record(number, FIRST_OFFSET + number)

    def give(self, first: int, end: int, *queues: bytes, body: bytes = b"body %d") -> None:
        bodies = [body % number for number in range(first, end)]
        for disorder in self.received.add(KEY, FIRST_OFFSET + first, bodies, queues):
            self.wrong.append(f"{disorder.queue.decode()} {disorder.offset - FIRST_OFFSET} {disorder.problem}")

    def all_but_last(self) -> None:
        self.give(0, 1, b"anna")
        self.give(1, 3, b"anna", b"ben")
        self.give(3, 4, b"ben")

    def found(self) -> list[str]:
        mismatches = Mismatches()
        compare(KEY, self.expectation.groups[KEY], self.offsets, self.received.keys.get(KEY), mismatches)
        shown = [
            f"{found.queue} {found.offset - FIRST_OFFSET}+{found.messages} {found.problem}"
            for found in mismatches.first
        ]
        assert mismatches.count == sum(found.messages for found in mismatches.first)
        return self.wrong + shown


def test_what_was_due_is_no_mismatch() -> None:
    story = Story()
    story.all_but_last()
    story.give(4, 6, b"anna")
    assert story.found() == []
    assert story.received.messages == story.expectation.deliveries == 8


def test_nothing_received_is_all_missing() -> None:
    assert Story().found() == ["anna 0+3 missing", "anna 4+2 missing", "ben 1+3 missing"]


def test_a_missing_last_message_is_found() -> None:
    story = Story()
    story.all_but_last()
    story.give(4, 5, b"anna")
    assert story.found() == ["anna 5+1 missing"]


def test_a_message_after_leaving_is_found() -> None:
    story = Story()
    story.all_but_last()
    story.give(4, 6, b"anna", b"ben")
    assert story.found() == ["ben 4+2 not for this queue"]


def test_a_message_of_a_stranger_is_found() -> None:
    story = Story()
    story.all_but_last()
    story.give(4, 6, b"anna")
    story.give(2, 3, b"carl")
    assert story.found() == ["carl 2+1 not for this queue"]


def test_another_body_is_found_once_however_many_got_it() -> None:
    story = Story()
    story.give(0, 1, b"anna")
    story.give(1, 3, b"anna", b"ben", body=b"changed %d")
    story.give(3, 4, b"ben")
    story.give(4, 6, b"anna")
    assert story.found() == [" 1+1 another body than was published", " 2+1 another body than was published"]


def test_two_bodies_at_one_offset_are_found() -> None:
    story = Story()
    story.all_but_last()
    story.give(4, 6, b"anna")
    story.give(4, 5, b"anna", body=b"other %d")
    assert " 4 two bodies at one offset" in story.found()


def test_disorder_is_found_though_the_content_is_whole() -> None:
    story = Story()
    story.give(1, 3, b"anna", b"ben")
    story.give(0, 1, b"anna")
    story.give(3, 4, b"ben")
    story.give(4, 6, b"anna")
    assert story.found() == ["anna 0 out of order: 1 given after offset 9"]


def test_repeats_are_counted_and_no_mismatch() -> None:
    story = Story()
    story.all_but_last()
    story.give(1, 3, b"anna", b"ben")
    story.give(0, 3, b"anna")
    story.give(4, 6, b"anna")
    assert story.found() == []
    assert (story.received.messages, story.received.repeats) == (8, 7)


def test_any_cut_of_deliveries_with_repeats_is_accepted_and_any_loss_is_found() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    for _ in range(300):
        story, due = Story(), {b"anna": [0, 1, 2, 4, 5], b"ben": [1, 2, 3]}
        lost = chance.choice([None, (b"anna", 4), (b"ben", 2), (b"anna", 0)])
        for queue, numbers in due.items():
            kept = [number for number in numbers if (queue, number) != lost]
            for number in kept:
                again = chance.randrange(number + 1)
                first = min(n for n in kept if again <= n and set(range(n, number + 1)) <= set(kept))
                story.give(first, number + 1, queue)
        assert bool(story.found()) == (lost is not None)


def test_offsets_that_jump_are_followed() -> None:
    offsets = Offsets()
    for number, offset in enumerate([3, 4, 0, 9, 10, 20]):
        offsets.record(number, offset)
    assert offsets.ranges([(0, 6)]) == ((3, 5), (9, 11), (20, 21))
    assert offsets.ranges([(1, 4)]) == ((4, 5), (9, 10))
    assert offsets.runs(4, 6) == [(10, 11, 4), (20, 21, 5)]


@pytest.mark.parametrize("seed", range(20))
def test_ranges_agree_with_sets(seed: int) -> None:
    chance = random.Random(seed)
    drawn = [[(low, low + chance.randrange(4)) for low in chance.sample(range(30), 6)] for _ in range(2)]
    ours, others = (merged(ranges) for ranges in drawn)
    members = [{n for first, end in ranges for n in range(first, end)} for ranges in drawn]
    assert {n for first, end in without(ours, others) for n in range(first, end)} == members[0] - members[1]


def test_set_semantics_hold() -> None:
    fold = Expectation()
    assert not fold.leave(KEY, b"anna")
    assert fold.join(KEY, b"anna")
    assert not fold.join(KEY, b"anna")
    assert fold.say(KEY, b"a").queues == 1
    assert fold.leave(KEY, b"anna")
    assert fold.say(KEY, b"b").queues == 0
    assert (fold.deliveries, fold.groups[KEY].windows(b"anna")) == (1, [(0, 1)])
