"""A chunk of an import costs as much as it has keys, whatever their starts, and is applied in steps. One chunk with
another start for each key wrote every bucket of its queue again for each of them, in one step.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal_contract.errors import OutOfRange, ResourceExhausted, from_wire
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply import bind_checks, binds
from shoal_slice_node.core.apply.bind_checks import RoomInBuckets
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import APPLIED_PER_STEP, BUCKET_ENTRIES_MEAN, DONE_RANGES_PER_COST, IMPORTED_PER_STEP
from shoal_slice_node.core.rows.detail_row import Detail, decode_detail

from .bulk_client import imports
from .core_driver import CoreDriver, bind, declare, every_second, publish, unbind, with_done
from .traces import tables_of

COUNT = 200
KEYS = [f"key-{number:03}" for number in range(COUNT)]
NAMES = [key.encode() for key in KEYS]
OTHERS = [b"other-%04d" % number for number in range(100 * BUCKET_ENTRIES_MEAN)]
STARTS = [number + 1 for number in range(COUNT)]
ROWS_PER_STEP = IMPORTED_PER_STEP + 8
"""A bucket for each key, the queue, and those that a split changes."""


class ImportsDriver(CoreDriver):
    """Key i has i + 1 messages, kept by the queue `keeps`. `f` has 100 buckets. Counts the rows of `f` written."""

    def __init__(self) -> None:
        super().__init__()
        self.change(declare("keeps"), bind("keeps", *KEYS))
        for number, key in enumerate(KEYS):
            self.change(publish(key, *[b""] * (number + 1)))
        for first in range(0, len(OTHERS), 900):
            self.change(imports({b"f": OTHERS[first : first + 900]}))

    def steps(self, step: wire.Step, work: Callable[[], int]) -> tuple[wire.StepOutcome, list[int]]:
        """Applies a change. Returns its outcome, and by how much `work()` grew in each step."""
        payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), wire.Change(steps=[step]).SerializeToString())
        before = self.records[-1]
        record = before._replace(kind=Kind.CHANGE, lsn=self.state.lsn + 1, time_ms=self.wall_ms, payload=payload)
        applying = self.engine.in_steps(record)
        self.records.append(record)
        found: list[int] = []
        while True:
            seen = work()
            try:
                next(applying)
            except StopIteration as stop:
                found.append(work() - seen)
                (outcome,) = wire.Outcome.FromString(stop.value.outcome).steps
                self.check()
                return outcome, found
            found.append(work() - seen)


@pytest.fixture
def core() -> ImportsDriver:
    return ImportsDriver()


def written(core: CoreDriver, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many rows of queues and buckets were written."""
    count = 0
    for table in (core.tables.membership, core.tables.queue):

        def put(key: bytes, row: bytes, put: Callable[[bytes, bytes], None] = table.put) -> None:
            nonlocal count
            count += 1
            put(key, row)

        monkeypatch.setattr(table, "put", put)
    return lambda: count


def where(core: CoreDriver, queue: bytes) -> dict[bytes, int]:
    """The starts of a queue's bindings."""
    found = core.state.load_queue(queue)
    assert found is not None
    return {core.tables.key_name.get(key_id)[2:]: start for key_id, start, _ in found.entries()}  # type: ignore[index]


@pytest.mark.parametrize("queue", [b"f", b"new"])
@pytest.mark.parametrize("starts", [STARTS, []])
def test_rows_are_written_once_for_each_key_at_most_and_few_in_a_step(
    core: ImportsDriver, queue: bytes, starts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome, rows = core.steps(imports({queue: NAMES}, starts), written(core, monkeypatch))
    assert (outcome.bindings_made, list(outcome.refusals)) == (COUNT, [])
    assert sum(rows) <= 2 * COUNT and max(rows) <= ROWS_PER_STEP
    bound = where(core, queue)
    heads = [start + 1 for start in STARTS]
    assert [bound[name] for name in NAMES] == (starts or heads)


def test_a_replay_makes_the_same_tables(core: ImportsDriver) -> None:
    mixed = [start if number % 3 else 0 for number, start in enumerate(STARTS)]
    core.steps(imports({b"f": NAMES, b"new": NAMES}, mixed * 2), lambda: 0)
    replayed = CoreDriver()
    for record in core.records[1:]:
        replayed.engine.apply(record)
    assert tables_of(replayed.tables) == tables_of(core.tables)
    apart = ImportsDriver()
    for start, name in sorted(zip(mixed, NAMES, strict=True)):
        apart.change(imports({b"f": [name]}, [start]))
    assert where(apart, b"f") == where(core, b"f")


def test_a_queue_is_refused_whole_though_its_last_key_is(core: ImportsDriver) -> None:
    before = tables_of(core.tables, without=("local_totals",))
    for queue in (b"f", b"new"):
        outcome, _ = core.steps(imports({queue: [*NAMES, b"void"]}, [*STARTS, 1 << 40]), lambda: 0)
        (refusal,) = outcome.refusals
        assert isinstance(from_wire(refusal.error), OutOfRange)
    assert tables_of(core.tables, without=("local_totals",)) == before


def test_bindings_with_many_done_ranges_come_back_in_steps_of_their_own(
    core: ImportsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, ranges = KEYS[-40:], 48
    core.change(declare("q"), bind("q", *keys, start=wire.START_EARLIEST))
    with_done(core, "q", keys, every_second(ranges))
    core.change(unbind("q", *keys))
    decoded = 0

    def decode(row: bytes) -> Detail:
        nonlocal decoded
        found = decode_detail(row)
        decoded += len(found.done)
        return found

    monkeypatch.setattr(binds, "decode_detail", decode)
    step = imports({b"q": [key.encode() for key in keys]}, [2 * ranges] * len(keys))
    outcome, each = core.steps(step, lambda: decoded)
    assert outcome.bindings_made == len(keys) and sum(each) == ranges * len(keys)
    assert max(each) <= APPLIED_PER_STEP * DONE_RANGES_PER_COST


@pytest.mark.parametrize("queue", [b"f", b"new"])
def test_a_chunk_is_checked_in_steps(core: ImportsDriver, queue: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    checked, check = 0, RoomInBuckets.check

    def counted(room: RoomInBuckets, full_names: list[bytes]) -> None:
        nonlocal checked
        checked += len(full_names)
        check(room, full_names)

    monkeypatch.setattr(RoomInBuckets, "check", counted)
    outcome, each = core.steps(imports({queue: NAMES}, STARTS), lambda: checked)
    assert outcome.bindings_made == COUNT and sum(each) == COUNT
    assert max(each) <= IMPORTED_PER_STEP


def test_bindings_of_a_queue_that_is_nearly_full_are_counted_in_steps(
    core: ImportsDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binds, "BINDINGS_PER_QUEUE_MAX", len(OTHERS))
    looks, before = 0, bind_checks.is_bound

    def looked(state: State, queue: Queue, full_name: bytes) -> bool:
        nonlocal looks
        looks += 1
        return before(state, queue, full_name)

    monkeypatch.setattr(binds, "is_bound", looked)
    outcome, each = core.steps(imports({b"f": OTHERS[:500]}), lambda: looks)
    assert not outcome.refusals and sum(each) == 500 and max(each) <= APPLIED_PER_STEP
    outcome, each = core.steps(imports({b"f": [*OTHERS[:500], NAMES[0]]}), lambda: looks)
    assert isinstance(from_wire(outcome.refusals[0].error), ResourceExhausted)
    assert max(each) <= APPLIED_PER_STEP
