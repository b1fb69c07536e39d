"""The budget of memory: its shares, who waits for room in them, who lags and who ends when they are full."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from shoal_contract.errors import OutOfRange, ResourceExhausted
from shoal_runtime.tasks import Tasks
from shoal_slice_node.adapters import writers
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation
from shoal_slice_node.adapters.limits import (
    ANSWERS_HELD_FLOOR_BYTES,
    LARGE_ANSWER_BYTES,
    SMALL_ANSWER_BYTES,
    SMALL_ANSWERS_BYTES,
    STEPS_WATCHED_S,
)
from shoal_slice_node.adapters.steps import StepWatch
from shoal_slice_node.adapters.writers import Writers
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares, Share
from shoal_slice_node.core.limits import (
    ATTACHMENT_BYTES,
    DELIVERIES_FLOOR_BYTES,
    FEED_BYTES,
    LEASE_BYTES,
    MEMORY_BASE_BYTES,
    OWED_BYTES,
    OWED_FLOOR,
    OWED_PER_SESSION_MAX,
    RESTING_BYTES,
    STREAM_BYTES,
)
from shoal_slice_node.core.memory import plan_memory

from .core_driver import CoreDriver, bind, declare, publish


def test_the_shares_add_up_to_the_budget() -> None:
    for budget_mib in (320, 1024, 65_536):
        plan = plan_memory(budget_mib)
        shares = plan.attached_bytes + plan.delta_bytes + plan.deliveries_bytes
        shares += plan.owed_bytes + plan.pending_bytes + plan.answers_bytes
        assert budget_mib << 20 >= shares + MEMORY_BASE_BYTES > (budget_mib << 20) - 100
    with pytest.raises(OutOfRange, match="a memory budget of 319 MiB is too small; the least is 320 MiB"):
        plan_memory(319)


def test_answers_wait_for_room_in_their_order_and_give_back_what_they_do_not_need() -> None:
    room = AnswerRoom(3 * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
    given: list[Reservation] = []
    for number in range(5):
        room.reserve(given.append, number)
    assert len(given) == 3 and room.share.free_bytes == 0
    given[0].settle(1000)
    assert len(given) == 3, "there is not room for a largest one yet"
    given[1].release()
    given[1].release()
    assert len(given) == 4
    for reservation in given:
        reservation.release()
    assert len(given) == 5
    given[4].release()
    assert room.share.used_bytes == 0


async def test_thousands_who_waited_for_room_and_left_are_passed_over() -> None:
    room = AnswerRoom(LARGE_ANSWER_BYTES)
    given: list[Reservation] = []
    room.reserve(given.append, "a")
    for _ in range(5_000):
        room.reserve(Reservation.release, "a")
    room.reserve(given.append, "a")
    given[0].release()
    while len(given) < 2:  # noqa: ASYNC110 - the room tells nobody; a few begin in each turn of the event loop
        await asyncio.sleep(0)


def test_who_has_an_answer_that_is_not_taken_comes_after_those_who_have_none() -> None:
    """Eight sessions with seven describes each kept all others waiting for 18 s."""
    room = AnswerRoom(2 * LARGE_ANSWER_BYTES + SMALL_ANSWERS_BYTES)
    order: list[str] = []
    given: dict[str, Reservation] = {}

    def ask(source: str, size_bytes: int = LARGE_ANSWER_BYTES) -> None:
        def start(reservation: Reservation) -> None:
            order.append(source)
            given[source] = reservation

        room.reserve(start, source, size_bytes)

    for source in "aaaabbbb":
        ask(source)
    assert order == ["a", "a"] and room.waiting == 1
    ask("c")
    ask("d", SMALL_ANSWER_BYTES + 1)
    given["a"].release()
    assert order == ["a", "a", "b"] and room.waiting == 2
    given["b"].release()
    assert order[3:] == ["c"]
    given["c"].release()
    assert order[4:] == ["d"] and room.waiting == 1, "what d has is not enough for b"
    given["d"].release()
    assert sorted(order[5:]) == ["b"]


async def test_who_waits_for_room_and_leaves_gives_it_back() -> None:
    room = AnswerRoom(LARGE_ANSWER_BYTES)
    first = await room.reserved("a")
    async with Tasks("waiter") as tasks:
        tasks.start("wait", room.reserved("a"))
        await asyncio.sleep(0)
    first.release()
    first = await room.reserved("a")
    async with Tasks("waiter") as tasks:
        tasks.start("wait", room.reserved("a"))
        await asyncio.sleep(0)
        first.release()  # Its turn comes, and it is cancelled before it hears of that.
    (await room.reserved("a")).release()
    assert room.share.used_bytes == 0


def test_the_longest_step_of_the_last_minute_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 100.0
    monkeypatch.setattr("shoal_slice_node.adapters.steps.time.perf_counter", lambda: clock)
    watch = StepWatch()
    for length in (0.001, 0.02, 0.003):
        began = clock
        clock += length
        watch.done(began)
    assert watch.longest_s == pytest.approx(0.02)
    clock += STEPS_WATCHED_S / 2 + 1
    assert watch.longest_s == pytest.approx(0.02), "still within the minute"
    clock += STEPS_WATCHED_S / 2 + 1
    assert watch.longest_s == 0
    clock += 10 * STEPS_WATCHED_S
    assert watch.longest_s == 0


def test_above_half_of_the_share_those_that_hold_most_lag_first() -> None:
    shares = DispatchShares(deliveries_bytes=1_000_000)
    greedy, modest = Session(1, 1 << 20), Session(2, 1 << 20)
    shares.hold(modest, 1_000)
    shares.hold(greedy, 400_000)
    assert greedy.has_room and modest.has_room
    shares.hold(greedy, 200_000)
    shares.hold(modest, 1_000)
    assert not greedy.has_room and modest.has_room, "half of it is divided between the two that hold something"
    shares.hold(modest, DELIVERIES_FLOOR_BYTES)
    assert modest.room_bytes == 250_000
    shares.let_go(greedy, 600_000)
    assert greedy.has_room and greedy.room_bytes == greedy.window_bytes


def test_who_owes_much_may_owe_less_when_the_share_is_full_and_more_again_when_it_is_not() -> None:
    shares = DispatchShares(owed_bytes=1000 * OWED_BYTES)
    greedy, modest = Session(1, 1 << 20), Session(2, 1 << 20)
    greedy.owed, modest.owed = 900, 1
    shares.divide_owed([greedy, modest])
    assert shares.owed.used_bytes == 901 * OWED_BYTES
    assert greedy.owed_max == modest.owed_max == 250 and not greedy.has_room and modest.has_room
    greedy.owed = OWED_FLOOR
    shares.divide_owed([greedy, modest])
    assert greedy.owed_max == OWED_PER_SESSION_MAX


def test_leases_count_and_take_from_what_their_own_session_may_owe() -> None:
    """What one message a tick under an ack timeout takes was charged as a third of it."""
    shares = DispatchShares(owed_bytes=4000 * (OWED_BYTES + LEASE_BYTES))
    greedy, modest = Session(1, 1 << 20), Session(2, 1 << 20)
    greedy.owed, modest.owed = 3000, 1
    greedy.leases.count_out(3000)
    shares.divide_owed([modest], [greedy])
    assert shares.owed.used_bytes == 3000 * (OWED_BYTES + LEASE_BYTES) + OWED_BYTES
    shares.divide_owed([greedy, modest])
    assert shares.owed.used_bytes == 3000 * (OWED_BYTES + LEASE_BYTES) + OWED_BYTES
    assert greedy.owed_max == OWED_FLOOR and modest.owed_max == shares.owed.limit_bytes // (4 * OWED_BYTES)
    greedy.leases.count_out(-3000)
    shares.divide_owed([greedy, modest])
    assert greedy.owed_max == OWED_PER_SESSION_MAX


def test_what_rests_takes_from_what_sessions_may_owe() -> None:
    shares = DispatchShares(owed_bytes=10_000 * OWED_BYTES)
    greedy, modest = Session(1, 1 << 20), Session(2, 1 << 20)
    greedy.owed, modest.owed = 3000, 1
    while RESTING_BYTES * shares.rests.stretches < 6000 * OWED_BYTES:
        shares.rests.begin(1, first_of_queue=False)
    resting_bytes = RESTING_BYTES * shares.rests.stretches
    shares.divide_owed([greedy, modest])
    assert shares.owed.used_bytes == 3001 * OWED_BYTES + resting_bytes
    left_bytes = shares.owed.limit_bytes - resting_bytes
    assert greedy.owed_max == modest.owed_max == left_bytes // (4 * OWED_BYTES) > OWED_FLOOR


def test_attached_queues_are_refused_when_their_share_is_full_and_counted_to_nothing() -> None:
    core = CoreDriver()
    core.change(declare("q", "r"), *(bind("q", f"k{number}") for number in range(10)))
    limit = 2 * ATTACHMENT_BYTES + 2 * FEED_BYTES + 10 * STREAM_BYTES
    core.restart(DispatchShares(attached_bytes=limit))
    share = core.dispatcher.shares.attached
    session, other = core.session(), core.session()
    core.attach(session, "q", 1)
    core.attach(session, "r", 2)
    assert share.free_bytes == 0
    for name in ("q", "r", "not there"):
        with pytest.raises(ResourceExhausted, match="memory of attached queues"):
            core.attach(other, name, 3)
    assert not other.by_queue and not core.dispatcher.registry.awaited
    core.dispatcher.detach(session, 1)
    core.attach(other, "not there", 3)
    core.attach(other, "r", 4)
    core.dispatcher.close(other)
    core.dispatcher.close(session)
    core.pump()
    assert share.used_bytes == 0


def test_a_session_that_reads_nothing_ends_when_deliveries_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    clock_ms = 1_000
    monkeypatch.setattr(writers, "steady_ms", lambda: clock_ms)
    shares = DispatchShares(deliveries_bytes=1000)
    share = shares.deliveries
    told: list[Session] = []
    held = Writers()
    small, large, reads = (Session(number, 1 << 20) for number in (1, 2, 3))
    for session, size in ((small, 100), (large, 900), (reads, 5000)):
        held.open(session, "a", lambda: None, partial(told.append, session))
        session.under_way_bytes = size
    held.began(small, int)
    held.began(large, int)
    share.used_bytes = 999
    clock_ms += 60_000
    assert not held.end_stalled_deliveries(shares), "there is room"
    share.used_bytes = 1000
    held.began(reads, int)
    assert held.end_stalled_deliveries(shares) == [large] and told == [large]
    assert isinstance(large.ended_by, ResourceExhausted) and "read nothing for" in large.ended_by.message
    held.close(large)
    held.ended(small)
    assert not held.end_stalled_deliveries(shares), "nobody else stands still for long"


def test_who_holds_few_bytes_of_answers_is_not_ended_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that rested, with an answer of two bytes behind its deliveries, lost its session."""
    clock_ms = 1_000
    monkeypatch.setattr(writers, "steady_ms", lambda: clock_ms)
    share = Share("answers", 1000)
    share.used_bytes = 1000
    held = Writers()
    rests, greedy = Session(1, 1 << 20), Session(2, 1 << 20)
    for session, size_bytes in ((rests, 2), (greedy, ANSWERS_HELD_FLOOR_BYTES)):
        held.open(session, "a", lambda: None, lambda: None)
        held.began(session, partial(int, size_bytes))
    clock_ms += 60_000
    assert held.end_stalled(share, 10 * LARGE_ANSWER_BYTES, 500) == [greedy]


def test_deliveries_of_a_full_share_come_all_the_same() -> None:
    """Sessions that do not read hold it; one that reads goes on, if slowly."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=200_000))
    core.change(declare("slow", "q"), bind("slow", "k"), bind("q", "k"))
    slow, reads = core.session(), core.session()
    core.attach(slow, "slow")
    core.attach(reads, "q")
    seen = 0
    for _ in range(50):
        core.change(publish("k", bytes(20_000)))
        core.pump()
        seen += len(core.take(reads))
        core.ack(reads, "k", 0, seen + 1)
    assert seen == 50
    assert core.dispatcher.shares.deliveries.used_bytes == slow.under_way_bytes <= 200_000
