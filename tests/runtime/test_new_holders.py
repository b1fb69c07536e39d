"""New connections that do not acknowledge gRPC's settings, so that the bound of headers does not apply, end first."""

from __future__ import annotations

import pytest

from shoal_runtime.growth import Growth
from shoal_runtime.limits import NEW_S, NEW_UNREAD_BYTES_LARGE, NEW_UNREAD_BYTES_MIN, SHARE_FALL_S
from tests.runtime.held import MIB, Held

SOME_MIB = NEW_UNREAD_BYTES_MIN / MIB
MUCH_MIB = NEW_UNREAD_BYTES_LARGE / MIB
NOW_S = 100.0


def grown(monkeypatch: pytest.MonkeyPatch, from_mib: int, grew_mib_max: int = 1 << 20) -> Held:
    """A process that held so much a moment ago."""
    held = Held(monkeypatch, grew_mib_max * MIB)
    held.now_s = NOW_S
    held.bytes = from_mib * MIB
    held.guard._pause_s()
    held.now_s += 1.0
    return held


def test_a_growth_is_what_came_on_top_of_the_least_of_the_last_seconds() -> None:
    growth = Growth(5.0)
    assert [growth.add(now_s, held) for now_s, held in enumerate((50, 40, 60, 45, 70))] == [0, 0, 20, 5, 30]
    assert growth.add(7, 70) == 25, "40 was longer ago"
    growth.begin(8, 70)
    assert growth.add(9, 90) == 20


def test_while_memory_is_short_and_grew_new_clients_with_unread_bytes_end_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """63 connections had sent 0.6 MB each, and gRPC held 855 MiB for them."""
    held = grown(monkeypatch, 60)
    held.come(1, MUCH_MIB)
    for port in (2, 3, 4):
        held.come(port, port * MUCH_MIB, since_s=NOW_S)
    assert held.after(140) == [4, 3, 2]
    assert not held.after(140), "it did not grow since"


def test_none_ends_by_chance_while_what_the_ended_ones_held_becomes_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """512 of 600 watchers were hung up on, while the loop took the calls of connections that had ended."""
    held = grown(monkeypatch, 60)
    for port in range(1_000):
        held.come(port, 0, 0, 0)
    held.come(2_000, MUCH_MIB, since_s=NOW_S)
    assert held.after(300) == [2_000]
    for held_mib in range(290, 130, -10):
        held.now_s += 0.5
        assert not held.after(held_mib)
    held.now_s += SHARE_FALL_S * 2
    assert held.after(130), "it stays"


def test_of_those_with_little_as_many_end_as_may_hold_the_excess_and_those_that_were_not_read_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = grown(monkeypatch, 100)
    for port in range(100):
        held.come(port, SOME_MIB, since_s=NOW_S)
    held.come(200, 0, since_s=NOW_S)
    held.come(201, 0, since_s=NOW_S)
    held.clients["c", 201].calls = 0
    ended = held.after(130)
    assert 30 <= len(ended) - 1 < 50 and 200 not in ended and 201 in ended


def test_new_clients_are_let_be_where_the_process_did_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else holds the memory, and publishers come back."""
    held = grown(monkeypatch, 140)
    held.come(1, MUCH_MIB, since_s=NOW_S)
    assert not held.after(140)
    held.now_s += NEW_S
    assert not held.after(150), "it has acknowledged them"


def test_many_ordinary_clients_that_come_at_once_explain_a_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """One large Locate among 1,600 watchers that begin is no attack."""
    held = grown(monkeypatch, 20, grew_mib_max=64)
    for port in range(1_600):
        held.come(port, 0.0005, since_s=NOW_S)
    held.come(2_000, 2, since_s=NOW_S)
    assert not held.after(100)
    assert 2_000 in held.after(300)


def test_a_process_that_should_not_grow_does_not_wait_until_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    held = grown(monkeypatch, 20, grew_mib_max=10)
    held.guard._took_s = 0.01
    held.come(1, 0.001, since_s=NOW_S)
    assert not held.after(60), "a watcher"
    held.come(2, MUCH_MIB, since_s=NOW_S)
    assert held.guard._pause_s() == pytest.approx(0.05), "looks come often"
    assert held.after(60) == [2]
