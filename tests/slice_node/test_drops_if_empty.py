"""Drops of queues that must be empty: whether one is, is found by a look at each binding's row."""

from __future__ import annotations

import tracemalloc
from random import Random

from shoal_contract.errors import Conflict
from shoal_contract.options import KeyOptions
from shoal_slice_node.core.read.reading import describe_queue

from .core_driver import CoreDriver, acks, bind, configure, declare, drop_if, every_second, publish, with_done
from .drop_steps import refusal

FEW = KeyOptions(capacity_messages=6, policy="drop_oldest")


def test_a_queue_is_empty_if_it_has_nothing_to_get() -> None:
    """Whatever was acked, in any order, and whatever its key gave up."""
    random, outcomes = Random(5), set[bool]()
    core = CoreDriver()
    for number in range(80):
        queue, key = f"q{number}", f"k{number}"
        core.change(declare(queue), bind(queue, key), configure(key, FEW))
        for head in range(2, 2 + random.randrange(12)):
            core.change(publish(key, b"x"))
            for offset in random.sample(range(1, head), random.randrange(min(head, 4))):
                core.change(acks((queue, key, offset, offset + 1)))
        messages = describe_queue(core.state, queue.encode(), 0).messages
        empty = refusal(core.change(drop_if(queue, empty=True))) is None
        assert empty == (messages == 0)
        outcomes.add(empty)
    assert outcomes == {False, True}


def test_done_ranges_that_the_key_gave_up_are_not_decoded() -> None:
    """A refused drop of a queue with a thousand such bindings decoded 4,000,000 ranges in one step: 0.16 s."""
    core = CoreDriver()
    core.change(declare("q", "other"), bind("q", "k"))
    for _ in range(600):
        core.change(publish("k", *([b"x"] * 10)))
    with_done(core, "q", ["k"], every_second(2_900))
    core.change(configure("k", KeyOptions(capacity_messages=100, policy="drop_oldest")))
    core.change(publish("k", b"x"))
    core.settle()
    tracemalloc.start()
    try:
        found = refusal(core.change(drop_if("q", empty=True)))
        assert isinstance(found, Conflict) and tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
