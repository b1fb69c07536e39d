"""Messages that an inbox forgot at a bound: how many it remembers, and what becomes of their acks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal.core import repeats
from shoal.core.acks import Acked
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeats import Repeats
from shoal.limits import SEEN_RANGES_ALL, SEEN_RANGES_EACH, SEEN_RANGES_MAX
from shoal_contract.limits import WINDOW_MESSAGES_DEFAULT


def nothing() -> Iterator[Acked]:
    return iter(())


def scattered(count: int, **bounds: int) -> Repeats:
    """Every second message of handle 1, so many, as two inboxes share a queue; the stream is lost then."""
    seen = Repeats(PendingAcks(nothing), **bounds)
    for number in range(count):
        assert seen.deliver(b"a", 2 * number + 1, 2 * number + 2, [1]) == (
            [(2 * number + 1, 2 * number + 2, [1])],
            [],
        )
    seen.stream_ended([])
    return seen


def test_a_full_window_of_a_shared_queue_is_remembered() -> None:
    seen = scattered(WINDOW_MESSAGES_DEFAULT)
    for number in range(WINDOW_MESSAGES_DEFAULT):
        assert seen.ack(b"a", 2 * number + 1, 2 * number + 2, [1]) == []
    assert sum(one.end - one.first for one in seen.doubts()) == WINDOW_MESSAGES_DEFAULT
    assert seen.take_forgotten() == 0
    assert seen.deliver(b"a", 1, 2, [1]) == ([], [(1, 2, (1,))])


def test_acks_of_what_was_forgotten_are_sent_and_counted() -> None:
    """Whether the slice gave it again on this stream is forgotten, too: an ack that is not sent would leave it here."""
    seen = scattered(SEEN_RANGES_MAX + 2)
    assert seen.ack(b"a", 1, 2, [1], {1}) == [], "it may be of another life"
    assert seen.ack(b"a", 3, 4, [1]) == [(3, 4, (1,))]
    assert seen.ack(b"a", 5, 6, [1]) == []
    assert (seen.doubts(), seen.take_forgotten()) == ([Acked(b"a", 5, 6, [1])], 2)
    seen.stream_ended([Acked(b"a", 3, 4, [1])])
    assert seen.take_forgotten() == 1, "it has no answer"
    seen = scattered(1, entries_max=1)
    seen.deliver(b"b", 1, 2, [1])
    assert seen.ack(b"a", 1, 2, [1]) == [(1, 2, (1,))]
    assert seen.take_forgotten() == 1


def test_acks_of_what_is_acked_already_are_no_doubt() -> None:
    seen = scattered(3)
    seen.answered(b"a", ((1, 2),), [1])
    assert seen.ack(b"a", 1, 2, [1]) == []
    assert (seen.in_doubt, seen.take_forgotten()) == (False, 0)


def test_the_more_queues_and_keys_the_fewer_ranges_of_each() -> None:
    seen = Repeats(PendingAcks(nothing))
    for number in range(1_000):
        seen.deliver(b"%d" % number, 1, 2, [1])
    for number in range(1_000):
        seen.deliver(b"a", 2 * number + 1, 2 * number + 2, [1])
    assert len(seen.known(b"a", 1)) == SEEN_RANGES_ALL // 1_001
    for number in range(1_000, 10_000):
        seen.deliver(b"%d" % number, 1, 2, [1])
    seen.deliver(b"a", 10_001, 10_002, [1])
    assert len(seen.known(b"a", 1)) == SEEN_RANGES_EACH


def test_handles_out_of_step_have_the_same_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one with most ranges counts: the others may have one."""
    monkeypatch.setattr(repeats, "SEEN_RANGES_MAX", 4)
    seen = Repeats(PendingAcks(nothing))
    for number in range(4):
        seen.deliver(b"a", 2 * number + 1, 2 * number + 2, [1])
    seen.deliver(b"a", 9, 10, [1, 2])
    assert seen.known(b"a", 1) == ((3, 4), (5, 6), (7, 8), (9, 10))
    assert seen.known(b"a", 2) == ((9, 10),)
