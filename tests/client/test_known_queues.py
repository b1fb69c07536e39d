"""Queues known lately are few, and trusted briefly."""

from __future__ import annotations

from shoal.known_queues import KnownQueues


def test_options_are_trusted_until_they_are_old() -> None:
    known = KnownQueues(age_s=10)
    known.declared(b"q", 60, "s01", now_s=100)
    assert known.options_of(b"q", now_s=110) == 60
    assert known.options_of(b"q", now_s=111) is None
    assert known.options_of(b"other", now_s=100) is None


def test_parts_are_remembered_until_the_queue_is_forgotten() -> None:
    known = KnownQueues()
    known.declared(b"q", 0, "s01", now_s=0)
    known.part_seen(b"q", "s02")
    known.declared(b"q", 0, "s01", now_s=1)
    assert known.has_part(b"q", "s01") and known.has_part(b"q", "s02")
    known.forget(b"q")
    assert not known.has_part(b"q", "s02")


def test_the_queue_used_longest_ago_goes_first() -> None:
    known = KnownQueues(queues_max=2)
    for queue in (b"a", b"b"):
        known.declared(queue, 0, "s01", now_s=0)
    assert known.options_of(b"a", now_s=0) == 0
    known.declared(b"c", 0, "s01", now_s=0)
    assert known.options_of(b"b", now_s=0) is None
    assert known.options_of(b"a", now_s=0) == 0
