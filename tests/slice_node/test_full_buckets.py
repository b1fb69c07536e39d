"""Queues whose bindings crowd in one row, as their keys were made for that: the row takes no more, and nothing else is
refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from random import Random
from struct import Struct
from zlib import crc32

import pytest

from shoal_contract.errors import ResourceExhausted, from_wire
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core import limits
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.rows import ids, queue_row
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.rows.small_rows import PartitionRow, decode_partition, encode_partition
from shoal_slice_node.core.tables.delta import Delta
from tests.fuzz.small_limits import patched

from .bulk_client import imports
from .core_driver import PARTITIONS, CoreDriver, acks, bind, declare, drop, publish, unbind
from .determinism_steps import contents, replayed_by_starts
from .memory_base import MemoryBase

MAX = 6
SMALL = {"BUCKET_ENTRIES_MEAN": 2, "BUCKET_ENTRIES_LOW": 1, "BUCKET_ENTRIES_MAX": MAX}
CROWD, OTHERS = 1, 2
"""Low bits of checksums."""


def ids_of(core: CoreDriver, keys: Sequence[str]) -> list[bytes]:
    return [(core.tables.key.get(core.state.full_name(key.encode())) or b"")[ID] for key in keys]


def made(core: CoreDriver, keys: int, low: int = CROWD, bits: int = 6) -> list[str]:
    """Keys whose ids have these low bits in their checksums, found among very many that exist. None is bound."""
    found: list[str] = []
    for first in count(0, 1000):
        names = [f"k{low}-{number}" for number in range(first, first + 1000)]
        options = KeyOptions(history_messages=1).to_wire()
        core.change(wire.Step(configures=wire.Configures(keys=map(str.encode, names), options=options)))
        found += [
            name
            for name, key_id in zip(names, ids_of(core, names), strict=True)
            if crc32(key_id) & ((1 << bits) - 1) == low
        ]
        if len(found) >= keys:
            return found[:keys]
    raise AssertionError


def queue(core: CoreDriver, name: str = "q") -> Queue:
    found = core.state.load_queue(name.encode())
    assert found is not None
    return found


def largest(core: CoreDriver, name: str = "q") -> int:
    found = queue(core, name)
    return max(len(found.numbered_bucket(number).starts) for number in range(found.extra_buckets + 1))


def full(core: CoreDriver, more: int = 4) -> tuple[list[str], list[str]]:
    """Queue `q` is bound to as many keys of one crowd as it may be. Returns them, and more of them."""
    keys = made(core, MAX + more)
    core.change(declare("q"), *(bind("q", key) for key in keys[:MAX]))
    assert largest(core) == MAX
    return keys[:MAX], keys[MAX:]


def refused(outcome: wire.StepOutcome) -> ResourceExhausted:
    (refusal,) = outcome.refusals
    error = from_wire(refusal.error)
    assert isinstance(error, ResourceExhausted)
    assert error.message.startswith("queue q has ") and "bindings in the row where that of key k1-" in error.message
    assert (error.subject, error.limit) == ("bindings in a row of a queue", MAX) and error.value > MAX
    return error


def test_a_row_whose_count_would_not_fit_stops_no_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows count up to 65,535 bindings: a record that made more could not be applied, at no start. Here up to 255."""
    monkeypatch.setattr(queue_row, "_BUCKET_HEADER", Struct(">BB"))
    with patched({"BUCKET_ENTRIES_MAX": 250}):
        core = CoreDriver()
        core.change(declare("q"))
        for key in made(core, 260, bits=4):
            core.change(bind("q", key))
        assert largest(core) == 250 and queue(core).bindings == 250
        core.check()


def test_a_full_row_takes_no_more_and_other_binds_go_on() -> None:
    with patched(SMALL):
        core = CoreDriver()
        bound, more = full(core)
        others = made(core, 4, OTHERS)
        refused(core.change(bind("q", more[0])).steps[0])
        refused(core.change(bind("q", *others[:3], more[0], "new")).steps[0])
        assert queue(core).bindings == MAX
        assert not core.change(bind("q", *bound)).steps[0].refusals  # What is bound stays so.
        assert not core.change(bind("q", *others, "new")).steps[0].refusals
        core.change(unbind("q", bound[0]))
        assert not core.change(bind("q", more[0])).steps[0].refusals
        assert largest(core) == MAX
        refused(core.change(bind("q", bound[0])).steps[0])
        core.check()
        core.change(drop("q"))
        core.settle()
        core.check()


