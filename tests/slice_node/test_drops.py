"""Drops: many at once, what they leave to the background, and drops only of queues that are unused or empty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shoal_contract.errors import Conflict, NoSuchQueue, ResourceExhausted, ShoalError, TooLarge
from shoal_contract.limits import DROP_IF_EMPTY_OPERATIONS, FRAME_OPERATIONS_MAX
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.drop_conditions import IN_USE
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import ChangeHead, Kind, decode_change, encode_change
from shoal_slice_node.core.limits import DROPPED_WITH_BINDINGS_MAX, EMPTY_BINDINGS_MAX, RECLAIM_COST_PER_TURN
from shoal_slice_node.core.node.commit import Batch, Item
from shoal_slice_node.core.node.requests import attach, pull
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.small_rows import RECLAIM_QUEUE
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import ROW_TABLES
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.changes import parse_change
from shoal_slice_node.core.verbs.engine import Engine
from shoal_slice_node.core.verbs.table import columns_of

from .core_driver import CoreDriver, bind, configure, declare, drop, drop_if, publish, purge, raises, unbind
from .drop_steps import NINE, exists, item, populated, refusal

# Many at once.


def test_a_storm_of_drops_costs_the_same_whatever_the_queues_are_bound_to() -> None:
    core, names = populated(DROPPED_WITH_BINDINGS_MAX + 1)
    before = core.tables.binding.entries()
    outcome = core.change(drop(*names)).steps[0]
    assert not outcome.refusals and all(outcome.offsets), "each tells the life that ended"
    assert not any(exists(core, name) for name in names)
    assert core.tables.binding.entries() == before == 9 * len(names), "the bindings end later"
    assert len(list(core.tables.reclaim.scan(RECLAIM_QUEUE))) == len(names)
    core.check()
    core.settle()
    assert core.tables.binding.entries() == 0 and not list(core.tables.reclaim.scan(RECLAIM_QUEUE))
    assert all(core.tables.key.get(core.state.full_name(key.encode())) is None for key in NINE)
    core.check()


def test_few_drops_end_their_bindings_at_once() -> None:
    core, names = populated(3)
    core.change(drop(*names))
    assert core.tables.binding.entries() == 0 and not list(core.tables.reclaim.scan(RECLAIM_QUEUE))
    core.check()


def test_names_of_a_storm_are_free_at_once_and_what_was_sent_before_is_gone() -> None:
    core, names = populated(DROPPED_WITH_BINDINGS_MAX + 1)
    core.change(publish("@q0", b"for the old one"), publish("k0", b"for both?"))
    core.change(drop(*names), declare("q0"), bind("q0", "k0"), publish("@q0", b"for the new one"))
    session = core.session()
    core.attach(session, "q0")
    assert [body for _, _, body in core.take(session)] == [b"for the new one"]
    core.settle()
    core.check()
    assert core.tables.binding.entries() == 2


def test_a_storm_of_queues_with_backlogs_and_ends_leaves_nothing() -> None:
    core, names = populated(DROPPED_WITH_BINDINGS_MAX + 1)
    core.change(publish("k0", b"a"), publish("k1", b"b"))
    core.change_all(unbind(name, "k0") for name in names[:50])
    core.change(drop(*names))
    core.check()
    core.settle()
    core.check()
    tables = core.tables
    assert not list(tables.detail.scan()) and not list(tables.log.scan()) and not list(tables.ended.scan())


def test_a_reclaim_record_is_applied_in_steps() -> None:
    core, names = populated(DROPPED_WITH_BINDINGS_MAX + 1)
    core.change(drop(*names))
    proposal = core.node.maintenance._jobs["reclaim"].turn(0)
    assert proposal is not None and proposal.operations == RECLAIM_COST_PER_TURN
    core.node.commit.submit(
        Item(proposal.kind, proposal.payload, lambda _: None, raises, operations=proposal.operations)
    )
    core.node.commit.gather(core.wall_ms)
    core.node.commit.written()
    steps = 0
    while core.node.commit.to_apply:
        core.node.commit.step()
        steps += 1
    assert steps > 2, "other work goes on between them"
    core.check()


def test_a_storm_replays_to_the_same_tables() -> None:
    core, names = populated(DROPPED_WITH_BINDINGS_MAX + 1)
    session = core.session()
    core.attach(session, "q1")
    core.change(drop(*names[10:]))
    core.change(drop_if(*names[:20], unused=True, empty=True))
    core.settle()
    tables = MemoryTables()
    engine = Engine(tables)
    for record in core.records:
        engine.apply(record)
    for name in ROW_TABLES:
        assert list(getattr(tables, name).scan()) == list(getattr(core.tables, name).scan()), name


# If empty.


def test_a_queue_is_dropped_if_it_is_empty() -> None:
    core, _ = populated(2)
    core.change(publish("k8", b"a"))
    outcome = core.change(drop_if("q0", "q1", "nobody", empty=True))
    for request, queue in enumerate(("q0", "q1")):
        found = refusal(outcome, 0, request)
        assert isinstance(found, Conflict) and f"queue {queue} is not empty" in found.message
        assert found.subject == queue and exists(core, queue)
    assert isinstance(refusal(outcome, 0, 2), NoSuchQueue)
    assert list(outcome.steps[0].offsets) == [0, 0, 0]
    core.change(purge("q0"))
    assert refusal(core.change(drop_if("q0", empty=True))) is None and not exists(core, "q0")
    assert exists(core, "q1")
    core.check()


@pytest.mark.parametrize("left", ["unbound with a backlog", "acked out of order", "sent directly", "unacked"])
def test_everything_that_is_left_to_get_is_a_backlog(left: str) -> None:
    core, _ = populated(1)
    if left == "sent directly":
        core.change(publish("@q0", b"a"))
    else:
        core.change(publish("k0", b"a"), publish("k0", b"b"))
    session = core.session()
    core.attach(session, "q0")
    messages = core.take(session)
    if left == "acked out of order":
        core.ack(session, "k0", messages[1][1], messages[1][1] + 1)
        core.flush()
    if left == "unbound with a backlog":
        core.change(unbind("q0", "k0"))
    assert isinstance(refusal(core.change(drop_if("q0", empty=True))), Conflict)
    for key, offset, _ in messages:
        core.ack(session, key, offset, offset + 1)
    core.flush()
    assert refusal(core.change(drop_if("q0", empty=True))) is None


def test_looking_for_a_backlog_is_bounded() -> None:
    core = CoreDriver()
    core.declare(["large", "most", "small"])
    keys = [f"k{number}" for number in range(EMPTY_BINDINGS_MAX + 1)]
    core.change(bind("large", *keys[:900]))
    core.change(bind("large", *keys[900:]))
    core.change(bind("most", *keys[:900]))
    core.change(bind("most", *keys[900:EMPTY_BINDINGS_MAX]), bind("small", "k0"))
    outcome = core.change(drop_if("large", "most", "small", empty=True))
    found = refusal(outcome, 0, 0)
    assert isinstance(found, TooLarge) and found.limit == EMPTY_BINDINGS_MAX and found.value == len(keys)
    assert refusal(outcome, 0, 1) is None, "exactly as many as are looked at"
    found = refusal(outcome, 0, 2)
    assert isinstance(found, ResourceExhausted) and exists(core, "small")
    assert refusal(core.change(drop_if("small", empty=True))) is None, "asked again"
    core.settle()
    core.check()


def test_a_frame_takes_fewer_drops_of_empty_queues() -> None:
    most = FRAME_OPERATIONS_MAX // DROP_IF_EMPTY_OPERATIONS
    names = [f"q{number}" for number in range(most + 1)]
    assert parse_change(wire.Change(steps=[drop_if(*names[:most], empty=True)]).SerializeToString())
    with pytest.raises(TooLarge):
        parse_change(wire.Change(steps=[drop_if(*names, empty=True)]).SerializeToString())
    assert parse_change(wire.Change(steps=[drop_if(*names, unused=True)]).SerializeToString())


# If unused.


def test_a_queue_is_dropped_if_no_session_consumes_it() -> None:
    core, _ = populated(3)
    session = core.session()
    core.attach(session, "q1")
    outcome = core.change(drop_if("q0", "q1", "q2", unused=True))
    found = refusal(outcome, 0, 1)
    assert isinstance(found, Conflict) and "queue q1 is in use" in found.message and found.subject == "q1"
    assert len(outcome.steps[0].refusals) == 1
    assert [exists(core, name) for name in ("q0", "q1", "q2")] == [False, True, False]
    core.dispatcher.detach(session, 1)
    assert refusal(core.change(drop_if("q1", unused=True))) is None
    core.check()


def test_a_queue_of_which_messages_are_pulled_is_in_use_until_they_are_acked_or_given_back() -> None:
    core, _ = populated(1)
    core.change(publish("k0", b"a"))
    session = core.session()
    core.pull(session, "q0", 1, lease_ms=500)
    assert isinstance(refusal(core.change(drop_if("q0", unused=True))), Conflict)
    core.now_ms += 1_000
    core.end_leases()
    core.pump()
    assert refusal(core.change(drop_if("q0", unused=True))) is None


def test_a_session_that_attaches_a_queue_and_then_drops_it_if_unused_keeps_it() -> None:
    """Also while the attach waits for its turn, when the drop is being written."""
    core, _ = populated(2)
    session = core.session()
    requested = wire.Attach(queues=[b"q0"], handles=[1])
    data = wire.Change(steps=[drop_if("q0", "q1", unused=True)]).SerializeToString()
    found: list[Effects] = []
    one, other = item(data, found), item(data, found)
    other.attaches_before = session.asked.so_far()  # Before the attach was asked for: it may not count.
    work = attach(core.node, session, requested)()
    one.attaches_before = session.asked.so_far()
    core.node.commit.submit(one)
    core.commit()
    assert exists(core, "q0") and not exists(core, "q1")
    assert isinstance(refusal(wire.Outcome.FromString(found[0].outcome or b"")), Conflict)
    finish(work)
    core.dispatcher.detach(session, 1)
    attach(core.node, session, requested)
    core.node.commit.submit(other)
    core.commit()
    assert not exists(core, "q0")
    core.check()


def test_the_record_says_what_the_leader_decided() -> None:
    core, _ = populated(2)
    session = core.session()
    core.attach(session, "q1")
    core.change(declare("q7"), drop_if("q0", "q1", "none", unused=True))
    _, data = decode_change(core.records[-1].payload)
    step = wire.Change.FromString(data).steps[1]
    assert list(step.drops.incarnations) == [0, IN_USE, 0]
    assert list(columns_of(step).queues) == [b"q0", b"none"], "what it may drop, as archives tell it"
    core.change(drop_if("none", unused=True))
    _, data = decode_change(core.records[-1].payload)
    assert not wire.Change.FromString(data).steps[0].drops.incarnations, "nothing was to be added"


def test_a_life_is_named_and_must_be_unused_too() -> None:
    core, _ = populated(1)
    life = core.state.load_queue(b"q0")
    assert life is not None
    other = drop_if("q0", unused=True, empty=True)
    other.drops.incarnations.append(life.incarnation + 1)
    assert isinstance(refusal(core.change(other)), NoSuchQueue)
    other.drops.incarnations[0] = life.incarnation
    assert refusal(core.change(other)) is None


@contextmanager
def writing(core: CoreDriver, *steps: wire.Step) -> Iterator[tuple[Batch, list[Effects], list[ShoalError]]]:
    """While the record is being written."""
    found: list[Effects] = []
    failed: list[ShoalError] = []
    core.node.commit.submit(item(wire.Change(steps=steps).SerializeToString(), found, failed))
    yield core.node.commit.gather(core.wall_ms), found, failed
    while core.node.commit.to_apply:
        core.node.commit.step()


def test_no_session_begins_to_consume_a_queue_whose_drop_is_being_written() -> None:
    core, _ = populated(1)
    core.change(publish("k0", b"a"))
    session = core.session()
    with writing(core, drop_if("q0", unused=True)):
        assert not core.attach(session, "q0"), "it is as good as dropped"
        answer = finish(pull(core.node, core.session(), wire.Pull(queue=b"q0"), 0, 0).whole())
        assert not answer.pulled.deliveries
        core.node.commit.written()
    assert not exists(core, "q0") and not core.dispatcher.registry.ending
    assert core.take(session) == []
    core.change(declare("q0"), publish("@q0", b"next life"))
    assert [body for _, _, body in core.take(session)] == [b"next life"], "it waits for the next life"


@pytest.mark.parametrize("reason", ["it has a backlog", "the disk is full"])
def test_a_queue_that_is_not_dropped_after_all_is_consumed(reason: str) -> None:
    core, _ = populated(1)
    core.change(publish("k0", b"a"))
    session = core.session()
    with writing(core, drop_if("q0", unused=True, empty=True)) as (_, found, failed):
        assert not core.attach(session, "q0")
        if reason == "the disk is full":
            core.node.commit.refused(ResourceExhausted("the disk is full"))
        else:
            core.node.commit.written()
    assert bool(failed) == (reason == "the disk is full") and len(found) + len(failed) == 1
    assert exists(core, "q0") and not core.dispatcher.registry.ending
    assert [body for _, _, body in core.take(session)] == [b"a"]


def test_two_drops_of_one_queue_under_way() -> None:
    core, _ = populated(1)
    found: list[Effects] = []
    for _ in range(2):
        core.node.commit.submit(item(wire.Change(steps=[drop_if("q0", unused=True)]).SerializeToString(), found))
    core.node.commit.gather(core.wall_ms)
    core.node.commit.written()
    core.node.commit.step()
    assert core.dispatcher.registry.ending == {b"q0": 1}
    core.node.commit.step()
    assert not core.dispatcher.registry.ending
    outcomes = [wire.Outcome.FromString(one.outcome or b"") for one in found]
    assert [refusal(outcome) is None for outcome in outcomes] == [True, False]


def test_a_repeated_drop_gets_its_first_answer() -> None:
    core, _ = populated(1)
    session = core.session()
    core.attach(session, "q0")
    data = wire.Change(steps=[drop_if("q0", unused=True)]).SerializeToString()
    payload = encode_change(ChangeHead(b"p" * 16, 1, 0), data)
    found: list[Effects] = []
    for _ in range(2):
        core.node.commit.submit(Item(Kind.CHANGE, payload, found.append, raises, parse_change(data)))
        core.commit()
        core.dispatcher.detach(session, 1)
    assert found[0].outcome == found[1].outcome and exists(core, "q0"), "it was in use when it was first asked"


def test_bindings_with_detail_rows_cost_once_where_a_queue_must_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 of them were refused for ever: the slice said that the queues of the change had more than 1,000."""
    core = CoreDriver()
    keys = [f"k{number}" for number in range(600)]
    core.change(declare("q"))
    for key in keys:
        core.change(configure(key, KeyOptions(capacity_messages=3, policy="drop_oldest")))
    core.change_all(bind("q", *keys[first : first + 100]) for first in range(0, len(keys), 100))
    session = core.session(1 << 30)
    core.attach(session, "q", messages=1_000_000, size=1 << 40)
    for key in keys:
        core.change(publish(key, b"1"), publish(key, b"2"), publish(key, b"3"))
    core.take(session)
    for key in keys:
        core.ack(session, key, 2, 4)
    core.flush()
    for key in keys:  # The first, which is out, is given up, and stays out.
        core.change(publish(key, b"a", b"b", b"c"))
    core.take(session)
    for key in keys:
        core.ack(session, key, 4, 7)
    core.flush()
    core.dispatcher.close(session)
    core.settle()
    assert sum(1 for _ in core.tables.detail.scan()) == len(keys)
    with monkeypatch.context() as patched:  # Thousands of done ranges of each binding would take a second.
        patched.setattr(Ranges, "of_sorted", lambda _: pytest.fail("done ranges are decoded"))
        assert not refusal(core.change(drop_if("q", empty=True))) and not exists(core, "q")


def test_reclaims_and_trims_wait_while_memory_would_not_hold_their_rows() -> None:
    """One drop of a queue with many bindings is one row; what it left filled the delta until nothing was applied."""
    core, names = populated(10)
    core.node.maintenance.holds_back = lambda: True
    core.change(drop(*names))
    lsn = core.state.lsn
    for _ in range(3):
        core.maintain()
    assert core.state.lsn == lsn
    core.node.maintenance.holds_back = lambda: False
    core.maintain()
    assert core.state.lsn > lsn
    core.check()
