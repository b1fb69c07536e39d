"""How old the oldest message of a queue's backlog is: exact, whatever was acked, unbound, or given up by its key."""

from __future__ import annotations

import pytest

from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.read.reading import NOT_CONSUMED, describe
from shoal_slice_node.core.turns import finish

from .core_driver import CoreDriver, acks, bind, configure, declare, publish, unbind


@pytest.fixture
def core() -> CoreDriver:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "a", "b"))
    return core


def published(core: CoreDriver, key: str, messages: int = 1) -> int:
    """Publishes a second after what came before, in one chunk. Returns the time."""
    core.now_ms += 1_000
    core.change(publish(key, *([b"x"] * messages)))
    return core.wall_ms


def oldest(core: CoreDriver) -> int:
    return finish(describe(core.state, wire.Describe(queues=[b"q"]), lambda _: NOT_CONSUMED)).queues[0].oldest_ms


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_it_is_that_of_the_binding_with_the_oldest_message(core: CoreDriver, order: str) -> None:
    assert oldest(core) == 0, "there is none"
    times = {key: published(core, key) for key in order}
    assert oldest(core) == times[order[0]]
    core.change(acks(("q", order[0], 1, 2)))
    assert oldest(core) == times[order[1]]
    core.change(acks(("q", order[1], 1, 2)))
    assert oldest(core) == 0


def test_it_goes_by_the_first_message_that_is_not_done(core: CoreDriver) -> None:
    times = [published(core, "a") for _ in range(5)]
    core.change(acks(("q", "a", 1, 2), ("q", "a", 4, 5)))
    assert oldest(core) == times[1]
    core.change(acks(("q", "a", 2, 3)))
    assert oldest(core) == times[2]
    core.change(acks(("q", "a", 3, 4)))
    assert oldest(core) == times[4], "the fourth was done before"


def test_messages_of_one_chunk_have_its_time(core: CoreDriver) -> None:
    first, second = published(core, "a", 3), published(core, "a", 3)
    core.change(acks(("q", "a", 1, 3)))
    assert oldest(core) == first
    core.change(acks(("q", "a", 3, 5)))
    assert oldest(core) == second


@pytest.mark.parametrize("next_is_done", [False, True])
def test_what_a_key_gave_up_does_not_count(core: CoreDriver, next_is_done: bool) -> None:
    """No row of the binding says that: its cursor is counted up when it is read, also into a range that is done."""
    core.change(configure("a", KeyOptions(capacity_messages=2, policy="drop_oldest")))
    times = [published(core, "a") for _ in range(2)]
    core.change(acks(("q", "a", 2, 3)))
    times.append(published(core, "a"))
    if next_is_done:
        core.change(acks(("q", "a", 3, 4)))
    times.append(published(core, "a"))
    assert oldest(core) == times[3 if next_is_done else 2]


def test_what_was_published_before_an_unbind_counts(core: CoreDriver) -> None:
    first = published(core, "a")
    core.change(unbind("q", "a"))
    published(core, "a")
    published(core, "b")
    assert oldest(core) == first
