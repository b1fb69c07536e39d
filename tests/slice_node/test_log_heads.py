"""What needs only the headers of log rows reads no row whole, however large: binds by age, capacities, histories,
expiries. With large rows a change of a few KB held the loop for seconds.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from shoal_contract.limits import FRAME_OPERATIONS_MAX
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply.key_options import history_floor
from shoal_slice_node.core.apply.lookups import row_start
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.limits import AGE_BIND_COST, APPLIED_PER_STEP, EXPIRED_ROWS_PER_STEP, LOG_ROWS_PASSED_MAX
from shoal_slice_node.core.rows.key_row import decode_key
from shoal_slice_node.core.verbs.changes import parse_change
from shoal_slice_node.storage.limits import LOG_PART_BYTES_MAX

from .core_driver import CoreDriver, bind, configure, declare, publish
from .watched_tables import WatchedTables

AGE = wire.START_AGE
KEYS = [f"k{number}" for number in range(32)]
ROWS = 64
LOOK = LOG_ROWS_PASSED_MAX + ROWS.bit_length()
"""Rows that one search of a key looks at, at most."""
HISTORY = KeyOptions(history_messages=1_000)


class LogHeadsDriver(CoreDriver):
    """Keys with ROWS rows each, one every second, on tables that count what is read. Queue `q` is bound to all."""

    def __init__(self, keys: list[str], options: KeyOptions, ttl_ms: int = 0) -> None:
        self.watched = WatchedTables()
        super().__init__(self.watched)
        self.change(declare("q"), bind("q", *keys), *(configure(key, options) for key in keys))
        for _ in range(ROWS):
            self.now_ms += 1_000
            self.change(*(publish(key, b"x", ttl_ms=ttl_ms) for key in keys))

    def looks(self, *steps: wire.Step) -> tuple[list[wire.StepOutcome], int, int, int]:
        """Applies a change, of which no log row is read whole. Returns its outcomes, the rows looked at, the steps that
        it took, and the most rows looked at in one."""
        data = wire.Change(steps=steps).SerializeToString()
        payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
        before = self.records[-1]
        record = before._replace(kind=Kind.CHANGE, lsn=self.state.lsn + 1, time_ms=self.wall_ms, payload=payload)
        self.watched.whole_rows = self.watched.all_rows = 0
        effects, count, most = self.watched.finish(self.engine.in_steps(record))
        assert effects.outcome is not None and self.watched.whole_rows == 0
        return list(wire.Outcome.FromString(effects.outcome).steps), self.watched.all_rows, count, most


def memberships(queues: list[str], keys: list[str], age_ms: int) -> wire.Step:
    """Binds each of the queues to each of the keys."""
    names = [name.encode() for name in queues]
    columns = [key.encode() for key in keys] * len(queues)
    counts = [len(keys)] * len(queues)
    step = wire.Binds(queues=names, keys=columns, key_counts=counts, start=AGE, start_value=age_ms)
    return wire.Step(binds=step)


def test_binds_by_age_look_at_the_headers_of_each_key_once_for_a_change() -> None:
    queues = [f"q{number}" for number in range(30)]
    core = LogHeadsDriver(KEYS, HISTORY)
    core.change(declare(*queues))
    (found,), rows, _, _ = core.looks(memberships(queues, KEYS[:16], 10_000))
    assert list(found.offsets) == [ROWS - 10] * (30 * 16)
    assert rows <= 16 * LOOK
    core.check()


def test_binds_by_age_are_done_a_few_keys_at_a_time() -> None:
    core = LogHeadsDriver(KEYS, HISTORY)
    core.change(declare("r", "s"))
    few = APPLIED_PER_STEP // AGE_BIND_COST
    (_,), _, steps, most = core.looks(memberships(["r"], KEYS, 10_000))
    assert most <= few * LOOK and steps >= len(KEYS) // few
    (_,), _, steps, most = core.looks(memberships(["s", *["r"] * 15], KEYS[:4], 20_000))
    assert most <= few * LOOK and steps >= 16, "requests of few keys, too"
    core.check()


def test_binds_at_the_head_yield_by_keys_and_not_by_requests() -> None:
    core = LogHeadsDriver(KEYS, HISTORY)
    queues = [f"q{number}" for number in range(30)]
    core.change(declare(*queues))
    step = memberships(queues, KEYS[:16], 0)
    step.binds.start = wire.START_UNSPECIFIED
    _, rows, steps, _ = core.looks(step)
    assert rows == 0 and steps >= 30


def test_messages_of_the_same_change_and_rows_that_went_do_not_mislead_binds_by_age() -> None:
    core = LogHeadsDriver(["k"], KeyOptions(capacity_messages=ROWS, policy="drop_oldest"))
    core.change(declare("a", "b", "c"))
    steps, _, _, _ = core.looks(
        memberships(["a"], ["k"], 1_000_000),
        memberships(["a"], ["k"], 0),
        publish("k", b"new"),
        memberships(["b"], ["k"], 1_000_000),
        memberships(["c"], ["k"], 0),
    )
    assert [list(step.offsets) for step in steps] == [[1], [1], [ROWS + 1], [2], [ROWS]]
    core.check()


def test_a_bind_by_age_costs_more_than_others_and_as_many_fit_a_frame() -> None:
    keys = [f"k{number}" for number in range(FRAME_OPERATIONS_MAX)]
    data = wire.Change(steps=[bind("q", *keys, start=AGE, value=1)]).SerializeToString()
    assert parse_change(data).operations == AGE_BIND_COST * FRAME_OPERATIONS_MAX
    data = wire.Change(steps=[memberships(["q", "r"], ["k"], 1)]).SerializeToString()
    assert parse_change(data).operations == 2 + AGE_BIND_COST - 1, "a key is looked at once"
    data = wire.Change(steps=[bind("q", *keys)]).SerializeToString()
    assert parse_change(data).operations == FRAME_OPERATIONS_MAX


OPTIONS = {
    "messages": (KeyOptions(capacity_messages=1_000), 0),
    "bytes": (KeyOptions(capacity_bytes=1_000), 1),
    "full": (KeyOptions(capacity_messages=ROWS), 1),
    "full history": (KeyOptions(capacity_messages=ROWS, history_messages=20, history_age_s=3600), 2),
    "full of bytes": (KeyOptions(capacity_bytes=ROWS, history_messages=20), 1),
    "oldest of messages": (KeyOptions(capacity_messages=1_000, policy="drop_oldest"), 0),
    "oldest of bytes": (KeyOptions(capacity_bytes=1_000, policy="drop_oldest"), 1),
    "oldest goes": (KeyOptions(capacity_messages=ROWS, policy="drop_oldest"), 6),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_publishes_to_a_key_with_a_capacity_look_at_few_headers(name: str) -> None:
    options, most = OPTIONS[name]
    core = LogHeadsDriver(["k"], options)
    (found,), rows, _, _ = core.looks(publish("k", b"y"))
    assert bool(found.refusals) == name.startswith("full")
    assert rows <= most
    core.check()


@pytest.mark.parametrize("seed", range(5))
def test_what_a_full_key_keeps_only_for_its_history_does_not_count(seed: int) -> None:
    """The refusal's figure, against the whole look at the history that it needs."""
    random = Random(seed)
    seen: set[bool] = set()
    core = CoreDriver()
    for name in (f"k{number}" for number in range(150)):
        core.change(configure(name, KeyOptions(history_messages=1)))
        for _ in range(random.randint(1, 6)):
            core.now_ms += random.randint(0, 2_000)
            core.change(publish(name, *[b"x"] * random.randint(1, 4)))
        history, age_s = random.randint(0, 9), random.choice((0, 0, 3))
        capacity_bytes = random.choice((0, 0, 12))
        core.change(configure(name, KeyOptions(history or int(not age_s), age_s, 10, capacity_bytes)))
        key = decode_key(core.tables.key.get(core.state.full_name(name.encode())) or b"")
        floor = history_floor(core.tables, key, core.wall_ms)
        passed = floor - key.low if row_start(core.tables, key, floor) == key.low else 0
        more = [b"x"] * random.randint(1, 6)
        refusals = core.change(publish(name, *more)).steps[0].refusals
        kept = key.head - key.low + len(more)
        full = kept > 10 and kept - passed > 10
        seen.add(bool(passed) and kept > 10)
        if full:
            assert refusals[0].error.value == kept - passed
        elif not capacity_bytes:
            assert not refusals
    assert seen == {False, True}


