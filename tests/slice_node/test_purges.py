"""Purge in the core and in dispatch: what goes, what stays, and what consumers notice."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import pytest

from shoal_contract.errors import Malformed, NoSuchQueue, from_wire
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply import purges
from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.limits import DONE_RANGES_PER_COST, PURGE_BINDINGS_MAX
from shoal_slice_node.core.read.reading import describe_key, describe_queue
from shoal_slice_node.core.rows.detail_row import count_done
from shoal_slice_node.core.verbs import verb
from shoal_slice_node.core.verbs.changes import parse_change

from .core_driver import CoreDriver, bind, declare, every_second, publish, purge, unbind, with_done

KEYS = [f"k{number}" for number in range(200)]


def backlog(core: CoreDriver, queue: str) -> int:
    return describe_queue(core.state, queue.encode(), 0).messages


def test_a_purge_forgets_what_a_session_has_and_opens_its_window() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    session = core.session()
    core.attach(session, "q", messages=2)
    core.change(publish("k", b"a"), publish("k", b"b"), publish("k", b"c"))
    assert [body for _, _, body in core.take(session)] == [b"a", b"b"]
    outcome = core.change(purge("q"))
    assert (list(outcome.steps[0].messages), list(outcome.steps[0].positions)) == ([3], [0])
    core.change(publish("k", b"d"))
    assert [body for _, _, body in core.take(session)] == [b"d"]
    core.ack(session, "k", 1, 3)
    core.flush()
    assert backlog(core, "q") == 1, "an ack of what was purged changes nothing"
    core.ack(session, "k", 0, 5)
    core.settle()
    assert backlog(core, "q") == 0 and describe_key(core.state, b"k").low == 5
    core.check()


def test_what_was_pulled_and_purged_does_not_come_back_when_its_lease_ends() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b"))
    puller = core.session()
    core.pull(puller, "q", 2, lease_ms=100)
    core.change(purge("q"))
    core.now_ms += 200
    core.end_leases()
    assert core.pull(puller, "q", 2) == []
    assert not core.dispatcher.feeds, "a purged queue that nobody consumes leaves no trace"


def test_done_ranges_and_ended_bindings_go_with_the_backlog() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "a", "b"), publish("a", b"1", b"2", b"3"), publish("b", b"4"))
    session = core.session()
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "a", 2, 3)
    core.flush()
    core.change(unbind("q", "b"))
    outcome = core.change(purge("q"))
    assert list(outcome.steps[0].messages) == [3], "what was acked out of order was done before"
    assert not list(core.tables.detail.scan()) and not list(core.tables.ended.scan())
    core.dispatcher.close(session)
    core.settle()
    assert not describe_key(core.state, b"b").exists
    assert not list(core.tables.log.scan())
    core.check()


def test_a_purge_of_many_bindings_comes_in_parts_that_lose_none_when_buckets_are_joined() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", *KEYS))
    core.change(*(publish(key, b"x") for key in KEYS))
    with patch.object(verb, "PURGE_BINDINGS_MAX", 30):
        first = core.change(purge("q")).steps[0]
        assert 0 < first.messages[0] < 200 and first.positions[0]
        core.change(unbind("q", *KEYS[:150], discard=True))
        position, parts = first.positions[0], 1
        while position:
            step = core.change(purge("q", positions=[position])).steps[0]
            position, parts = step.positions[0], parts + 1
    assert backlog(core, "q") == 0 and parts > 2
    core.check()


@pytest.mark.parametrize("bindings", [PURGE_BINDINGS_MAX, 1])
@pytest.mark.parametrize("unbound", [0, 30, 60])
def test_a_part_purges_a_bounded_number_of_done_ranges_and_at_least_one_binding(unbound: int, bindings: int) -> None:
    core = CoreDriver()
    ranges, keys = 2_000, KEYS[:60]
    core.change(declare("q"), bind("q", *keys))
    core.change_all(publish(key, *[b""] * (2 * ranges + 2)) for key in keys)
    with_done(core, "q", keys, every_second(ranges))
    if unbound:
        core.change(unbind("q", *keys[:unbound]))
    parts, position, dropped = [details(core)], 0, 0
    with patch.object(verb, "PURGE_BINDINGS_MAX", bindings):
        while position or not dropped:
            step = core.change(purge("q", positions=[position])).steps[0]
            position, dropped = step.positions[0], dropped + step.messages[0]
            parts.append(details(core))
    assert dropped == len(keys) * (ranges + 2) and not backlog(core, "q") and not sum(parts[-1])
    done = [(before[0] - after[0], before[1] - after[1]) for before, after in pairwise(parts)]
    assert max(count for _, count in done) <= bindings * DONE_RANGES_PER_COST + ranges
    assert sum(rows == 0 for rows, _ in done) <= 3, "but for buckets that have none, and the end"
    core.check()


def details(core: CoreDriver) -> tuple[int, int]:
    """How many rows with details there are, and how many done ranges in them."""
    rows = [row for _, row in core.tables.detail.scan()]
    return len(rows), sum(map(count_done, rows))


def test_a_binding_that_comes_to_have_done_ranges_between_two_parts_is_purged_too() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "a", "b", "c"))
    core.change(*(publish(key, *[b""] * 10) for key in "abc"))
    with_done(core, "q", ["a", "b"], every_second(3))
    with patch.object(verb, "PURGE_BINDINGS_MAX", 1):
        first = core.change(purge("q")).steps[0]
        assert first.positions[0]
        core.change(*(publish(key, *[b""] * 10) for key in "abc"))
        with_done(core, "q", ["c"], every_second(3))
        dropped, position = first.messages[0], first.positions[0]
        while position:
            step = core.change(purge("q", positions=[position])).steps[0]
            dropped, position = dropped + step.messages[0], step.positions[0]
    assert dropped == 60 - 9 and not backlog(core, "q") and details(core) == (0, 0)
    core.check()


def test_the_budget_of_a_frame_is_shared_by_its_queues() -> None:
    core = CoreDriver()
    core.change(declare("q", "r"), bind("q", *KEYS), bind("r", "k1"), publish("k1", b"x"))
    with patch.object(verb, "PURGE_BINDINGS_MAX", 10):
        step = core.change(purge("q", "r")).steps[0]
    assert step.positions[0] and step.positions[1] and backlog(core, "r") == 1
    step = core.change(purge("q", "r", positions=list(step.positions))).steps[0]
    assert list(step.positions) == [0, 0] and backlog(core, "r") == 0


def test_the_budget_of_a_record_is_shared_by_its_steps_and_each_goes_on_from_its_position() -> None:
    core = CoreDriver()
    queues = [f"q{number}" for number in range(30)]
    core.change(declare(*queues), *(bind(queue, "k0", "k1", "k2") for queue in queues))
    core.change(publish("k0", b"x"))
    purged_all, parts = 0, 0
    left = dict.fromkeys(queues, 0)
    with patch.object(verb, "PURGE_BINDINGS_MAX", 20):
        while left:
            outcome = core.change(*(purge(queue, positions=[left[queue]]) for queue in left))
            purged = sum(step.messages[0] for step in outcome.steps)
            assert purged <= 5, "each queue costs four"
            purged_all, parts = purged_all + purged, parts + 1
            steps = zip(left, outcome.steps, strict=True)
            left = {queue: step.positions[0] for queue, step in steps if step.positions[0]}
    assert purged_all == 30 and parts <= 7 and not any(backlog(core, queue) for queue in queues)
    core.check()


def test_a_purge_without_budget_goes_on_where_it_was() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", *KEYS))
    for position, following in (
        (0, 5 << 32),
        (5 << 32 | 3, 5 << 32 | 3),
        (5 << 32 | 5, 5 << 32 | 5),
        (9 << 32, 5 << 32),
    ):
        assert purges.purge(core.state, b"q", position, BindingBudget(0)) == (0, following)


def test_a_purge_of_no_queue_is_refused_and_the_others_go_on() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"x"))
    step = core.change(purge("nobody", "q")).steps[0]
    assert isinstance(from_wire(step.refusals[0].error), NoSuchQueue)
    assert (list(step.messages), list(step.positions)) == ([0, 1], [0, 0])


def test_positions_that_are_not_one_for_each_queue_are_refused() -> None:
    with pytest.raises(Malformed, match="positions"):
        parse_change(wire.Change(steps=[purge("q", "r", positions=[1])]).SerializeToString())
    with pytest.raises(NoSuchQueue):
        outcome = CoreDriver().change(purge("q", positions=[(1 << 64) - 1]))
        raise from_wire(outcome.steps[0].refusals[0].error)


def test_a_position_of_another_time_begins_anew() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"x"))
    assert list(core.change(purge("q", positions=[(1 << 64) - 1])).steps[0].messages) == [1]
