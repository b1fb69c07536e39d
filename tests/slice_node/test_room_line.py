"""Sessions take turns where deliveries fill their share of memory: what is under way stays within the share, and each
session gets something as soon as others have read."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from shoal_slice_node.adapters import writers
from shoal_slice_node.adapters.limits import STALLED_DELIVERIES_MS, STALLED_SESSION_MS
from shoal_slice_node.adapters.writers import Writers
from shoal_slice_node.core.dispatch.room_line import RoomLine
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares, Share
from shoal_slice_node.core.limits import SMALL_BEYOND_PARTS, TURNS_PER_TURN_OF_ALL

from .core_driver import CoreDriver, bind, declare, publish

CHUNK = bytes(60_000)
SHARE_BYTES = 200_000
MOST_BYTES = SHARE_BYTES + len(CHUNK) + 1_000
SESSIONS = 30
HELD = 3
"""So many chunks fill all of the share but the last quarter."""


def crowded(chunks: int = 1, connections: int = 1) -> tuple[CoreDriver, list[Session]]:
    """Sessions that read nothing, each with a queue at a key of its own that has large chunks."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=SHARE_BYTES))
    for number in range(SESSIONS):
        core.change(declare(f"q{number}"), bind(f"q{number}", f"k{number}"))
        core.change(*(publish(f"k{number}", CHUNK) for _ in range(chunks)))
    sessions = [core.node.new_session(1 << 20, connection=str(number % connections)) for number in range(SESSIONS)]
    for number, session in enumerate(sessions):
        core.attach(session, f"q{number}")
    core.pump()
    return core, sessions


def used(core: CoreDriver) -> int:
    return core.dispatcher.shares.deliveries.used_bytes


def write(core: CoreDriver, session: Session) -> int:
    """The transport takes what waits for the session, and the client reads it. The bytes it took."""
    taken = core.dispatcher.take(session, 1 << 20)
    core.dispatcher.sent(session, taken.cost_bytes)
    core.pump()
    return taken.cost_bytes


def test_sessions_that_read_nothing_hold_no_more_than_the_share_and_a_chunk() -> None:
    """Each had a chunk of its own key, however full the share was: 300 took 600 MB of 25."""
    core, sessions = crowded()
    assert used(core) <= MOST_BYTES
    assert core.dispatcher.shares.line.waiting == sum(not session.waiting for session in sessions) == SESSIONS - HELD


def test_each_gets_something_as_others_read() -> None:
    core, sessions = crowded(chunks=2)
    got: Counter[Session] = Counter()
    while readers := [session for session in sessions if session.waiting]:
        write(core, readers[0])
        got[readers[0]] += 1
        assert used(core) <= MOST_BYTES
        if got[readers[0]] == 2:
            assert all(got[one] or one.waiting for one in sessions), "nobody gets a second one before all have a first"
    assert all(session.attachments[1].messages == 2 for session in sessions)
    assert used(core) == 0 and not core.dispatcher.shares.line.is_crowded


def test_clients_that_read_go_first_and_have_room_of_their_own() -> None:
    """A connection to which nothing is under way does not wait for the sessions of others that read nothing."""
    core, sessions = crowded()
    others = [core.node.new_session(1 << 20, connection=name) for name in ("reads", "waits")]
    for other in others:
        name = other.connection
        core.change(declare(name), bind(name, name), *(publish(name, CHUNK) for _ in range(5)))
        core.attach(other, name)
    core.pump()
    reads, waits = others
    for number in range(1, 5):
        assert reads.waiting and not waits.waiting and used(core) <= MOST_BYTES
        taken = core.dispatcher.take(reads, 1 << 20)
        core.dispatcher.sent(reads, taken.cost_bytes)
        waiting = [one for one in (*sessions, *others) if one in core.dispatcher.shares.line]
        assert len(waiting) == SESSIONS - HELD + 1 + (number < 5)
        core.pump()
        reads, waits = waits, reads  # What one lets go is for the other, and not for the others' sessions.
    assert sorted(session.attachments[1].messages for session in others) == [2, 3]


def test_a_client_of_small_messages_does_not_wait_for_those_of_large_ones() -> None:
    """Its messages came 11 s late beside 60 clients that took a chunk of 2 MB each 1.5 s, and one a turn."""
    core, sessions = crowded(chunks=9, connections=SESSIONS)
    small = core.node.new_session(1 << 20, connection="small")
    core.change(declare("small"), bind("small", "small"))
    core.attach(small, "small")
    for number in range(SESSIONS):  # Each large one has had its turn; the small one has had one, too.
        write(core, sessions[number])
    core.change(publish("small", b"x"))
    core.pump()
    while not small.waiting:
        write(core, next(session for session in sessions if session.waiting))
    write(core, small)
    for _ in range(5):
        core.pump()
        shares = core.dispatcher.shares
        assert shares.deliveries.free_bytes <= 0, "the large ones have all"
        core.change(*(publish("small", b"x") for _ in range(10)))
        core.pump()
        taken = core.dispatcher.take(small, 1 << 20)
        assert len(taken.deliveries) == 10, "in one turn"
        core.dispatcher.sent(small, taken.cost_bytes)
        assert used(core) <= MOST_BYTES + SHARE_BYTES // SMALL_BEYOND_PARTS


