"""What purges and drops count as, for turns and batches: what they may take, not how few they look."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from shoal_contract.limits import FRAME_OPERATIONS_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import Kind, decode_change
from shoal_slice_node.core.fair_queue import FairQueue
from shoal_slice_node.core.limits import (
    BATCH_OPERATIONS_MAX,
    DONE_RANGES_MAX,
    DONE_RANGES_PER_COST,
    DROP_BINDINGS_MAX,
    FAIR_QUANTUM,
    PRICED_QUEUES_MAX,
    PURGE_BINDINGS_MAX,
    RECLAIM_QUEUE_COST,
)
from shoal_slice_node.core.node import commit
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.verbs.changes import check_change, parse_change
from shoal_slice_node.core.verbs.prices import GrowingQueues, price

from ..fuzz.small_limits import patched
from .core_driver import CoreDriver, acks, bind, declare, drop, every_second, publish, purge, raises, unbind, with_done
from .looped_node import Looped, change_of, looped

KEYS = [f"k{number}" for number in range(PURGE_BINDINGS_MAX)]
PARTS = 20


def price_of(core: CoreDriver, *steps: wire.Step) -> int:
    return price(core.state, check_change(wire.Change(steps=steps).SerializeToString()), GrowingQueues())


def test_purges_and_drops_cost_what_their_queues_have_up_to_the_budget_of_a_record() -> None:
    core = CoreDriver()
    core.change(declare("large", "small", "marked", "none"), bind("small", "a", "b"), bind("marked", "a"))
    for _ in range(2):
        core.change(bind("large", *KEYS[:500]))
        core.change(bind("large", *KEYS[500:]))
    core.change(publish("a", *[b""] * 20))
    with_done(core, "marked", ["a"], every_second(5))
    assert price_of(core, purge("large")) == 1 + PURGE_BINDINGS_MAX
    assert price_of(core, purge("large", "large"), purge("large")) == 3 + PURGE_BINDINGS_MAX
    assert price_of(core, purge("small"), publish("a", b"")) == 1 + 2 + 1
    assert price_of(core, purge("none"), purge("absent")) == 2
    assert price_of(core, purge("marked")) == 1 + 1 + DONE_RANGES_MAX // DONE_RANGES_PER_COST
    assert price_of(core, drop("large")) == 1 + RECLAIM_QUEUE_COST, "the rest is reclaimed"
    assert price_of(core, drop("small"), drop("none"), drop("absent")) == 3 + 2
    assert price_of(core, publish("a", b""), declare("large"), bind("large", "x")) == 3


def test_binds_and_unbinds_cost_what_the_done_ranges_of_their_bindings_do() -> None:
    """1,000 bindings with 2,000 of them each counted as 1,000 operations, and everybody's publishes waited a second."""
    core = CoreDriver()
    keys, ranges, imported = KEYS[:20], 10 * DONE_RANGES_PER_COST, wire.Imports(queues=[b"q"])
    core.change(declare("q", "plain"), bind("q", *keys), bind("plain", *keys))
    core.change(*(publish(key, *[b""] * 3 * ranges) for key in keys))
    with_done(core, "q", keys[:2], every_second(ranges))
    imported.keys.extend([keys[0].encode(), keys[2].encode()])
    imported.key_counts.append(2)
    assert price_of(core, unbind("q", *keys)) == len(keys) + 20
    assert price_of(core, bind("q", keys[0])) == 1 + 10
    assert price_of(core, unbind("q", keys[1]), bind("q", *keys[1:])) == len(keys) + 2 * 10
    assert price_of(core, wire.Step(imports=imported)) == 3 + 10
    assert price_of(core, unbind("plain", *keys), bind("absent", "k0"), unbind("q", "absent")) == len(keys) + 2
    limited = wire.LimitedBinds(binds=bind("q", keys[0]).binds)
    assert price_of(core, wire.Step(limited_binds=limited)) == 1 + 10
    atomic = wire.Change(steps=[unbind("q", keys[0])], atomic=True).SerializeToString()
    assert price(core.state, parse_change(atomic), GrowingQueues()) == 2 * (1 + 10)
    with patched({"RANGES_PRICE_MAX": 15}):
        assert price_of(core, unbind("q", *keys), bind("q", keys[0])) == len(keys) + 1 + 15


async def test_unbinds_of_many_done_ranges_are_not_before_the_next_change_of_another() -> None:
    async with looped() as (found, _):
        core, ranges = found.core, FAIR_QUANTUM * DONE_RANGES_PER_COST
        core.change(declare("q", "p"), bind("q", *KEYS[:PARTS]), bind("p", "k0"))
        core.change(*(publish(key, *[b""] * (2 * ranges + 2)) for key in KEYS[:PARTS]))
        with_done(core, "q", KEYS[:PARTS], every_second(ranges))
        told: list[str] = []
        for key in KEYS[:PARTS]:
            submit(found, "flood", told, unbind("q", key))
        submit(found, "other", told, publish("k0", b"body"))
        await all_told(told, 1 + PARTS)
        assert told.index("other") == 0, "what is cheap has its turn first"
        batches = [last - first + 1 for first, last in found.disk.appended]
        assert max(batches) <= 1 + BATCH_OPERATIONS_MAX // FAIR_QUANTUM


