"""Where a process holds too much, connections end for what they hold, and no more than needed."""

from __future__ import annotations

import pytest

from shoal_runtime.limits import (
    BUDGET_LOOK_S,
    COLLECT_S,
    DOORS_S,
    RESTS_S,
    SHARE_ENDED_MAX,
    SHARE_PUT_OFF_S,
    SHARE_RESTS_S,
    SHARE_WAIT_S,
    UNREAD_ENDED_AT_ONCE_BYTES,
    UNREAD_LOOK_S,
    UNREAD_LOOKS,
)
from tests.runtime.held import MIB, PORT, SHORT, Held


def test_those_with_most_end_until_it_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    for port, size_mib in enumerate((1, 15, 14, 9, 0)):
        held.come(port, *[size_mib] * UNREAD_LOOKS)
    assert not held.after(120)
    assert held.after(126) == [1, 2]
    assert held.after(126) == [3, 0], "what was counted was not held: those come next that do hold it"


def test_what_just_comes_is_nothing_but_very_much_is(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.come(1, 0, 0, 15)
    for port in (2, 3, 4):
        held.come(port, 0, 0, port * UNREAD_ENDED_AT_ONCE_BYTES / MIB)
    assert held.after(140) == [4, 3, 2], "all of them: no calls of a connection hold as much"


def test_while_some_end_no_new_ones_come_for_a_second_and_then_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that had been hung up on was back sooner than what it had held was free: 2,500 MiB of 512. But who kept
    the doors shut so shut all newcomers out: their kernels try again after 1, 3, 7 and 15 seconds."""
    held = Held(monkeypatch)
    held.now_s = 100.0
    shut = []
    for number in range(50):
        held.come(number, 7, 7, 7)
        assert held.after(126) == [number]
        shut.append(held.shut)
        held.now_s += 0.1
    longest = max(len(part) for part in "".join("x" if one else " " for one in shut).split())
    assert shut[0] and longest <= 11 and 20 <= sum(shut) <= 30
    held.now_s += DOORS_S
    held.after(100)
    held.now_s += DOORS_S
    held.after(100)
    assert not held.shut


def buffered(held: Held, port: int, burst: int, rests_since_s: float, calls: int = 0) -> None:
    """A client on which so much came at once."""
    held.come(port, 0, 0, 0)
    client = held.clients["c", port]
    client.burst, client.rests_since_s, client.calls = burst, rests_since_s, calls


def test_where_nothing_is_unread_those_end_on_which_much_came_first_those_that_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """gRPC's buffers of 3,300 connections that had sent one large request each were 920 MiB, and no connection ended;
    nor later, where each had a call, or sent nine bytes every 3 s."""
    monkeypatch.setattr("shoal_runtime.endings.CONNECTIONS_ENDED_PER_LOOK", 2)
    monkeypatch.setattr("shoal_runtime.memory_guard.FUTILE_PARTS", 1_000)
    monkeypatch.setattr("shoal_runtime.memory_guard.SHARE_FUTILE_PARTS", 1_000)
    held = Held(monkeypatch)
    held.now_s = 100.0
    held.after(50)
    for port, burst in enumerate((1 << 20, 3 << 20, 5_000, 2 << 20)):
        buffered(held, port, burst, 90.0 + port)
    buffered(held, 5, 4 << 20, 100.0, calls=1)
    buffered(held, 6, 5_000, 100.0, calls=1)
    assert held.after(126) == [0, 1], "all three hold as much as gRPC keeps at most: the oldest first"
    assert held.after(126) == [3, 2]
    assert held.after(126) == [], "what those held is not free yet"
    held.now_s += SHARE_WAIT_S
    assert sorted(held.after(126)) == [5, 6]


def crowd(held: Held, first: int, count: int, burst: int, calls: int) -> range:
    ports = range(first, first + count)
    for port in ports:
        buffered(held, port, burst, 100.0, calls)
    return ports


def test_connections_without_calls_end_before_any_session_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """3,200 consumers beside 15,000 idle connections, which count as nothing: 512 consumers were hung up on at a time,
    and no idle connection ever."""
    held = Held(monkeypatch)
    held.now_s = 100.0
    crowd(held, 0, 2_000, 0, 1)
    for port in range(10_000, 15_000):
        buffered(held, port, 0, 0.01 * (port - 10_000))
    ended = held.after(126)
    assert ended == list(range(10_000, 10_000 + len(ended))) and len(ended) > 1_500
    for _ in range(2):
        assert min(held.after(126), default=10_000) >= 10_000


def test_new_connections_without_calls_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their calls may still wait to be begun. Sessions do not end in their stead."""
    held = Held(monkeypatch)
    held.now_s = 100.0
    crowd(held, 0, 2_000, 0, 1)
    crowd(held, 10_000, 2_000, 0, 0)
    assert held.after(126) == []
    held.now_s += RESTS_S
    assert min(held.after(126)) >= 10_000


def test_none_ends_by_chance_while_others_end_of_which_more_is_known_but_baits_do_not_stop_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Connections that began thousands of calls ended, and honest watchers besides, before that memory was free."""
    held = Held(monkeypatch)
    held.now_s = 100.0
    held.after(50)
    watchers = crowd(held, 10_000, 2_000, 0, 1)
    held.come(1, 1, 1, 1)
    assert held.after(126) == [1]
    began: list[float] = []
    for step in range(30):
        held.now_s += 0.5
        if step % 2:
            held.come(step, 1, 1, 1)
        if set(held.after(126)) & set(watchers):
            began.append(held.now_s)
    assert began[0] > 100.0 + SHARE_PUT_OFF_S


def test_a_connection_that_is_still_there_after_its_end_counts_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """gRPC closes it when it gets there, some looks later: 63 connections counted as 861 ended ones."""
    held = Held(monkeypatch)
    monkeypatch.setattr(held, "hang_up", lambda client: None)
    held.come(1, 30, 30, 30)
    held.ports = {PORT: 1}
    buffered(held, 2, 0, -10.0)
    for _ in range(3):
        held.after(126)
        held.after(50)
    assert (held.guard.ended, held.guard.ended_for_room) == (1, 1)
    assert caplog.text.count("1 connections that hold some of it end") == 1


def test_it_says_so_where_the_memory_belongs_to_no_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """63 connections took a redirector of 256 MiB to 500 by calls in gRPC's line, and the log said nothing."""
    held = Held(monkeypatch)
    held.now_s = 100.0
    crowd(held, 0, 63, 0, 1)
    assert held.after(150) == []
    assert 45 * MIB < held.guard.unknown_bytes < 50 * MIB
    assert "no connection ends for it: 50 MiB are too much" in caplog.text
    held.after(100)
    assert held.guard.unknown_bytes == 0


def test_where_a_port_is_nearly_full_connections_without_calls_end_the_oldest_first(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Idle connections closed a port for good, and no line told it."""
    held = Held(monkeypatch)
    held.ports, held.now_s = {PORT: 160, PORT + 1: 160}, 100.0
    crowd(held, 0, 100, 0, 1)
    for port in range(1_000, 1_050):
        buffered(held, port, 0, 2_000.0 - port)
    assert held.after(50) == [], "ten places are free"
    held.now_s = 1_010.0
    crowd(held, 2_000, 1, 0, 1)
    assert held.after(50) == list(range(1_049, 1_018, -1)), "until a quarter is free; and no port of its own is shut"
    assert (held.guard.ended, held.guard.ended_for_room, held.shut) == (0, 31, False)
    assert f"port {PORT} is nearly full: it takes 160 connections. 31 that have no call" in caplog.text
    assert held.guard.connections == 120 and held.guard.connections_max == 320


def test_a_port_that_is_nearly_full_is_looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.ports = {PORT: 16}
    held.guard._took_s = 0.1
    crowd(held, 0, 15, 0, 1)
    held.after(50)
    assert held.guard._pause_s() == UNREAD_LOOK_S
    crowd(held, 20, 1, 0, 1)
    held.after(50)
    assert held.guard._pause_s() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("attackers", "burst", "calls"), [(140, 0, 120), (3_000, 0, 4), (1_300, 256 << 10, 1)], ids=str
)
def test_those_that_hold_most_together_end_however_they_divide_it(
    monkeypatch: pytest.MonkeyPatch, attackers: int, burst: int, calls: int
) -> None:
    """Where connections with many sessions held the memory, 700 publishers of one large message were hung up on, which
    freed nothing. Then calls beyond four counted: connections of six calls ended beside others with large buffers, and
    connections of four never."""
    held = Held(monkeypatch)
    held.now_s = 100.0
    publishers = crowd(held, 0, 200, 72 << 10, 1)
    crowd(held, 1_000, 8, 0, 20)
    hostile = crowd(held, 2_000, attackers, burst, calls)
    ended = held.after(126)
    assert len(set(ended) & set(hostile)) >= 0.8 * len(ended) > 0
    assert len(set(ended) & set(publishers)) < 40


def test_it_stops_where_ends_free_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five thousand consumers of one session each were to end, where something else held the memory."""
    held = Held(monkeypatch)
    held.now_s = 100.0
    crowd(held, 10_000, 240, 0, 1)
    assert held.after(126) == [], "12 MiB of the 26 that are too much: idle sessions are no reason"
    crowd(held, 0, 5_000, 0, 1)
    assert len(held.after(127)) == SHARE_ENDED_MAX
    held.now_s += SHARE_WAIT_S - 0.1
    assert held.after(126) == [], "their memory is not free yet"
    held.now_s += 0.1
    assert held.after(126) == [], "it freed nothing"
    assert len(held.after(134)) == SHARE_ENDED_MAX, "more is held than before"
    held.now_s += SHARE_WAIT_S
    assert len(held.after(130)) == SHARE_ENDED_MAX, "it fell, so it goes on"
    held.now_s += SHARE_RESTS_S - 0.1
    assert held.after(130) == []
    held.now_s += 0.1
    assert len(held.after(130)) == SHARE_ENDED_MAX


def test_clients_without_calls_end_before_those_with_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection of seven sessions was hung up on seven times in 18 s, beside idle ones with 256 KiB of buffers."""
    held = Held(monkeypatch)
    held.now_s = 100.0
    for port in range(1_300):
        buffered(held, port, 256 << 10, 70.0)
    crowd(held, 2_000, 1, 0, 20)
    for _ in range(20):
        assert 2_000 not in held.after(180)


def test_where_something_else_holds_the_memory_no_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """While 110 MiB could not be given back, clients that published 20 KB every 8 s were hung up on again and again."""
    held = Held(monkeypatch)
    held.now_s = 100.0
    held.come(1, 1, 1, 1)
    for port in range(2, 18):
        buffered(held, port, 1 << 20, 90.0)
    assert held.after(126) == [], "5 MiB of the 26 that are too much"
    held.come(1, 5, 5, 5)
    assert held.after(126) == [1]


def test_what_the_kernel_holds_for_connections_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    for port, kernel_mib in enumerate((1, 5, 30, 10)):
        held.come(port, 0, 0, 0)
        held.clients["c", port].kernel = (kernel_mib * MIB,) * UNREAD_LOOKS
    held.clients["c", 3].kernel = (10 * MIB, 10 * MIB, 0)
    held.kernel_bytes = 12 * MIB
    assert held.after(125) == [], "slow clients have so much there at all times"
    held.kernel_bytes = 46 * MIB
    assert held.after(90) == []
    assert held.after(97) == [2, 1], "the fourth has taken what was there"


def test_looks_come_soon_enough_however_long_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the budget the next look came 50 to 180 s after one beside 5,000 connections; the kernel held 1,170 MiB."""
    held = Held(monkeypatch)
    pauses = []
    for held.bytes in (50 * MIB, 110 * MIB):
        for held.guard._took_s in (0.001, 0.02, 1.0):
            pauses.append(held.guard._pause_s())
    assert pauses == [BUDGET_LOOK_S, 2.0, UNREAD_LOOK_S] * 2
    held.guard._took_s = 0.02
    held.sent_bytes = 40 * MIB
    assert held.guard._pause_s() == pytest.approx(0.2), "what was sent since the last look may all be in the kernel"
    held.kernel_bytes = 40 * MIB
    assert held.guard._pause_s() == 0.0


def test_where_memory_stays_only_what_came_on_top_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.guard.short_bytes = SHORT + 200 * MIB
    for port in (1, 2, 3):
        held.come(port, 20, 20, 20)
    assert held.after(326) == [3, 2], "26 MiB are too much, and not 226"


def test_its_thread_ends_and_outlives_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doors stayed shut for as long as looking failed."""
    held = Held(monkeypatch)
    looks: list[bool] = []

    def fails() -> None:
        looks.append(held.shut)
        held.now_s += 2 * DOORS_S
        raise RuntimeError("once more")

    held.bytes, held.now_s = 2 * SHORT, 100.0
    monkeypatch.setattr(held, "look", fails)
    held.guard.start()
    while len(looks) < 3:
        pass
    held.guard.stop()
    assert not held.guard._thread.is_alive()
    assert looks[0] and not held.shut


def test_where_nobody_accounts_for_the_memory_garbage_is_collected_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Circles of dropped queues and their consumers were 395 MiB of 320, and honest sessions ended for them."""
    held, collected = Held(monkeypatch), list[float]()
    monkeypatch.setattr("shoal_runtime.memory_guard.gc.collect", lambda: collected.append(held.now_s))
    for now_s in range(1_000, 1_130):
        held.now_s = now_s
        held.after(120)
    assert not collected, "memory is not short"
    for now_s in range(1_130, 1_260):
        held.now_s = now_s
        held.after(140)
    assert len(collected) == 3 and collected[1] - collected[0] > COLLECT_S
    held.come(1, 30, 30, 30)
    held.now_s = 2_000
    assert held.after(126) == [1] and len(collected) == 3, "a connection has it"
