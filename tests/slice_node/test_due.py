"""What is due at an absolute time: done by the leader's clock, never early, whatever that clock does, over restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import OutOfRange, ResourceExhausted, Unroutable, from_wire
from shoal_contract.journal_record import Record
from shoal_contract.limits import NAME_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.core.apply.records import ChangeHead, Due, Kind, encode_due, encode_ownership
from shoal_slice_node.core.background import due_list
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.limits import DELAY_MS_MAX, DUE_AGAIN_MS
from shoal_slice_node.core.rows.due_row import delayed_key
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.verbs.engine import Engine

from .brokers import connected, running
from .core_driver import PARTITIONS, declare, drop, publish
from .due_driver import HOUR_MS, Clock, DueDriver, check, wait_for


@pytest.fixture(params=[False, True], ids=["memory", "delta"])
def core(request: pytest.FixtureRequest) -> DueDriver:
    return DueDriver(request.param)


def _bytes(*bodies: bytes) -> int:
    """Those of a chunk of these bodies."""
    return len(encode_chunk(bodies))


def test_a_delayed_publish_is_published_when_its_time_has_come_and_not_before(core: DueDriver) -> None:
    told = core.later("k", b"late", b"later", after_ms=HOUR_MS)
    assert (list(told.offsets), list(told.queues)) == ([0], [0]) and not told.refusals
    assert core.delayed == (1, _bytes(b"late", b"later"))
    core.change(publish("k", b"now"))
    assert core.wait(HOUR_MS - 1) == [("k", 1, b"now")]
    check(core)
    assert core.wait(1) == [("k", 2, b"late"), ("k", 3, b"later")]
    assert core.delayed == (0, 0) and not list(core.tables.due.scan())
    assert core.state.counters.publishes == 3
    check(core)


def test_a_time_that_is_past_is_due_at_once_and_those_of_one_time_keep_their_order(core: DueDriver) -> None:
    for body in (b"1", b"2", b"3"):
        core.change(publish("k", body, not_before_ms=1))
    core.later("k", b"5", after_ms=2)
    core.later("k", b"4", after_ms=1)
    assert [body for _, _, body in core.wait(HOUR_MS)] == [b"1", b"2", b"3", b"4", b"5"]


def test_what_comes_in_below_what_was_done_already_is_found(core: DueDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_list, "DUE_EARLY_NOTED_MAX", 2)
    core.later("k", b"first", after_ms=0)
    assert [body for _, _, body in core.wait(HOUR_MS)] == [b"first"]
    bodies = [b"%d" % number for number in range(5)]
    for body in bodies:
        core.change(publish("k", body, not_before_ms=1))
    assert [body for _, _, body in core.wait(HOUR_MS)] == bodies


def test_many_are_done_in_several_records(core: DueDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_list, "DUE_PER_RECORD_MAX", 4)
    monkeypatch.setattr(due_list, "DUE_BYTES_PER_RECORD", 3 * _bytes(b"0"))
    bodies = [b"%d" % number for number in range(10)]
    for body in bodies:
        core.later("k", body, after_ms=5)
    before = len(core.records)
    core.now_ms += 10
    while core.maintain():
        pass
    records = [record for record in core.records[before:] if record.kind == Kind.DUE]
    assert len(records) == 4
    assert [body for _, _, body in core.take(core.reader)] == bodies


def test_a_clock_that_goes_back_makes_nothing_early_and_loses_nothing(core: DueDriver) -> None:
    core.later("k", b"x", after_ms=HOUR_MS)
    core.wall_ahead_ms -= 10 * HOUR_MS
    assert core.wait(HOUR_MS) == []
    core.change(publish("k", b"meanwhile"))
    assert core.records[-1].time_ms >= core.records[-2].time_ms
    assert [body for _, _, body in core.wait(10 * HOUR_MS - 1)] == [b"meanwhile"]
    assert [body for _, _, body in core.wait(1)] == [b"x"]


def test_a_clock_that_goes_back_between_the_decision_and_its_record_makes_nothing_early(core: DueDriver) -> None:
    core.later("k", b"x", after_ms=HOUR_MS)
    core.now_ms += HOUR_MS
    core.node.tick(core.now_ms, core.wall_ms)
    core.wall_ahead_ms -= HOUR_MS
    core.commit()
    assert core.records[-1].kind == Kind.DUE and core.take(core.reader) == [] and core.delayed == (1, _bytes(b"x"))
    assert core.wait(HOUR_MS - 1) == []
    assert [body for _, _, body in core.wait(1)] == [b"x"]


def test_a_clock_that_jumps_ahead_decides(core: DueDriver) -> None:
    core.later("k", b"x", after_ms=HOUR_MS)
    core.wall_ahead_ms += HOUR_MS
    assert [body for _, _, body in core.wait(1)] == [b"x"]


def test_absolute_times_stay_over_a_restart(core: DueDriver) -> None:
    core.later("k", b"x", after_ms=HOUR_MS)
    core.wait(HOUR_MS // 2)
    core.restart()
    core.consume()
    assert core.wait(HOUR_MS // 2 - 1) == []
    assert [body for _, _, body in core.wait(1)] == [b"x"]
    core.restart()
    core.consume()
    assert [body for _, _, body in core.wait(HOUR_MS)] == [b"x"]


def test_record_times_go_on_over_a_restart_with_a_clock_that_went_back() -> None:
    """Also when the journal has nothing left of them, and only the checkpoint knows."""
    core = DueDriver(delta=False)
    newest = core.state.time_ms
    core.state.save_local()
    core.engine = Engine(core.tables, core.state.interest)
    core.state = core.engine.state
    core.state.lsn = core.records[-1].lsn
    core.wall_ahead_ms -= HOUR_MS
    core.restart()
    core.change(declare("r"))
    assert core.records[-1].time_ms == newest
    core.check()


def test_replay_gives_the_same_tables(core: DueDriver) -> None:
    core.later("k", b"x", after_ms=10)
    core.later("k", b"y", after_ms=HOUR_MS)
    core.later("other", b"z", after_ms=10)
    core.wait(20)
    again = Engine(MemoryTables())
    for record in core.records:
        again.apply(record)
    assert _all(again.state.tables) == _all(core.tables)
    assert not list(check_tables(again.state.tables))


def _all(tables: object) -> object:
    steps = checksums(tables)  # type: ignore[arg-type]
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value


def test_without_a_binding_at_its_time_nothing_is_kept(core: DueDriver) -> None:
    core.later("nobody", b"x", after_ms=10)
    core.wait(20)
    assert core.delayed == (0, 0) and core.state.kept.messages == 0
    check(core)


def test_to_the_queue_of_the_longest_name(core: DueDriver) -> None:
    """Its direct key is longer than other keys may be."""
    name = "q" * NAME_BYTES_MAX
    core.change(declare(name))
    core.later("@" + name, b"x", after_ms=10)
    core.wait(20)
    assert core.delayed == (0, 0)
    longest = core.session()
    assert core.attach(longest, name)
    core.settle()
    assert [body for _, _, body in core.take(longest)] == [b"x"]


def test_to_a_queue_itself(core: DueDriver) -> None:
    """Its direct key needs no binding before."""
    assert not core.later("@q", b"x", after_ms=10, mandatory=True).refusals
    assert [body for _, _, body in core.wait(20)] == [b"x"]
    core.later("@q", b"y", after_ms=10)
    core.change(drop("q"))
    core.wait(20)
    assert core.delayed == (0, 0)
    core.settle()
    check(core)


def test_mandatory_is_checked_at_once(core: DueDriver) -> None:
    for key in ("nobody", "@nobody"):
        with pytest.raises(Unroutable, match="mandatory"):
            raise from_wire(core.later(key, b"x", after_ms=10, mandatory=True).refusals[0].error)
    assert not core.later("k", b"x", after_ms=10, mandatory=True).refusals
    assert core.delayed == (1, _bytes(b"x"))


def test_a_time_too_far_ahead_is_refused(core: DueDriver) -> None:
    assert not core.later("k", b"x", after_ms=DELAY_MS_MAX).refusals
    (refusal,) = core.later("k", b"x", after_ms=DELAY_MS_MAX + 1).refusals
    with pytest.raises(OutOfRange, match="366 days") as refused:
        raise from_wire(refusal.error)
    assert (refused.value.subject, refused.value.limit) == ("not_before", core.wall_ms + DELAY_MS_MAX)
    last = core.change(publish("k", b"x", not_before_ms=(1 << 64) - 1)).steps[0]
    assert len(last.refusals) == 1 and core.delayed == (1, _bytes(b"x"))


def test_a_repeated_frame_is_kept_once(core: DueDriver) -> None:
    head = ChangeHead(b"one-producer-id!", 1, 0)
    step = publish("k", b"x", not_before_ms=core.wall_ms + 10)
    assert core.change(step, head=head) == core.change(step, head=head)
    assert [body for _, _, body in core.wait(20)] == [b"x"]
    assert core.change(step, head=head).steps[0].offsets == [0]
    assert core.wait(20) == []


def test_a_record_that_was_not_written_is_made_again(core: DueDriver) -> None:
    core.later("k", b"x", after_ms=10)
    core.now_ms += 20
    core.node.tick(core.now_ms, core.wall_ms)
    core.node.commit.gather(core.wall_ms)
    core.node.commit.refused(ResourceExhausted("the disk is full"))
    assert [body for _, _, body in core.wait(20)] == [b"x"]


def test_a_key_of_another_slice_is_looked_at_again_later(core: DueDriver) -> None:
    core.later("k", b"x", after_ms=10)
    core.record(Kind.OWNERSHIP, encode_ownership(2, bytes(PARTITIONS)))
    core.wait(20)
    assert core.delayed == (1, _bytes(b"x"))
    check(core)
    core.record(Kind.OWNERSHIP, encode_ownership(3, b"\x01" * PARTITIONS))
    assert [body for _, _, body in core.wait(DUE_AGAIN_MS + HOUR_MS // 60)] == [b"x"]


def test_apply_guards_what_a_record_names(core: DueDriver) -> None:
    """Rows that are gone, or not due at the record's time, stay as they are."""
    core.later("k", b"x", after_ms=HOUR_MS)
    ((row_key, _),) = core.tables.due.scan()
    names = [Due(row_key, b"k"), Due(delayed_key(1, 7), b"k"), Due(b"", b"")]
    core.record(Kind.DUE, encode_due(names))
    assert core.delayed == (1, _bytes(b"x")) and core.take(core.reader) == []
    early = Record(Kind.DUE, 0, core.state.lsn + 1, 1, core.wall_ms + HOUR_MS - 1, encode_due(names))
    core.engine.apply(early)
    assert core.delayed == (1, _bytes(b"x"))