def test_it_is_the_same_for_all_binds() -> None:
    with patched(SMALL | {"APPLIED_PER_STEP": 4}):
        core = CoreDriver()
        bound, more = full(core)
        others = made(core, 12, OTHERS)
        core.change(bind("other", *more), publish(more[0], b"x"))
        before = contents(core.tables)
        starts = [(start, 1) for start in wire.Start.values()]
        for start, value in starts:
            refused(core.change(bind("q", more[0], start=start, value=value)).steps[0])
            refused(core.change(bind("q", *bound, *others[:3], more[0], start=start, value=value)).steps[0])
        both = wire.Step(
            binds=wire.Binds(queues=[b"q", b"q"], key_counts=[1, 1], keys=[more[0].encode(), bound[0].encode()])
        )
        refused(core.change(both).steps[0])
        limited = wire.LimitedBinds(binds=bind("q", more[0]).binds)
        refused(core.change(wire.Step(limited_binds=limited)).steps[0])
        refused(core.change(imports({b"q": [b"new", more[0].encode()]})).steps[0])
        refused(core.change(imports({b"q": [more[0].encode()]}, [2])).steps[0])
        after = contents(core.tables)
        assert all(before[table] == after[table] for table in ("queue", "membership", "binding", "key"))
        assert core.tables.key.get(core.state.full_name(b"new")) is None
        core.check()


def test_a_transaction_is_done_whole_or_not_at_all() -> None:
    with patched(SMALL):
        core = CoreDriver()
        bound, more = full(core)
        with pytest.raises(
            ResourceExhausted, match=r"may have 6: .*\(step 2 \(binds\), request 0 of a transaction: nothing"
        ):
            core.change(declare("r"), publish(bound[0], b"x"), bind("q", *more[:2]), atomic=True)
        assert core.state.load_queue(b"r") is None
        assert queue(core).bindings == MAX
        # What an earlier step makes room for, a later one has.
        outcome = core.change(unbind("q", bound[0]), bind("q", more[0]), atomic=True)
        assert not any(step.refusals for step in outcome.steps)
        # And what an earlier step takes, a later one has not.
        with pytest.raises(ResourceExhausted, match=r"\(step 2 \(binds\)"):
            core.change(unbind("q", more[0]), bind("q", bound[0]), bind("q", more[1]), atomic=True)
        (key_id,) = ids_of(core, more[:1])
        assert key_id in queue(core).bucket(key_id).starts
        core.check()


@pytest.mark.parametrize("per_step", [1, 3, 100])
@pytest.mark.parametrize("imported", [False, True])
def test_the_keys_of_one_request_count_together(per_step: int, imported: bool) -> None:
    """A request of 977 keys made a row of 2,000: each ack of it took 0.4 ms, a frame of 900 stopped all others."""
    with patched(SMALL | {"APPLIED_PER_STEP": per_step, "IMPORTED_PER_STEP": per_step}):
        core = CoreDriver()
        keys = made(core, 2 * MAX + 4)
        core.change(declare("q", "r"), *(bind("q", key) for key in keys[: MAX - 2]))

        def asked(*some: str, queue: str = "q") -> wire.StepOutcome:
            step = imports({queue.encode(): [key.encode() for key in some]}) if imported else bind(queue, *some)
            return core.change(step).steps[0]

        refused(asked(*keys[: MAX + 1]))
        assert not asked(*keys[:MAX]).refusals, "what is bound counts once"
        assert largest(core) == MAX
        assert asked(*keys[: MAX + 1], queue="r").refusals, "also where the queue has few bindings before"
        many = [f"new{number}" for number in range(20 * MAX)]
        assert not asked(*many, queue="r").refusals, "they will lie in many rows"
        core.change(*(publish(key, b"x") for key in keys[:MAX]))
        core.change(*(acks(("q", key, 1, 2)) for key in keys[:MAX:2]))
        core.check()


def test_a_new_key_gets_an_id_for_which_there_is_room() -> None:
    """Others may have made so many keys that the next one in each partition would come to a full row."""
    with patched(SMALL):
        core = CoreDriver()
        full(core)
        for partition in range(PARTITIONS):
            row_key = partition.to_bytes(2, "big")
            number = decode_partition(core.tables.partition.get(row_key)).next_number
            while not queue(core).is_full(ids.key_id(partition, number)):
                number += 1
            core.tables.partition.put(row_key, encode_partition(PartitionRow(number, 0)))
        for number in range(8):
            assert not core.change(bind("q", f"new{number}")).steps[0].refusals
        assert largest(core) == MAX and queue(core).bindings == MAX + 8
        core.check()


def test_a_direct_key_is_bound_also_in_a_full_row() -> None:
    """A queue has one, and cannot choose it."""
    with patched(SMALL):
        core = CoreDriver()
        core.change(declare("q"), publish("@q", b"x"))
        (direct,) = ids_of(core, ["@q"])
        core.change(drop("q"), declare("q"))
        core.change(*(bind("q", key) for key in made(core, MAX, crc32(direct) & 63)))
        outcome = core.change(publish("@q", b"y"))
        assert not outcome.steps[0].refusals and list(outcome.steps[0].queues) == [1]
        assert ids_of(core, ["@q"]) == [direct] and largest(core) == MAX + 1
        core.check()


