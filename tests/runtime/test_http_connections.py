"""Which connection has to go: the pure bookkeeping, told the time."""

from __future__ import annotations

import pytest

from shoal_runtime.http import limits
from shoal_runtime.http.connections import Connections, Waits

IDLE_S = 60.0


def opened(count: int, connections_max: int = 10) -> Connections[str]:
    """Connections "0", "1", ..., opened a second apart."""
    connections = Connections[str](connections_max, IDLE_S)
    for number in range(count):
        assert connections.opened(str(number), number) is None
    return connections


def test_silence_ends_when_its_time_is_over() -> None:
    connections = opened(3)
    assert connections.late(limits.HEAD_S - 0.1) == []
    assert connections.late(limits.HEAD_S + 1) == ["0", "1"]
    assert len(connections) == 1


def test_a_part_of_a_head_buys_no_time() -> None:
    connections = opened(1)
    for now in range(1, int(limits.HEAD_S)):
        connections.waits("0", Waits.HEAD, now)
    assert connections.late(limits.HEAD_S) == ["0"]


def test_one_too_many_ends_the_silent_one_that_came_first() -> None:
    connections = opened(10)
    assert connections.opened("new", 10) == "0"
    assert connections.opened("newer", 10) == "1"
    assert len(connections) == 10


def test_an_idle_connection_goes_before_a_silent_one_whose_time_is_over_later() -> None:
    connections = opened(10)
    connections.waits("7", Waits.NEXT, 7)
    assert connections.opened("new", 9.5) == "0"
    connections.waits("9", Waits.ANSWER, 9.5)
    for number in range(1, 10):
        connections.waits(str(number), Waits.ANSWER, 9.5)
    connections.waits("7", Waits.NEXT, 10)
    connections.waits("new", Waits.HEAD, 10)
    assert connections.opened("late", 10 + IDLE_S - 1) == "new"
    connections.waits("late", Waits.ANSWER, 10 + IDLE_S - 1)
    assert connections.opened("later", 10 + IDLE_S - 1) == "7"


def test_where_all_are_being_answered_nothing_has_to_go() -> None:
    connections = opened(10)
    for number in range(10):
        connections.waits(str(number), Waits.ANSWER, 10)
    assert connections.opened("health", 10) is None
    assert len(connections) == 11


@pytest.mark.parametrize("taken", [0, limits.STEP_BYTES - 1])
def test_a_reader_that_takes_too_little_is_late(taken: int) -> None:
    connections = opened(1)
    connections.waits("0", Waits.READER, 1)
    connections.unread("0", 1 << 20, 1 << 20, 1)
    connections.unread("0", (1 << 20) - taken, 1 << 20, 20)
    assert connections.late(1 + limits.STEP_S) == ["0"]
    assert connections.held_bytes == 0


def test_a_reader_that_goes_on_is_not() -> None:
    connections = opened(1)
    connections.waits("0", Waits.READER, 1)
    for second in range(1, 200, 20):
        connections.unread("0", (1 << 20) - second * limits.STEP_BYTES // 20, 1 << 20, second)
    assert connections.late(200) == []


def test_readers_that_do_not_get_on_go_when_all_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ANSWERS_BYTES_MAX", 1000_000)
    connections = opened(4)
    for number in range(4):
        connections.waits(str(number), Waits.READER, 4)
        connections.unread(str(number), 300_000, 300_000, 4)
    connections.unread("0", 280_000, 300_000, 5)
    assert connections.late(5) == [], "they have a moment"
    assert connections.late(4 + limits.SLOW_S) == ["1"]
    assert connections.held_bytes == 900_000


def test_what_is_gone_is_forgotten() -> None:
    connections = opened(2)
    connections.waits("0", Waits.READER, 2)
    connections.unread("0", 5000, 9000, 2)
    connections.lost("0")
    connections.lost("0")
    connections.unread("0", 5000, 9000, 3)
    assert (len(connections), connections.held_bytes, connections.readers()) == (1, 0, [])


def test_beyond_twice_as_many_the_newcomer_itself_ends() -> None:
    connections = Connections[str](10, IDLE_S)
    for number in range(limits.CONNECTIONS_FACTOR * 10):
        assert connections.opened(str(number), 10) is None
        connections.waits(str(number), Waits.ANSWER, 10)
    assert connections.opened("new", 10) == "new"
    assert len(connections) == limits.CONNECTIONS_FACTOR * 10
    connections.waits("3", Waits.NEXT, 11)
    assert connections.opened("newer", 11) == "3"