def test_a_check_finds_damage() -> None:
    core = DueDriver(delta=False)
    core.later("k", b"x", after_ms=HOUR_MS)
    ((row_key, row),) = core.tables.due.scan()
    core.tables.due.delete(row_key)
    assert {problem.table for problem in check_tables(core.tables)} == {"meta", "log"}
    core.tables.due.put(delayed_key(5, 9), row)
    assert {problem.table for problem in check_tables(core.tables)} == {"due"}


async def test_a_silent_node_publishes_what_is_due_over_restarts_and_jumps_of_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a journal, a store and a checkpoint that has everything."""
    machine = Clock(monkeypatch)
    async with running(tmp_path, checkpoint=True) as broker, connected(broker, tmp_path) as channel:
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        for hours in (3, 1, 2):
            request = wire.PublishRequest(key=b"k", not_before_ms=machine.wall_ms + hours * HOUR_MS)
            request.chunk.bodies.append(b"%d " % hours + bytes(10_000))  # Several parts of a row.
            answer = await stub.Publish(request)
            assert (answer.offset, answer.queues, answer.consumed) == (0, 0, 0)
        machine.wall_ms += HOUR_MS
        await wait_for(broker, 1)
        newest = broker.state.time_ms
    machine.wall_ms -= 5 * HOUR_MS  # While it is down.
    async with running(tmp_path, epoch=2) as broker:
        assert broker.state.time_ms == newest and broker.state.kept.messages == 1
        machine.wall_ms += 6 * HOUR_MS
        await wait_for(broker, 2)
    async with running(tmp_path, epoch=3, checkpoint=True) as broker:
        machine.wall_ms += HOUR_MS
        await wait_for(broker, 3)
    async with running(tmp_path, epoch=4) as broker, connected(broker, tmp_path) as channel:
        found = await SliceServiceStub(channel).Pull(wire.PullRequest(pull=wire.Pull(queue=b"q")))
        bodies = [Chunk.FromString(delivery.chunk).bodies[0] for delivery in found.deliveries]
        assert [body[:2] for body in bodies] == [b"1 ", b"2 ", b"3 "]
        assert not list(broker.state.tables.due.scan())
