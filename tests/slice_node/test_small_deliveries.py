"""Small deliveries find room where sessions that read slowly fill the share of deliveries with large ones; and leave
these some."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal_slice_node.core.dispatch.room_line import RoomLine
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares, Share
from shoal_slice_node.core.limits import (
    LARGE_DELIVERY_BYTES,
    SMALL_BEYOND_PARTS,
    SMALL_HOLDERS_MAX,
    SMALL_OF_LEFT_PARTS,
    TURNS_PER_TURN_OF_ALL,
)

from .core_driver import CoreDriver, bind, declare, publish, purge
from .delivery_steps import consumer, took

LARGE = bytes(2 * LARGE_DELIVERY_BYTES)
SHARE_BYTES = 6 * len(LARGE)
READERS = 20


def filled(chunks: int = 20) -> tuple[CoreDriver, list[Session]]:
    """Sessions that hold all of the share between them, and as many that wait for room, all for large chunks."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=SHARE_BYTES))
    readers = [consumer(core, f"r{number}", f"r{number}", [LARGE] * chunks) for number in range(READERS)]
    assert core.dispatcher.shares.deliveries.free_bytes <= 0
    return core, readers


def one_reads(core: CoreDriver, readers: Sequence[Session]) -> None:
    """The first session with something reads it, and another one gets its room."""
    took(core, next(one for one in readers if one.waiting))
    assert core.dispatcher.shares.deliveries.free_bytes <= 0


def test_the_first_message_of_a_new_client_comes_at_once() -> None:
    """It came after 12 s beside 56 clients that held a chunk of 2 MB for 1.6 s each."""
    core, _ = filled()
    assert took(core, consumer(core, "new", "new", [b"x"])) == [1]


def test_a_burst_of_small_messages_comes_in_time_and_so_does_the_next_one() -> None:
    """40 messages of 1 KB each half second: a burst counted as much as a large chunk, and none came for 12 s."""
    core, readers = filled()
    honest = consumer(core, "honest", "honest")
    for _ in range(3):
        core.change(*(publish("honest", bytes(1_000)) for _ in range(60)))
        core.pump()
        got = 0
        while honest.waiting:
            got += len(took(core, honest))
        assert got == 60
        one_reads(core, readers)


def test_small_messages_come_to_a_connection_on_which_another_session_reads_slowly() -> None:
    """A gateway's users got nothing for 9 s while one of them had a chunk under way."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=SHARE_BYTES))
    slow = consumer(core, "slow", "gateway", [LARGE])
    assert slow.waiting
    readers = [consumer(core, f"r{number}", f"r{number}", [LARGE] * 3) for number in range(READERS)]
    quick = consumer(core, "quick", "gateway")
    for _ in range(3):
        core.change(publish("quick", b"x"))
        core.pump()
        assert took(core, quick) == [1]
        one_reads(core, readers)


def test_large_chunks_take_no_room_of_small_ones_whatever_came_before_them() -> None:
    """Clients that took a small one and a large one by turns had the room of both: others' messages came 11 s late."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=SHARE_BYTES))
    both = [consumer(core, f"b{number}", f"b{number}", [b"x", LARGE] * 3) for number in range(READERS)]
    share = core.dispatcher.shares.deliveries
    for _ in range(3 * READERS):
        ready = [one for one in both if one.waiting]
        took(core, ready[0])
        assert share.used_bytes <= SHARE_BYTES + len(LARGE) + READERS * 1_000
    assert took(core, consumer(core, "new", "new", [b"x"])) == [1]


def test_all_get_small_and_large_ones_in_the_end() -> None:
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=SHARE_BYTES))
    bodies = [b"x", LARGE, b"x", b"x", LARGE, LARGE, b"x"]
    sessions = [consumer(core, f"q{number}", f"c{number % 3}", bodies) for number in range(READERS)]
    got: dict[Session, list[int]] = {session: [] for session in sessions}
    while ready := [session for session in sessions if session.waiting]:
        got[ready[0]] += took(core, ready[0])
    assert all(sizes == list(map(len, bodies)) for sizes in got.values()), "in their order"
    shares = core.dispatcher.shares
    assert not shares.deliveries.used_bytes and not shares.line.held_large_bytes and not shares.line.is_crowded


def test_a_queue_with_a_large_chunk_holds_up_no_other_queue_of_its_session() -> None:
    core, _ = filled()
    session = consumer(core, "one", "mixed", [LARGE])
    core.change(declare("two"), bind("two", "two"), publish("two", b"x"))
    core.attach(session, "two", 2)
    core.pump()
    assert took(core, session) == [1] and session.turned_away.large and not session.turned_away.small


def test_a_large_chunk_holds_up_no_small_one_of_another_key_of_its_queue() -> None:
    core, readers = filled()
    session = consumer(core, "q", "one", [LARGE])
    core.change(bind("q", "other"), publish("other", b"x"), publish("q", b"behind the large one"))
    core.pump()
    assert took(core, session) == [1]
    core.change(publish("other", b"xy"))
    core.pump()
    assert took(core, session) == [2]
    while not session.waiting:
        one_reads(core, readers)
    assert took(core, session)[0] == len(LARGE)


def test_a_large_chunk_that_is_gone_holds_up_nothing() -> None:
    core, _ = filled()
    session = consumer(core, "q", "one", [LARGE])
    core.change(purge("q"))
    core.change(publish("q", b"x"))
    core.pump()
    assert took(core, session) == [1]


def test_another_consumer_of_the_queue_gets_a_large_chunk_if_the_first_one_leaves() -> None:
    core, readers = filled()
    first = consumer(core, "q", "one", [LARGE])
    other = core.session(1 << 20, "other")
    core.attach(other, "q")
    core.pump()
    core.dispatcher.close(first)
    core.pump()
    while not other.waiting:
        one_reads(core, readers)
    assert took(core, other) == [len(LARGE)]