def test_what_comes_new_goes_to_none_that_came_later() -> None:
    """A session that is in line is not overtaken by new chunks for others, also where these have room."""
    core, sessions = crowded()
    core.change(declare("new"), bind("new", "new"))
    late = core.node.new_session(1 << 20, connection=sessions[0].connection)
    core.attach(late, "new")
    core.pump()
    turns = core.dispatcher.shares.line.waiting
    holder = next(session for session in sessions if session.waiting)
    taken = core.dispatcher.take(holder, 1 << 20)
    core.dispatcher.sent(holder, taken.cost_bytes)
    assert not core.dispatcher.shares.line.is_nearly_full
    core.change(publish("new", CHUNK))
    assert not late.waiting
    core.pump()
    assert not late.waiting and core.dispatcher.shares.line.waiting == turns
    while not late.waiting:
        write(core, next(session for session in sessions if session.waiting))
        assert used(core) <= MOST_BYTES


def test_a_session_that_held_little_before_gets_no_more_either() -> None:
    """Its room was set while there was plenty."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=SHARE_BYTES))
    sessions = [core.session() for _ in range(SESSIONS)]
    for number, session in enumerate(sessions):
        core.change(declare(f"q{number}"), bind(f"q{number}", f"k{number}"))
        core.attach(session, f"q{number}")
        core.change(publish(f"k{number}", b"small"))
    core.pump()
    assert all(session.waiting for session in sessions)
    for number in range(SESSIONS):
        core.change(publish(f"k{number}", CHUNK))
        core.pump()
    assert used(core) <= MOST_BYTES


def test_a_live_chunk_is_lost_where_the_share_is_full() -> None:
    core, sessions = crowded()
    core.change(declare("q"), bind("q", "k"))
    session = core.node.new_session(1 << 20, connection=sessions[0].connection)
    core.attach(session, "q")
    live = publish("k", CHUNK)
    live.publishes.live = True
    core.live(live)
    core.pump()
    assert not session.waiting and used(core) <= MOST_BYTES


def test_one_chunk_of_one_key_is_given_in_turns_too() -> None:
    """Once it is written each session has copies of its own."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=SHARE_BYTES))
    sessions = [core.session() for _ in range(SESSIONS)]
    for number, session in enumerate(sessions):
        core.change(declare(f"q{number}"), bind(f"q{number}", "k"))
        core.attach(session, f"q{number}")
    core.change(publish("k", CHUNK))
    core.pump()
    assert used(core) <= MOST_BYTES
    got = 0
    while readers := [session for session in sessions if session.waiting]:
        got += 1
        write(core, readers[0])
    assert got == SESSIONS


def test_a_session_that_ends_in_line_is_forgotten() -> None:
    core, sessions = crowded()
    waiting = [session for session in sessions if not session.waiting]
    for session in waiting:
        core.dispatcher.close(session)
    core.pump()
    assert core.dispatcher.shares.line.waiting == 0
    for session in sessions:
        core.dispatcher.close(session)
    core.pump()
    assert used(core) == 0


@pytest.mark.parametrize("large", [True, False])
def test_sessions_wait_by_connection(large: bool) -> None:
    share = Share("deliveries", 100)
    line = RoomLine(share)
    sessions = [Session(number, 100, connection=connection) for number, connection in enumerate("aaab")]
    for session in (*sessions, *sessions):
        line.join(session, large)
    assert line.waiting == 4 and len(line) == 2 and all(session in line for session in sessions)
    share.hold(100)
    assert not line and line.is_crowded
    share.let_go(1)
    assert len(line) == 2
    line.holds(sessions[0])
    line.holds_large(sessions[0])
    assert len(line) == 1, "the last part of the share is for those that hold nothing large"
    share.let_go(share.used_bytes)
    line.holds_nothing(sessions[0], True)
    line.leave(sessions[1])
    order = []
    while line:
        order.append(line.begin_turn())
        line.end_turn()
    numbers = (3, 0, 2) if large else (0, 3, 2)
    assert order == [(sessions[number], large) for number in numbers]


def test_a_connection_that_holds_something_has_its_turn_too() -> None:
    line = RoomLine(Share("deliveries", 100))
    holds, *others = (Session(number, 100, connection=str(number)) for number in range(4))
    line.holds(holds)
    line.holds_large(holds)
    for session in (holds, *others):
        line.join(session, large=True)
    turns = [line.begin_turn()[0]]
    while turns[-1] is not holds:
        line.end_turn()
        line.join(turns[-1], large=True)
        turns.append(line.begin_turn()[0])
    assert len(turns) == TURNS_PER_TURN_OF_ALL
    assert turns[:6] == [*others, *others]


