"""Transient queues: dropped when no session has consumed them for their time, never earlier, and not while one does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shoal_contract.errors import Conflict, NoSuchQueue, ResourceExhausted
from shoal_contract.journal_record import Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Expired, Kind, encode_expire
from shoal_slice_node.core.dispatch import left_clock
from shoal_slice_node.core.dispatch.left_clock import LeftClock
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.limits import LEFT_WALK_REST_MS
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.engine import Engine

from .core_driver import CoreDriver, bind, declare, drop, publish

TIME_MS = 60_000


class TransientsDriver(CoreDriver):
    def exists(self, queue: str) -> bool:
        return self.tables.queue_by_name.get(queue.encode()) is not None

    def transient(self, *queues: str) -> None:
        self.change(declare(*queues, expires_after_s=TIME_MS // 1000))

    def wait(self, ms: int) -> None:
        """The time goes on, in steps as of ticks."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + 1000)
            self.maintain()

    def consumer(self, *queues: str) -> Session:
        session = self.session()
        for handle, queue in enumerate(queues, 1):
            assert self.attach(session, queue, handle)
        return session


@pytest.fixture
def core() -> TransientsDriver:
    return TransientsDriver()


def test_a_queue_that_nothing_consumes_ends_after_its_time_and_not_before(core: TransientsDriver) -> None:
    core.transient("t")
    core.change(declare("durable"), bind("t", "k"), bind("durable", "k"))
    core.maintain()
    core.wait(TIME_MS - 1000)
    assert core.exists("t")
    core.wait(2000)
    assert not core.exists("t") and core.exists("durable")
    assert core.change(publish("k", b"x")).steps[0].queues == [1]
    assert core.state.counters.queues_expired == 1
    core.settle()
    core.check()


def test_the_time_begins_when_the_last_session_leaves(core: TransientsDriver) -> None:
    core.transient("t")
    one, other = core.consumer("t"), core.consumer("t")
    core.wait(3 * TIME_MS)
    core.dispatcher.detach(one, 1)
    core.wait(3 * TIME_MS)
    assert core.exists("t")
    core.dispatcher.close(other)
    core.wait(TIME_MS - 1000)
    again = core.consumer("t")
    core.wait(2 * TIME_MS)
    core.dispatcher.close(again)
    core.wait(TIME_MS - 1000)
    assert core.exists("t")
    core.wait(3000)
    assert not core.exists("t")
    core.check()


def test_a_declare_begins_the_time_anew(core: TransientsDriver) -> None:
    core.transient("t")
    core.wait(TIME_MS - 1000)
    core.transient("t")
    core.wait(TIME_MS - 1000)
    assert core.exists("t")
    core.wait(3000)
    assert not core.exists("t")


def test_a_bind_begins_the_time_anew_and_a_refused_one_does_not(core: TransientsDriver) -> None:
    core.transient("t", "other")
    core.change(bind("t", "k"))
    core.wait(TIME_MS - 1000)
    core.change(bind("t", "k"))  # It is bound already. Whoever binds is about to consume.
    core.change(bind("other", "k", start=wire.START_OFFSET, value=9))
    core.wait(TIME_MS - 1000)
    assert core.exists("t") and not core.exists("other")
    core.change(bind("t", *(f"k{number}" for number in range(900))))  # In steps.
    core.wait(TIME_MS - 1000)
    assert core.exists("t")
    core.wait(3000)
    assert not core.exists("t")
    core.settle()
    core.check()


def test_after_a_restart_all_times_begin_anew(core: TransientsDriver) -> None:
    core.transient(*(f"t{number}" for number in range(700)))
    core.wait(TIME_MS - 1000)
    core.restart()
    consumer = core.consumer("t5")
    core.wait(TIME_MS - 1000)
    assert core.exists("t0") and core.exists("t699")
    core.wait(10_000)
    left = [number for number in range(700) if core.exists(f"t{number}")]
    assert left == [5]
    core.dispatcher.close(consumer)
    core.wait(TIME_MS + 3000)
    assert not core.exists("t5")
    core.check()


def test_messages_that_were_pulled_count_as_consumption(core: TransientsDriver) -> None:
    core.transient("t")
    core.change(bind("t", "k"), publish("k", b"one"))
    session = core.session()
    assert core.pull(session, "t", 10)
    core.wait(3 * TIME_MS)
    assert core.exists("t")
    core.dispatcher.close(session)
    core.wait(TIME_MS + 3000)
    assert not core.exists("t")


def test_more_queues_than_times_are_kept_end_later_and_all(
    core: TransientsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_clock, "LEFT_TIMES_MAX", 20)
    monkeypatch.setattr(left_clock, "LEFT_WALKED_PER_TURN", 7)
    for number in range(100):
        core.transient(f"t{number}")
        core.maintain()
    assert len(core.dispatcher.transients) <= 20
    core.wait(TIME_MS - 1000)
    assert sum(core.exists(f"t{number}") for number in range(100)) == 100
    core.wait(40_000)
    assert not any(core.exists(f"t{number}") for number in range(100))
    core.check()