def test_a_connection_with_many_small_ones_under_way_has_its_turn_while_others_wait_for_large_ones() -> None:
    line = RoomLine(Share("deliveries", 100))
    gateway, light, large = (Session(number, 100, connection=str(number)) for number in range(3))
    for _ in range(SMALL_HOLDERS_MAX):
        line.holds(gateway)
    line.join(gateway)
    turns = []
    for _ in range(2 * TURNS_PER_TURN_OF_ALL):
        line.join(light)
        line.join(large, large=True)
        turns.append(line.begin_turn())
        line.end_turn()
    assert turns.count((gateway, False)) == 1


def test_a_connection_with_something_under_way_has_its_turn_though_new_ones_come_again_and_again() -> None:
    """Clients that read at once keep the share full: a gateway with one slow session got nothing for its others."""
    share = Share("deliveries", 100)
    line = RoomLine(share)
    gateway, new, slow = (Session(number, 100, connection=name) for number, name in enumerate("gng"))
    line.holds(slow)
    share.hold(90)
    line.join(gateway)
    turns = []
    for _ in range(2 * TURNS_PER_TURN_OF_ALL):
        line.join(new)
        turns.append(line.begin_turn()[0])
        line.end_turn()
    assert turns.index(gateway) < TURNS_PER_TURN_OF_ALL
    line.leave(new)
    line.join(gateway)
    assert not line, "large ones have the rest"


def test_small_ones_leave_large_ones_some_of_the_share() -> None:
    core, readers = filled(chunks=2)
    small = [
        consumer(core, f"s{number}", f"s{number}", [bytes(LARGE_DELIVERY_BYTES // 2)] * 20) for number in range(10)
    ]
    share = core.dispatcher.shares.deliveries
    assert share.used_bytes <= SHARE_BYTES * (SMALL_BEYOND_PARTS + 1) // SMALL_BEYOND_PARTS + LARGE_DELIVERY_BYTES
    while any(one.waiting for one in readers):  # The small ones read nothing, and large ones come all the same.
        took(core, next(one for one in readers if one.waiting))
    assert all(session.attachments[1].messages == 2 for session in readers)
    assert any(one.waiting for one in small)


def test_a_connection_takes_a_part_of_the_room_for_small_ones() -> None:
    """Else the sessions of one that reads nothing would have all of it."""
    core, _ = filled()
    users = SMALL_HOLDERS_MAX + 5
    sessions = [consumer(core, f"u{number}", "gateway", [b"x"]) for number in range(users)]
    assert sum(bool(session.waiting) for session in sessions) == SMALL_HOLDERS_MAX
    assert took(core, consumer(core, "new", "new", [b"x"])) == [1]
    reads = next(session for session in sessions if session.waiting)
    took(core, reads)
    assert sum(bool(session.waiting) for session in sessions) == SMALL_HOLDERS_MAX, "the next one has its room"


@pytest.mark.parametrize("parts", [SMALL_OF_LEFT_PARTS - 1, SMALL_OF_LEFT_PARTS + 1])
def test_what_is_small_beside_what_is_left_need_not_wait_for_large_ones(parts: int) -> None:
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=10 << 20))
    readers = [consumer(core, f"r{number}", f"r{number}", [bytes(900_000)] * 9) for number in range(READERS)]
    share = core.dispatcher.shares.deliveries
    left_bytes = share.limit_bytes * (SMALL_BEYOND_PARTS + 1) // SMALL_BEYOND_PARTS - share.used_bytes
    session = consumer(core, "new", "new", [bytes(left_bytes // parts)])
    assert bool(session.waiting) == (parts > SMALL_OF_LEFT_PARTS)
    assert any(not reader.waiting for reader in readers)


def test_live_chunks_find_room_by_their_size() -> None:
    core, readers = filled()
    new = consumer(core, "new", "new")
    for body in (LARGE, b"x"):
        live = publish("new", body)
        live.publishes.live = True
        core.live(live)
    core.pump()
    assert took(core, new) == [1]
    assert readers


def test_one_of_the_turns_is_for_large_ones() -> None:
    line = RoomLine(Share("deliveries", 100))
    small, large = (Session(number, 100, connection=str(number)) for number in range(2))
    line.join(large, large=True)
    turns = []
    for _ in range(TURNS_PER_TURN_OF_ALL):
        line.join(small)
        turns.append(line.begin_turn())
        line.end_turn()
    assert turns == [(small, False)] * (TURNS_PER_TURN_OF_ALL - 1) + [(large, True)]


@pytest.mark.parametrize("large", [True, False])
def test_a_session_that_ends_as_the_last_of_its_connection_leaves_nothing_in_line(large: bool) -> None:
    line = RoomLine(Share("deliveries", 100))
    ends, stays = (Session(number, 100, connection=str(number)) for number in range(2))
    for session in (ends, stays):
        line.join(session, large)
    line.leave(ends)
    assert line.begin_turn() == (stays, large) and not line


def test_the_last_part_is_for_those_that_hold_nothing_large_also_where_nobody_waits() -> None:
    share = Share("deliveries", 100)
    line = RoomLine(share)
    holds, new = (Session(number, 100, connection=str(number)) for number in range(2))
    share.hold(80)
    line.holds(holds)
    assert line.lets_in(holds) and line.lets_in(new)
    line.holds_large(holds)
    assert not line.lets_in(holds) and line.lets_in(new)
    line.holds_nothing(holds, True)
    assert line.lets_in(holds)
