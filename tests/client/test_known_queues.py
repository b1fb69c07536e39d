"""Queues known lately are few, and trusted briefly."""

from __future__ import annotations

from shoal.core.known_queues import KnownQueues, Life, same_life
from shoal_contract.options import DURABLE, QueueOptions


def test_options_are_trusted_until_they_are_old() -> None:
    known = KnownQueues(age_s=10)
    known.declared(b"q", Life(QueueOptions(60), 7), "s01", now_s=100)
    assert known.life_of(b"q", now_s=110) == Life(QueueOptions(60), 7)
    assert known.life_of(b"q", now_s=111) is None
    assert known.life_of(b"other", now_s=100) is None


def test_parts_are_remembered_until_the_queue_is_forgotten() -> None:
    known = KnownQueues()
    known.declared(b"q", Life(DURABLE, 7), "s01", now_s=0)
    known.part_seen(b"q", "s02")
    known.declared(b"q", Life(DURABLE, 7), "s01", now_s=1)
    assert known.has_part(b"q", "s01") and known.has_part(b"q", "s02")
    known.forget(b"q")
    assert not known.has_part(b"q", "s02")


def test_the_queue_used_longest_ago_goes_first() -> None:
    known = KnownQueues(queues_max=2)
    for queue in (b"a", b"b"):
        known.declared(queue, Life(DURABLE, 7), "s01", now_s=0)
    assert known.life_of(b"a", now_s=0) == Life(DURABLE, 7)
    known.declared(b"c", Life(DURABLE, 7), "s01", now_s=0)
    assert known.life_of(b"b", now_s=0) is None
    assert known.life_of(b"a", now_s=0) == Life(DURABLE, 7)


def test_parts_of_another_life_are_not_known() -> None:
    known = KnownQueues()
    known.declared(b"q", Life(DURABLE, 7), "s01", now_s=0)
    known.part_seen(b"q", "s02")
    known.declared(b"q", Life(DURABLE, 8), "s01", now_s=1)
    assert known.has_part(b"q", "s01") and not known.has_part(b"q", "s02")


def test_what_is_not_known_may_be_the_same_life() -> None:
    assert same_life(7, 7) and same_life(0, 7) and same_life(7, 0)
    assert not same_life(7, 8)