def test_queues_end_also_where_more_are_left_in_their_time_than_times_are_kept(
    core: TransientsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_clock, "LEFT_TIMES_MAX", 20)
    monkeypatch.setattr(left_clock, "LEFT_WALKED_PER_TURN", 7)
    for number in range(200):  # 60 are left in the time of each: 40 more than times are kept.
        core.transient(f"t{number}")
        core.wait(1000)
        assert core.exists(f"t{max(0, number - 58)}")
    old = [number for number in range(200) if number < 40 and core.exists(f"t{number}")]
    assert not old and len(core.dispatcher.transients) <= 20
    core.wait(3 * TIME_MS)
    assert not any(core.exists(f"t{number}") for number in range(200))
    core.check()


def test_queues_with_a_long_time_do_not_keep_others_from_ending(
    core: TransientsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_clock, "LEFT_TIMES_MAX", 20)
    for number in range(40):
        core.change(declare(f"long{number}", expires_after_s=1_000_000))
        core.maintain()
        if number == 15:
            core.transient("t")
    core.wait(2 * TIME_MS)
    assert not core.exists("t") and core.exists("long0") and core.exists("long39")


def test_sessions_that_take_many_queues_again_cost_no_long_turn(
    core: TransientsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_clock, "LEFT_TIMED_PER_TURN", 50)
    kept = core.dispatcher.transients
    core.transient(*(f"t{number}" for number in range(1000)))
    core.maintain()
    assert len(kept) == 50  # A turn tells some of them their time.
    core.wait(20_000)
    consumer = core.consumer(*(f"t{number}" for number in range(1000)))
    for _ in range(3):
        core.wait(TIME_MS)
        assert len(kept._clock._line) == len(kept)
    assert not len(kept)
    core.dispatcher.close(consumer)
    core.wait(TIME_MS - 1000)
    assert all(core.exists(f"t{number}") for number in range(1000))
    core.wait(40_000)
    assert not any(core.exists(f"t{number}") for number in range(1000))


def begin_ending(core: TransientsDriver) -> None:
    """The record that drops queue `t` is about to be written."""
    core.transient("t")
    core.maintain()
    core.now_ms += TIME_MS + 1000
    core.node.tick(core.now_ms, core.wall_ms)
    assert core.dispatcher.transients.ending


def test_who_attaches_a_queue_that_is_about_to_end_waits_for_the_next_of_its_name(core: TransientsDriver) -> None:
    begin_ending(core)
    session = core.session()
    assert not core.attach(session, "t")
    with pytest.raises(NoSuchQueue):
        finish(requests.pull(core.node, session, wire.Pull(queue=b"t"), 0, 1000).whole())
    core.commit()
    assert not core.exists("t")
    core.transient("t")
    core.change(bind("t", "k"), publish("k", b"x"))
    assert [body for _, _, body in core.take(session)] == [b"x"]
    core.wait(2 * TIME_MS)
    assert core.exists("t")