def test_full_rows_are_not_joined() -> None:
    """A queue that lost most of its bindings gives up rows, but not where one would then have too many."""
    with patched(SMALL):
        core = CoreDriver()
        low, high = made(core, MAX, 1), made(core, MAX, 1 + 32)
        others = [key for rest in (0, 2, 3, 4, 5, 6, 7) for key in made(core, 20, rest, bits=3)]
        core.change(declare("q"), bind("q", *others), *(bind("q", key) for key in low + high))
        assert queue(core).extra_buckets == 75
        core.change(unbind("q", *others))
        found = queue(core)
        assert (found.bindings, found.extra_buckets, largest(core)) == (2 * MAX, 33, MAX)
        core.check()
        core.change(unbind("q", *high[1:], low[0]))
        assert (queue(core).extra_buckets, largest(core)) == (MAX - 1, MAX)
        core.check()


def test_replay_and_followers_refuse_alike() -> None:
    with patched(SMALL):
        core, random = CoreDriver(), Random(1)
        keys = [*made(core, 2 * MAX), *made(core, 2 * MAX, OTHERS), *(f"new{number}" for number in range(20))]
        core.change(declare("q"))
        met = 0
        for _ in range(150):
            some = random.sample(keys, random.choice((1, 1, 3, 9)))
            step = bind("q", *some) if random.random() < 0.7 else unbind("q", *some, discard=True)
            met += len(core.change(step).steps[0].refusals)
            if random.random() < 0.1:
                core.change(publish(random.choice(keys), b"x"))
        assert met > 10
        core.check()
        expected = contents(core.tables)
        assert contents(replayed_by_starts(core.records)) == expected
        base = MemoryBase()
        delta = Delta(base)
        follower = CoreDriver(delta)
        for number, record in enumerate(core.records[1:]):
            follower.engine.apply(record)
            if number % 5 == 0:
                delta.freeze()
                base.checkpoint(delta)
        assert contents(delta) == expected


def test_the_limit_itself() -> None:
    core = CoreDriver()
    keys = made(core, limits.BUCKET_ENTRIES_MAX + 1, bits=5)
    core.change(declare("q"))
    core.change_all(bind("q", key) for key in keys[:-1])
    assert largest(core) == limits.BUCKET_ENTRIES_MAX
    (refusal,) = core.change(bind("q", keys[-1])).steps[0].refusals
    assert refusal.error.limit == limits.BUCKET_ENTRIES_MAX
    core.check()


def test_layouts_of_large_rows_are_not_kept() -> None:
    """Those of all rows up to the limit would take 100 MiB."""
    queue_row._kept_layout.cache_clear()
    core = CoreDriver()
    keys = made(core, 3 * limits.BUCKET_LAYOUT_ENTRIES_MAX, bits=5)
    core.change(declare("q"))
    for key in keys[: 2 * limits.BUCKET_LAYOUT_ENTRIES_MAX]:
        core.change(bind("q", key))
    assert largest(core) == 2 * limits.BUCKET_LAYOUT_ENTRIES_MAX
    before = queue_row._kept_layout.cache_info().currsize
    for key in keys[2 * limits.BUCKET_LAYOUT_ENTRIES_MAX :]:
        core.change(bind("q", key))
    assert queue_row._kept_layout.cache_info().currsize == before
    core.check()


def _rows(checksums: Sequence[int], rows: int) -> Counter[int]:
    """How many of these ids each of so many rows has: as `bucket_number` does it, faster."""
    level = 1 << (rows.bit_length() - 1)
    return Counter(low if (low := one & (2 * level - 1)) < rows else one & (level - 1) for one in checksums)


@pytest.mark.parametrize("kind", ["as they come", "of one partition", "every 4096th"])
def test_rows_of_others_stay_far_below_the_limit(kind: str) -> None:
    """At any stage of a queue's growth."""
    random, numbers, checksums = Random(1), [0] * 4096, list[int]()
    for _ in range(limits.BINDINGS_PER_QUEUE_MAX):
        partition = random.randrange(4096) if kind == "as they come" else 7
        numbers[partition] += 4096 if kind == "every 4096th" else 1
        checksums.append(crc32(ids.key_id(partition, numbers[partition])))
    for part in range(1, 13):
        bindings = limits.BINDINGS_PER_QUEUE_MAX * part // 12
        rows = -(-bindings // limits.BUCKET_ENTRIES_MEAN)
        assert max(_rows(checksums[:bindings], rows).values()) * 4 <= limits.BUCKET_ENTRIES_MAX


def test_numbers_that_are_tried_for_a_new_key_cannot_all_come_to_full_rows() -> None:
    random, most = Random(2), limits.BINDINGS_PER_QUEUE_MAX
    for rows in (22, 31, 32, 33, 63, 64, 100, 127, 128, 255, 300, 512, 900, 1024, 1500, 2047, 2048, 2084):
        full_rows = min(most, (rows + 1) * limits.BUCKET_ENTRIES_MEAN) // limits.BUCKET_ENTRIES_MAX
        for _ in range(20):
            partition, number = random.randrange(4096), random.randrange(1, 1 << 40)
            tried = range(number, number + limits.KEY_NUMBERS_TRIED_MAX)
            met = {queue_row.bucket_number(ids.key_id(partition, one), rows) for one in tried}
            assert len(met) > full_rows