@pytest.mark.parametrize("waits", [True, False])
def test_those_that_do_not_read_end_sooner_while_others_wait(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clock_ms = 1_000
    monkeypatch.setattr(writers, "steady_ms", lambda: clock_ms)
    shares = DispatchShares(deliveries_bytes=1_000)
    held, told = Writers(), list[Session]()
    one, two, slow, waiting = (Session(n, 1 << 20, shares=shares, connection="aabc"[n]) for n in range(4))
    for session, connection, size_bytes in ((one, "a", 300), (two, "a", 300), (slow, "b", 400), (waiting, "c", 0)):
        held.open(session, connection, lambda: None, partial(told.append, session))
        if size_bytes:
            shares.hold(session, size_bytes)
            held.began(session, int)
    if waits:
        shares.line.join(waiting)
    clock_ms += STALLED_DELIVERIES_MS - 1
    assert not held.end_stalled_deliveries(shares)
    clock_ms += 1
    if not waits:
        assert not held.end_stalled_deliveries(shares)
        clock_ms += STALLED_SESSION_MS - STALLED_DELIVERIES_MS
        assert held.end_stalled_deliveries(shares) == [one], "nothing is needed but that it is not full"
        return
    assert held.end_stalled_deliveries(shares) == [one, two] == told, "their connection holds most"
    assert not held.end_stalled_deliveries(shares), "what these hold is about to be free"
    for session in (one, two):
        shares.hold_written(session.under_way_bytes)  # gRPC keeps it until the call is over.
        held.close(session)
        shares.let_go(session, session.under_way_bytes)
    assert shares.deliveries.used_bytes == 1_000
    assert not held.end_stalled_deliveries(shares), "nor because gRPC still has it"
    shares.let_go_written(600)
    assert shares.deliveries.used_bytes == 400 and not held.end_stalled_deliveries(shares)


def test_those_that_hold_little_do_not_end_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that worked for 2.6 s ended again and again beside ten that held all and read in time."""
    clock_ms = 1_000
    monkeypatch.setattr(writers, "steady_ms", lambda: clock_ms)
    shares = DispatchShares(deliveries_bytes=1_000)
    held = Writers()
    much, little, waiting = (Session(number, 1 << 20, shares=shares, connection=str(number)) for number in range(3))
    for session, size_bytes in ((much, 760), (little, 240), (waiting, 0)):
        held.open(session, session.connection, lambda: None, lambda: None)
        if size_bytes:
            shares.hold(session, size_bytes)
    held.began(little, int)
    shares.line.join(waiting)
    clock_ms += STALLED_SESSION_MS - 1
    assert not held.end_stalled_deliveries(shares), "it holds less than an equal part"
    clock_ms += 1
    assert held.end_stalled_deliveries(shares) == [little], "as where nobody waits"


def test_small_live_chunks_find_room_where_large_ones_fill_the_share() -> None:
    core, _ = crowded(connections=SESSIONS)
    small = core.node.new_session(1 << 20, connection="small")
    core.change(declare("small"), bind("small", "small"))
    core.dispatcher.shares.deliveries.limit_bytes = 1 << 30
    core.attach(small, "small")
    core.change(publish("small", b"x"))
    core.pump()
    write(core, small)
    core.dispatcher.shares.deliveries.limit_bytes = used(core)
    live = publish("small", b"live")
    live.publishes.live = True
    core.live(live)
    core.pump()
    assert [one.live for one in core.dispatcher.take(small, 1 << 20).deliveries] == [True]


def test_what_is_about_to_be_free_ends_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look would end more for the same need, until the first are gone."""
    clock_ms = 1_000
    monkeypatch.setattr(writers, "steady_ms", lambda: clock_ms)
    shares = DispatchShares(deliveries_bytes=900)
    held = Writers()
    *all_, waiting = (Session(number, 1 << 20, shares=shares, connection=str(number)) for number in range(4))
    for session in (*all_, waiting):
        held.open(session, session.connection, lambda: None, lambda: None)
    for session in all_:
        shares.hold(session, 300)
        held.began(session, int)
    shares.line.join(waiting)
    clock_ms += STALLED_SESSION_MS
    ending = held.end_stalled_deliveries(shares)
    assert len(ending) == 2, "half of the share is needed"
    assert not held.end_stalled_deliveries(shares)
    for session in ending:
        shares.hold_written(session.under_way_bytes)
        held.close(session)
        shares.let_go(session, session.under_way_bytes)
    assert shares.deliveries.used_bytes == 900 and not held.end_stalled_deliveries(shares)