@pytest.mark.parametrize("step", [declare("t", expires_after_s=TIME_MS // 1000), bind("t", "k")])
def test_a_queue_that_is_declared_or_bound_again_while_it_ends_stays(core: TransientsDriver, step: wire.Step) -> None:
    core.transient("t")
    core.change(bind("t", "k"))
    core.maintain()
    core.now_ms += TIME_MS + 1000
    core.change(step)  # Its record is applied after the leader decided, and before the expiry.
    looked_at = core.state.lsn - 1
    queue_id = core.tables.queue_by_name.get(b"t")
    assert queue_id is not None
    core.record(Kind.EXPIRE, encode_expire([Expired(queue_id, b"t")], looked_at))
    assert core.exists("t") and core.state.counters.queues_expired == 0
    core.wait(TIME_MS - 1000)
    assert core.exists("t")
    core.wait(3000)
    assert not core.exists("t")


def test_a_session_that_came_while_a_queue_ended_gets_it_if_a_bind_came_first(core: TransientsDriver) -> None:
    begin_ending(core)
    session = core.session()
    assert not core.attach(session, "t")
    (expiry,) = core.node.commit._pending.clear()
    core.change(bind("t", "k"))  # Its record is written first: the queue stays.
    core.node.commit.submit(expiry)
    core.commit()
    assert core.exists("t") and core.dispatcher.registry.is_consumed(queue_of(core, "t")) and not session.awaited
    core.change(publish("k", b"x"))
    assert [body for _, _, body in core.take(session)] == [b"x"]


def test_a_session_that_came_while_a_queue_ended_gets_it_if_its_end_was_not_written(core: TransientsDriver) -> None:
    begin_ending(core)
    session = core.session()
    assert not core.attach(session, "t")
    batch = core.node.commit.gather(core.wall_ms)
    expiry = next(record for _, record in batch.entries if record is not None)
    core.node.commit.refused(ResourceExhausted("the disk is full", subject="disk"))
    assert expiry.kind == Kind.EXPIRE and core.exists("t")
    core.now_ms += 20
    core.node.tick(core.now_ms, core.wall_ms)  # The queue stays: the session that waited for it has it now.
    core.commit()
    assert core.exists("t") and core.dispatcher.registry.is_consumed(queue_of(core, "t"))
    core.change(bind("t", "k"), publish("k", b"x"))
    assert [body for _, _, body in core.take(session)] == [b"x"]


def test_a_disk_that_is_full_only_delays_the_end(core: TransientsDriver, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    for times in (1, 2):
        begin_ending(core)
        for _ in range(5):
            core.node.commit.gather(core.wall_ms)
            core.node.commit.refused(ResourceExhausted("the disk is full", subject="disk"))
            core.now_ms += 20
            core.node.tick(core.now_ms, core.wall_ms)
        told = caplog.text.count("(expire) was not written: the disk is full")
        assert told == times, "it tries again with each tick, and says so once until it succeeds"
        core.wait(1000)
        assert not core.exists("t")


def queue_of(core: TransientsDriver, name: str) -> bytes:
    found = core.tables.queue_by_name.get(name.encode())
    assert found is not None
    return found


def test_expiries_are_replayed_to_the_same_tables(core: TransientsDriver) -> None:
    core.transient("a", "b", "c")
    core.change(bind("a", "k"), bind("b", "k"), publish("k", b"x"), drop("c"))
    core.wait(TIME_MS + 5000)
    core.transient("a")
    core.settle()
    other = Engine(MemoryTables())
    for record in core.records:
        other.apply(record)
    assert finish(checksums(other.state.tables)) == finish(checksums(core.tables))


def test_an_expiry_of_what_is_gone_or_durable_changes_nothing(core: TransientsDriver) -> None:
    core.change(declare("durable"))
    core.transient("gone")
    gone, durable = queue_of(core, "gone"), queue_of(core, "durable")
    core.change(drop("gone"))
    core.record(Kind.EXPIRE, encode_expire([Expired(gone, b"gone"), Expired(durable, b"durable")], core.state.lsn))
    assert core.exists("durable")
    core.check()


@pytest.mark.parametrize("payload", [b"", b"1234567", encode_expire([Expired(b"12345678", b"name")], 1)[:-1]])
def test_an_expiry_that_is_cut_off_stops_the_node(core: TransientsDriver, payload: bytes) -> None:
    with pytest.raises(Exception, match="cannot be applied"):
        core.engine.apply(Record(Kind.EXPIRE, 0, core.state.lsn + 1, 1, 1, payload))


def test_other_options_are_named(core: TransientsDriver) -> None:
    core.transient("t")
    outcome = core.change(declare("t"))
    error = outcome.steps[0].refusals[0].error
    assert "expires_after_s=60, not 0" in error.message and error.code == Conflict.code


def test_a_dropped_queues_time_is_forgotten(core: TransientsDriver) -> None:
    core.transient("t")
    core.change(drop("t"))
    core.change(declare("t"))
    core.wait(2 * TIME_MS)
    assert core.exists("t")
    core.check()


class Left:
    """Queues that end after 10 s, without a node. `consumed`: some of them."""

    def __init__(self, *queue_ids: bytes) -> None:
        self.there = set(queue_ids)
        self.consumed: set[bytes] = set()

    def ids(self, start: bytes) -> Iterator[bytes]:
        return iter(sorted(one for one in self.there if one >= start))

    def seconds(self, queue_id: bytes) -> int | None:
        return 10 if queue_id in self.there else None

    def record_bytes(self, queue_id: bytes) -> int:
        return 1

    def is_consumed(self, queue_id: bytes) -> bool:
        return queue_id in self.consumed


def test_a_queue_that_is_left_behind_the_walks_place_and_has_no_room_for_its_time_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(left_clock, "LEFT_TIMES_MAX", 0)
    monkeypatch.setattr(left_clock, "LEFT_WALKED_PER_TURN", 1)
    first, second = bytes(7) + b"\x01", bytes(7) + b"\x02"
    queues = Left(first, second)
    clock = LeftClock(queues)
    clock.begin(0)
    queues.consumed.add(first)
    assert clock.due(20_000) == []
    queues.consumed.clear()
    clock.left(first, 10)
    assert clock.due(21_000) == [second], "the walk goes on behind the first, and no other queue asks for the next walk"
    queues.there.remove(second)
    found = {now_ms: clock.due(now_ms) for now_ms in range(22_000, 60_000, 1000)}
    ended_ms = [now_ms for now_ms, due in found.items() if first in due]
    assert ended_ms and 31_000 <= ended_ms[0] <= 31_000 + 2 * LEFT_WALK_REST_MS
