"""What stands between two steps of a look at a queue takes little memory, whatever its bindings have done."""

from __future__ import annotations

import tracemalloc
from unittest.mock import patch

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.answer_room import described_bytes
from shoal_slice_node.adapters.limits import LARGE_ANSWER_BYTES, SMALL_ANSWER_BYTES
from shoal_slice_node.core.limits import DESCRIBED_RANGES_PER_COST, READ_ROWS_PER_STEP
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.read import reading
from shoal_slice_node.core.read.reading import NOT_CONSUMED, describe, peek
from shoal_slice_node.core.turns import Work, finish

from .core_driver import CoreDriver, acks, bind, declare, every_second, publish, unbind, with_done

RANGES = 2_000
KEYS = [f"k{number}" for number in range(6)]
MESSAGES = 2 * RANGES + 10


@pytest.fixture(scope="module")
def core() -> CoreDriver:
    """A queue of bindings with thousands of done ranges each, with one that has ended among them."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", *KEYS))
    for key in KEYS:
        for _ in range(MESSAGES // 10):
            core.change(publish(key, *([b"xy"] * 10)))
    with_done(core, "q", KEYS, every_second(RANGES))
    core.change(unbind("q", KEYS[2]))
    return core


def described(core: CoreDriver) -> Work[wire.Description]:
    return describe(core.state, wire.Describe(queues=[b"q"]), lambda _: NOT_CONSUMED)


@pytest.mark.parametrize("looks", ["describe", "peek"])
def test_thousands_of_done_ranges_are_in_memory_within_a_step_only(core: CoreDriver, looks: str) -> None:
    """500 describes of 5 bytes took a node of 320 MiB to 499, and, where the acks came a little later, to 536: each
    kept up to a megabyte of decoded ranges from step to step."""
    queue_id = core.tables.queue_by_name.get(b"q")
    assert queue_id is not None
    pull = wire.Pull(queue=b"q", messages_max=1, peek=True)
    works: list[Work[object]] = [
        described(core) if looks == "describe" else requests.pull(core.node, core.session(), pull, 0, 0).whole()
        for _ in range(10)
    ]
    tracemalloc.start()
    try:
        for step in range(12):
            for work in works:
                next(work, None)
            assert tracemalloc.get_traced_memory()[0] < len(works) * 20_000, step
    finally:
        tracemalloc.stop()


def test_no_chunk_is_in_memory_between_steps() -> None:
    """500 describes of 5 bytes, of a queue with chunks of a megabyte of which every second message was acked, took a
    node of 320 MiB to 1,211."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", *([bytes(100)] * 3_000)))
    with_done(core, "q", ["k"], every_second(1_490))
    works = [described(core) for _ in range(10)]
    tracemalloc.start()
    try:
        for step in range(3):
            for work in works:
                assert next(work, 0) is None
            assert tracemalloc.get_traced_memory()[0] < len(works) * 20_000, step
    finally:
        tracemalloc.stop()
    found = finish(works[0]).queues[0]
    assert (found.messages, found.body_bytes) == (1_510, 1_510 * 100)


def test_steps_are_of_one_size_and_the_figures_exact(core: CoreDriver) -> None:
    """A step goes on where the one before ended, within a binding too."""
    left = len(KEYS) * (MESSAGES - RANGES)
    work, steps = described(core), 0
    while True:
        try:
            next(work)
        except StopIteration as stop:
            found = stop.value.queues[0]
            break
        steps += 1
    assert (found.messages, found.body_bytes) == (left, 2 * left)
    ranges = len(KEYS) * RANGES
    assert ranges / (DESCRIBED_RANGES_PER_COST * READ_ROWS_PER_STEP) - 2 < steps < 3 * ranges / READ_ROWS_PER_STEP
    assert len(finish(peek(core.state, core.tables.queue_by_name.get(b"q") or b"", 30_000, 1 << 30))) > RANGES


def test_what_is_acked_while_a_binding_is_described_leads_nowhere_else() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    for _ in range(70):
        core.change(publish("k", *([b"xyz"] * 10)))
    with_done(core, "q", ["k"], every_second(300))
    with patch.object(reading, "DESCRIBED_RANGES_PER_COST", 1):
        work = described(core)
        for _ in range(3):
            next(work)
        core.change(acks(("q", "k", 1, 401)))
        found = finish(work).queues[0]
    assert found.messages == 400 and 300 <= found.body_bytes <= 1_200


@pytest.mark.parametrize(("bindings", "steps_max"), [(0, 22), (1, 32), (40, 500)])
def test_small_queues_of_one_describe_share_steps(bindings: int, steps_max: int) -> None:
    """A queue without bindings took a step of its own: a thousand of them waited behind all long work for 5 s. Those
    with 40 shared one of 4,000 rows."""
    core = CoreDriver()
    names = [f"q{number}" for number in range(1_000)]
    core.change(declare(*names))
    if bindings:
        for name in names:
            core.change(bind(name, *(f"k{number}" for number in range(bindings))))
    request = wire.Describe(queues=[name.encode() for name in names])
    work, steps = describe(core.state, request, lambda _: NOT_CONSUMED), 0
    while next(work, 0) is None:
        steps += 1
    assert 1_000 * max(1, bindings) / READ_ROWS_PER_STEP <= steps <= steps_max


@pytest.mark.parametrize("ended", [1, 40, 99, 100, 101])
def test_the_check_of_what_a_describe_costs_shares_steps_among_queues(ended: int) -> None:
    """A queue with up to 99 ended bindings took no step: 1,000 of them were 99,000 rows in one of 0.25 s."""
    core = CoreDriver()
    names, keys = [f"q{number}" for number in range(20)], [f"k{number}" for number in range(ended)]
    core.change(declare(*names))
    for name in names:
        core.change(bind(name, *keys))
    core.change(*(publish(key, b"left") for key in keys))
    for name in names:
        core.change(unbind(name, *keys))
    steps = sum(1 for _ in reading._check_cost(core.state, [name.encode() for name in names]))
    assert 20 * ended // READ_ROWS_PER_STEP <= steps <= 20 * (ended + 2) // READ_ROWS_PER_STEP + 1


def test_a_describe_reserves_its_answer() -> None:
    """It waits for nothing, but where its answer may be large."""
    names = [b"q%d" % number for number in range(9)]
    assert described_bytes(wire.Describe(queues=names)) <= SMALL_ANSWER_BYTES
    assert described_bytes(wire.Describe(queues=names, bindings=True)) == LARGE_ANSWER_BYTES
