"""Delayed publishes are counted by all the bytes that they keep, headers too: in limits, in records and in steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import ResourceExhausted, from_wire
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.common_pb2 import Chunk, Headers
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import recovery
from shoal_slice_node.adapters.recovery import recover
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply import due as apply_due
from shoal_slice_node.core.apply.records import Due, Kind, encode_due
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.limits import DUE_BYTES_PER_RECORD
from shoal_slice_node.core.node.freezing import FreezeLimits
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.rows.due_row import (
    DELAYED,
    DELAYED_OF_KEY,
    DelayedOfKey,
    decode_counts,
    decode_of_key,
    delayed_of_key,
    encode_of_key,
)
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.turns import finish

from .brokers import connected, running
from .core_driver import CoreDriver, bind, declare
from .due_driver import Clock, DueDriver, wait_for

LARGE = 1_000_000


def only_headers(size: int, number: int = 0) -> bytes:
    """A chunk of one message without a body."""
    headers = Headers(fields={"n": b"%d" % number, "h": bytes(size)})
    return Chunk(bodies=[b""], headers=[headers]).SerializeToString()


class DueBytesDriver(CoreDriver):
    """Queue `q` is bound to `k`."""

    def __init__(self) -> None:
        super().__init__()
        self.change(declare("q"), bind("q", "k"))

    def later(self, chunk: bytes, after_ms: int = 10) -> wire.StepOutcome:
        step = wire.Publishes(keys=[b"k"], chunks=[chunk], not_before_ms=self.wall_ms + after_ms)
        return self.change(wire.Step(publishes=step)).steps[0]


def test_a_record_takes_no_more_bytes_of_headers_than_of_bodies() -> None:
    core = DueBytesDriver()
    for number in range(12):
        assert not core.later(only_headers(LARGE, number)).refusals
    core.now_ms += 20
    before, base = len(core.records), core.state.kept.messages
    published: list[int] = []
    while core.maintain():
        published.append(core.state.kept.messages - base)
    assert published[-1] == 12
    records = [record for record in core.records[before:] if record.kind == Kind.DUE]
    most = -(-DUE_BYTES_PER_RECORD // LARGE)
    assert len(records) == -(-12 // most) == 3
    core.check()


def test_headers_count_for_what_a_slice_keeps_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    core = DueBytesDriver()
    chunk = only_headers(1_000)
    monkeypatch.setattr(apply_due, "DELAYED_BYTES_MAX", 2 * len(chunk))
    monkeypatch.setattr(apply_due, "DELAYED_SHARE_OF_KEY", 1)
    assert not core.later(chunk).refusals and not core.later(chunk).refusals
    (refusal,) = core.later(chunk).refusals
    with pytest.raises(ResourceExhausted, match=f"{3 * len(chunk)} delayed bytes; the limit is {2 * len(chunk)}"):
        raise from_wire(refusal.error)
    assert decode_counts(core.tables.meta.get(DELAYED))[1:] == (2, 2 * len(chunk))
    core.check()


def test_more_than_a_slice_may_keep_for_later_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    core = DueDriver()
    monkeypatch.setattr(apply_due, "DELAYED_CHUNKS_MAX", 2)
    monkeypatch.setattr(apply_due, "DELAYED_SHARE_OF_KEY", 1)
    monkeypatch.setattr(apply_due, "DELAYED_BYTES_MAX", len(encode_chunk([b"aaa", b""])))
    assert not core.later("k", b"aaa", after_ms=10).refusals
    (refusal,) = core.later("k", b"b", after_ms=10).refusals
    with pytest.raises(ResourceExhausted, match="8 delayed bytes; the limit is 7"):
        raise from_wire(refusal.error)
    assert not core.later("k", b"", after_ms=10).refusals
    (refusal,) = core.later("k", b"", after_ms=10).refusals
    with pytest.raises(ResourceExhausted, match="3 delayed publishes; the limit is 2"):
        raise from_wire(refusal.error)
    core.wait(20)
    assert not core.later("k", b"b", after_ms=10).refusals


def test_one_key_has_a_quarter_of_what_may_wait_and_others_have_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    core = DueDriver()
    monkeypatch.setattr(apply_due, "DELAYED_CHUNKS_MAX", 12)
    for _ in range(3):
        assert not core.later("k", b"x", after_ms=10).refusals
    (refusal,) = core.later("k", b"x", after_ms=10).refusals
    with pytest.raises(ResourceExhausted, match="key k would have 4 delayed publishes; the limit is 3"):
        raise from_wire(refusal.error)
    assert not core.later("other", b"x", after_ms=10).refusals
    monkeypatch.setattr(apply_due, "DELAYED_BYTES_MAX", 4 * len(encode_chunk([b"x"])) * 2)
    assert not core.later("other", b"x", after_ms=10).refusals
    (refusal,) = core.later("other", b"x", after_ms=10).refusals
    with pytest.raises(ResourceExhausted, match="key other would have 9 delayed bytes; the limit is 6"):
        raise from_wire(refusal.error)
    core.check()
    core.wait(20)
    assert not core.later("k", b"x", after_ms=10).refusals
    core.wait(20)
    assert [row_key for row_key, _ in core.tables.meta.scan() if row_key.startswith(DELAYED)] == [DELAYED]
    core.check()


def test_the_bytes_of_what_counts_a_key() -> None:
    row = bytes.fromhex("00000000000000020000000000000009")
    assert encode_of_key(DelayedOfKey(2, 9)) == row and decode_of_key(row) == DelayedOfKey(2, 9)
    assert delayed_of_key(b"\x00\x03anna") == b"delayed \x00\x03anna"


def test_a_check_finds_wrong_counts_of_a_key() -> None:
    core = DueBytesDriver()
    core.later(only_headers(1))
    (row_key,) = (found for found, _ in core.tables.meta.scan(prefix=DELAYED_OF_KEY))
    core.tables.meta.put(row_key, encode_of_key(DelayedOfKey(2, 3)))
    assert [problem.table for problem in check_tables(core.tables)] == ["meta"]
    core.tables.meta.delete(row_key)
    assert [problem.table for problem in check_tables(core.tables)] == ["meta"]


def _all_in_one_record(core: DueBytesDriver, count: int) -> None:
    """Journals a record as a leader wrote it that counted no headers."""
    for number in range(count):
        core.later(only_headers(LARGE, number))
    rows = [Due(row_key, b"k") for row_key, _ in core.tables.due.scan()]
    core.now_ms += 20
    core.record(Kind.DUE, encode_due(rows))


def test_a_record_of_many_bytes_is_applied_in_steps_and_may_be_frozen_between_them() -> None:
    core = DueBytesDriver()
    _all_in_one_record(core, 5)
    steps = 0
    for stop_at in range(1, 6):
        replica = Replica(MemoryTables())
        for record in core.records[:-1]:
            replica.apply(record)
        assert replica.may_stop_within(core.records[-1])
        work, kept = replica.in_steps(core.records[-1]), replica.state.kept
        steps = 0
        for steps, _ in enumerate(work, 1):
            assert kept.messages == 0, "a record adds to the totals once"
            if steps == stop_at:
                assert replica.save_part() == core.records[-2].lsn and kept.messages == stop_at
                break
        replica.state.save_local()
        again = Replica(replica.state.tables, core.records[-2].lsn)
        again.apply(core.records[-1])
        again.state.save_local()
        assert not list(check_tables(again.state.tables))
        core.state.save_local()
        assert finish(checksums(again.state.tables)) == finish(checksums(core.tables))
    assert steps == 5


async def test_a_start_freezes_within_a_record_that_is_larger_than_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Clock(monkeypatch)
    monkeypatch.setattr("shoal_slice_node.core.background.due_list.DUE_BYTES_PER_RECORD", 1 << 40)
    async with running(tmp_path) as broker, connected(broker, tmp_path) as channel:
        stub = SliceServiceStub(channel)
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        await stub.Bind(wire.BindRequest(queue=b"q", keys=[b"k"]))
        for number in range(6):
            chunk = Chunk.FromString(only_headers(LARGE, number))
            await stub.Publish(wire.PublishRequest(key=b"k", not_before_ms=machine.wall_ms + 1_000, chunk=chunk))
        lsn = broker.state.lsn
        machine.wall_ms += 1_000
        await wait_for(broker, 6)
    frozen: list[int] = []
    freeze = Store.freeze

    def freezing(store: Store, lsn: int) -> None:
        frozen.append(lsn)
        freeze(store, lsn)

    monkeypatch.setattr(Store, "freeze", freezing)
    monkeypatch.setattr(recovery, "DELTA_STALL_FACTOR", 1)
    monkeypatch.setattr(recovery, "FREEZE_LIMITS", FreezeLimits(LARGE, 1 << 40, 1 << 40, 1 << 40))
    recovered = await recover(tmp_path)
    try:
        assert len([found for found in frozen if found >= lsn]) >= 5
        assert not list(check_tables(recovered.replica.state.tables))
        assert recovered.replica.state.kept.messages == 6
    finally:
        await recovered.close()