@pytest.mark.parametrize("made", [0, 1, 2])
def test_binds_and_unbinds_are_priced_again_when_they_are_written_only_if_many_ranges_may_be_new(
    monkeypatch: pytest.MonkeyPatch, made: int
) -> None:
    """Two look-ups for each queue, a second time for each frame, were a tenth of what churn takes."""
    core, ranges = CoreDriver(), 60 * DONE_RANGES_PER_COST
    core.change(declare("q"), bind("q", "k0", "k1"))
    core.change(publish("k0", *[b""] * (2 * ranges + 2)), publish("k1", *[b""] * (2 * ranges + 2)))
    priced: list[int] = []

    def counted(*about: Any) -> int:
        priced.append(price(*about))
        return priced[-1]

    monkeypatch.setattr(commit, "price", counted)
    lows = [2 * number for number in range(1, ranges + 1)]
    changes: list[wire.Step] = [acks(*(("q", key, low, low + 1) for low in lows)) for key in ("k0", "k1")[:made]]
    for step in (*(changes or [publish("k0", b"")]), unbind("q", "k0", "k1"), drop("absent")):
        payload = change_of(step)
        core.node.commit.submit(
            Item(Kind.CHANGE, payload, lambda _: None, raises, check_change(decode_change(payload)[1]))
        )
    assert priced[-2:] == [2, 1]
    for _ in range(max(1, made)):
        core.node.commit.gather(1, items_max=1)
        core.node.commit.written()
        while core.node.commit.to_apply:
            core.node.commit.step()
    before = len(priced)
    core.node.commit.gather(1)
    again = [2 + 60 * made] if made else []
    assert priced[before:] == [*again, 1], "what may end bindings is priced again in any case"


def test_a_largest_frame_of_drops_is_taken_and_fits_a_batch() -> None:
    core = CoreDriver()
    names = [f"q{number}" for number in range(FRAME_OPERATIONS_MAX)]
    core.declare(names)
    assert price_of(core, drop(*names)) == FRAME_OPERATIONS_MAX + DROP_BINDINGS_MAX <= BATCH_OPERATIONS_MAX
    assert price_of(core, drop(*names[:PRICED_QUEUES_MAX])) == PRICED_QUEUES_MAX
    assert not core.change(drop(*names)).steps[0].refusals


def submit(found: Looped, source: str, told: list[str], *steps: wire.Step) -> None:
    checked = parse_change(wire.Change(steps=steps).SerializeToString())
    done = told.append

    def applied(effects: Effects) -> None:
        assert effects.refused is None
        done(source)

    item = Item(Kind.CHANGE, change_of(*steps), applied, lambda error: done(str(error)), checked, checked.operations)
    found.loop.submit(item, source)


async def all_told(told: list[str], count: int) -> None:
    async with asyncio.timeout(10):
        while len(told) < count:  # noqa: ASYNC110 - the loop tells each item
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("bound_before", [True, False])
async def test_a_batch_holds_few_purges_of_a_large_queue(bound_before: bool) -> None:
    """2,000 of them, of 4 ms each, were written together. One that gets its bindings by the same batch is as large."""
    async with looped() as (found, _):
        large = [declare("large"), bind("large", *KEYS[:-1])]
        told: list[str] = []
        found.disk.hold = held = threading.Event()
        submit(found, "first", told, *(large if bound_before else [declare("large")]))
        if bound_before:
            held.set()
            await all_told(told, 1)
        else:
            submit(found, "flood", told, large[1])
        for _ in range(PARTS):
            submit(found, "flood", told, purge("large"))
        held.set()
        await all_told(told, 1 + PARTS + (not bound_before))
        batches = [last - first + 1 for first, last in found.disk.appended]
        assert sum(batches) == len(told) and set(told) == {"first", "flood"}
        assert max(batches) <= 1 + -(-BATCH_OPERATIONS_MAX // PURGE_BINDINGS_MAX), batches


async def test_purges_of_a_large_queue_are_not_before_the_next_change_of_another() -> None:
    async with looped() as (found, _):
        told: list[str] = []
        submit(found, "first", told, declare("large"), bind("large", *KEYS[:-1]))
        await all_told(told, 1)
        for _ in range(PARTS):
            submit(found, "flood", told, purge("large"))
        submit(found, "other", told, publish("k0", b"body"))
        await all_told(told, 2 + PARTS)
        assert told.index("other") == 1, "what is cheap has its turn first"


def test_what_turned_out_dear_is_paid_for_by_a_longer_wait() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(3):
        queue.put("dear", number, 1, 0)
    queue.put("other", 9, FAIR_QUANTUM, 0)
    queue.put("other", 10, FAIR_QUANTUM, 0)
    source, _ = queue.take()
    assert source == "dear"
    queue.charge("dear", 3 * FAIR_QUANTUM)
    assert [queue.take()[1] for _ in range(4)] == [9, 10, 1, 2]
    queue.charge("dear", 1)
    assert not queue, "nothing of it waits: there is no debt"