def test_old_histories_and_what_expired_are_found_by_headers() -> None:
    core = LogHeadsDriver(KEYS, KeyOptions(history_age_s=3600), ttl_ms=60_000)
    core.watched.whole_rows = 0
    core.now_ms += 7_200_000
    while core.maintain():
        pass
    assert core.watched.whole_rows == 0
    core.check()
    kept = [decode_key(core.tables.key.get(core.state.full_name(key.encode())) or b"") for key in KEYS]
    assert all(key.low == key.head for key in kept)


def test_a_step_of_a_due_record_looks_at_a_bounded_number_of_rows() -> None:
    core = LogHeadsDriver(KEYS, KeyOptions(), ttl_ms=60_000)
    core.now_ms += 120_000
    before = len(core.records)
    other = LogHeadsDriver(KEYS, KeyOptions(), ttl_ms=60_000)
    core.maintain()
    (record,) = [record for record in core.records[before:] if record.kind == Kind.DUE]
    _, steps, most = other.watched.finish(other.engine.in_steps(record))
    assert steps >= 2 and most <= 2 * EXPIRED_ROWS_PER_STEP


async def test_the_head_of_a_large_row_in_a_checkpoint_is_its_first_part(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    key_id = bytes(8)
    rows = {1: b"a" * 100, 5: b"b" * 50 * LOG_PART_BYTES_MAX, 9: b"c" * LOG_PART_BYTES_MAX, 12: b"d" * 3_000_000}
    for first, row in rows.items():
        store.tables.log.append(key_id, first, row)
    store.tables.log.append(b"\x00" * 7 + b"\x01", 1, b"other")
    store.freeze(1)
    await store.checkpoint()
    for offset, begin in ((0, 1), (1, 1), (4, 1), (5, 5), (8, 5), (9, 9), (11, 9), (12, 12), (1_000, 12)):
        heads = list(store.tables.log.heads(key_id, 1, offset))
        assert [first for first, _ in heads] == [first for first in rows if first >= begin]
        assert all(head == rows[first][:LOG_PART_BYTES_MAX] for first, head in heads)
    await store.close()
