"""Transactions: what may stand in them, what refuses them, what their acks mean for sessions, how they are repeated."""

from __future__ import annotations

import pytest

from shoal_contract.errors import (
    Conflict,
    Malformed,
    NoSuchQueue,
    NotOwner,
    OutOfRange,
    ResourceExhausted,
    TooLarge,
    Unroutable,
)
from shoal_contract.limits import FRAME_OPERATIONS_MAX, PARSED_AT_ONCE_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change, encode_ownership
from shoal_slice_node.core.limits import DONE_RANGES_MAX
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.verbs.changes import check_change
from shoal_slice_node.core.verbs.engine import Engine
from shoal_slice_node.core.verbs.prices import GrowingQueues, price

from .core_driver import (
    PARTITIONS,
    CoreDriver,
    acks,
    bind,
    declare,
    drop,
    every_second,
    publish,
    purge,
    unbind,
    with_done,
)
from .memory_base import MemoryBase
from .traces import tables_of, traces_of
from .transaction_steps import consumed

PRODUCER = b"one-producer-id!"


def test_all_steps_of_a_transaction_are_done_in_one_record() -> None:
    core = consumed()
    before = len(core.records)
    outcome = core.change(
        declare("new"), bind("new", "a", "c"), publish("a", b"x"), unbind("q", "b"), acks(("q", "a", 1, 3)), atomic=True
    )
    assert len(core.records) == before + 1
    assert [list(step.offsets) for step in outcome.steps[1:4]] == [[5, 1], [5], [1]]
    assert list(outcome.steps[2].queues) == [2]
    assert not any(step.refusals for step in outcome.steps)
    found = core.state.load_queue(b"q")
    assert found is not None and found.bindings == 1
    assert core.state.counters.acks == 2
    core.settle()
    core.check()


REFUSED = {
    "no such queue": (bind("nobody", "a"), NoSuchQueue, "step 2 (binds), request 0"),
    "unroutable": (publish("empty", b"x", mandatory=True), Unroutable, "step 2 (publishes), request 0"),
    "conflict": (declare("fresh", "q", expires_after_s=9), Conflict, "step 2 (declares), request 1"),
    "acked twice": (acks(("q", "a", 4, 5), ("q", "a", 1, 2)), Conflict, "step 2 (acks), request 1"),
    "acked across what is done": (acks(("q", "a", 1, 4)), Conflict, "request 0"),
    "not bound": (acks(("other", "a", 1, 2)), Conflict, "queue other has nothing of key a to get"),
    "never published": (acks(("q", "a", 4, 8)), OutOfRange, "offset 7 is acked, and its next message gets offset 6"),
    "no such key": (acks(("q", "nokey", 1, 2)), Conflict, "queue q has nothing of key nokey to get"),
    "ack of an unknown queue": (acks(("nobody", "a", 1, 2)), NoSuchQueue, "queue nobody does not exist"),
    "start": (bind("other", "a", start=wire.START_OFFSET, value=77), OutOfRange, "offset 77 asked for"),
}


@pytest.mark.parametrize(("step", "error", "said"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("frozen", ["no", "half", "checkpointed"])
def test_what_is_refused_leaves_no_trace(step: wire.Step, error: type[Exception], said: str, frozen: str) -> None:
    base = MemoryBase()
    core = CoreDriver(delta := Delta(base))
    core.change(declare("q", "other"), bind("q", "a", "b"), *(publish("a", b"%d" % at) for at in range(1, 5)))
    if frozen != "no":
        delta.freeze()
    if frozen == "checkpointed":
        base.checkpoint(delta)
    core.change(acks(("q", "a", 2, 3)))
    session = core.session()
    core.attach(session, "q", messages=2)
    assert core.take(session) == [("a", 1, b"1"), ("a", 3, b"3")]
    core.change(acks(("q", "a", 1, 2)))
    before = traces_of(core.node)
    steps = [publish("a", b"x"), bind("other", "c"), step]
    with pytest.raises(error) as raised:
        core.change(*steps, unbind("q", "a", discard=True), atomic=True)
    assert said in str(raised.value) and "nothing of it was done" in str(raised.value)
    assert traces_of(core.node) == before
    core.ack(session, "a", 3, 4)
    assert core.take(session) == [("a", 4, b"4")]
    outcome = core.change(*steps)
    assert outcome.steps[2].refusals, "by itself each request is done or refused"
    assert traces_of(core.node) != before


def test_a_key_of_another_slice_refuses_all() -> None:
    core = consumed()
    core.record(Kind.OWNERSHIP, encode_ownership(7, bytes([1, 0, 1, 1])[:PARTITIONS]))
    keys = [f"key{number}" for number in range(20)]
    foreign = next(key for key in keys if not core.state.owned[core.state.unchecked_name(key.encode())[1]])
    before = traces_of(core.node)
    for step in (publish(foreign, b"x"), bind("q", foreign), unbind("q", foreign), acks(("q", foreign, 1, 2))):
        with pytest.raises(NotOwner, match=r"step 1 .* of a transaction") as raised:
            core.change(declare("new"), step, atomic=True)
        assert raised.value.map_version == 7
    assert traces_of(core.node) == before


@pytest.mark.parametrize(
    "step", [drop("q"), purge("q"), wire.Step(imports=wire.Imports(queues=[b"q"], key_counts=[0]))]
)
def test_drops_purges_and_imports_may_not_stand_in_a_transaction(step: wire.Step) -> None:
    core = consumed()
    before = traces_of(core.node)
    with pytest.raises(Malformed, match=f"step 1 is {step.WhichOneof('step')}, which an atomic change may not have"):
        core.change(publish("a", b"x"), step, atomic=True)
    assert traces_of(core.node) == before


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"queues": [b"q"], "keys": [b"a"], "lows": [1]}, "0 tos; it needs 1"),
        ({"queues": [b"q"], "keys": [b"a", b"b"], "lows": [1], "tos": [2]}, "2 keys; it needs 1"),
        ({"queues": [], "keys": [], "lows": [1], "tos": [2]}, "1 lows; it needs 0"),
        ({"queues": [b"q"], "keys": [b"a"], "lows": [1], "tos": [2], "lives": [1, 2]}, "2 lives; it needs 1"),
        ({"queues": [b"q"], "keys": [b"a"], "lows": [0], "tos": [2]}, "from 0 up to, not including, 2"),
        ({"queues": [b"q"], "keys": [b"a"], "lows": [2], "tos": [2]}, "from 2 up to, not including, 2"),
        ({"queues": [b"q"], "keys": [b"a"], "lows": [3], "tos": [2]}, "from 3 up to, not including, 2"),
        ({"queues": [b""], "keys": [b"a"], "lows": [1], "tos": [2]}, "queue name is empty"),
        ({"queues": [b"q"], "keys": [b"k" * 256], "lows": [1], "tos": [2]}, "256 bytes; the limit is 255"),
    ],
)
def test_acks_that_make_no_sense_are_refused_before_the_journal(columns: dict[str, list[object]], said: str) -> None:
    step = wire.Step(acks=wire.TransactionAcks(**columns))  # type: ignore[arg-type]
    with pytest.raises(Exception, match=said):
        check_change(wire.Change(steps=[step]).SerializeToString())


def test_a_transaction_has_the_bounds_of_any_frame() -> None:
    """And counts twice for its price, as it is applied twice."""
    named = [("q" * 255, "a" * 255, number, number + 1) for number in range(1, FRAME_OPERATIONS_MAX + 1)]
    data = wire.Change(steps=[acks(one) for one in named], atomic=True).SerializeToString()
    assert len(data) > PARSED_AT_ONCE_BYTES_MAX, "its fields are counted first"
    assert check_change(data).operations == 2 * FRAME_OPERATIONS_MAX
    with pytest.raises(TooLarge, match="operations"):
        check_change(wire.Change(steps=[acks(*named, named[0])], atomic=True).SerializeToString())


def test_acks_of_bindings_with_done_ranges_cost_more() -> None:
    core = consumed(bodies=20)
    checked = check_change(wire.Change(steps=[acks(("q", "a", 1, 2))], atomic=True).SerializeToString())
    assert price(core.state, checked, GrowingQueues()) == 2
    core.change(acks(("q", "a", 5, 6)))
    assert price(core.state, checked, GrowingQueues()) == 2 + 2 * 256


def test_done_ranges_are_bounded() -> None:
    core = consumed()
    core.change_all(publish("a", *([b""] * 4000)) for _ in range(3))
    with_done(core, "q", ["a"], every_second(DONE_RANGES_MAX))
    above = 2 * DONE_RANGES_MAX + 4
    with pytest.raises(ResourceExhausted, match="is in 4096 stretches; the limit is 4096"):
        core.change(acks(("q", "a", above, above + 1)), atomic=True)
    core.change(acks(("q", "a", 3, 4)), atomic=True)
    core.change(acks(("q", "a", above, above + 1)), atomic=True)
    core.change(acks(("q", "a", 1, 2)), atomic=True)
    core.check()


def test_messages_that_are_out_are_acked_and_the_window_opens() -> None:
    core = consumed()
    session, other = core.session(), core.session()
    core.attach(session, "q", messages=1)
    core.attach(other, "q", messages=1)
    ((_, mine, _),), ((_, others, _),) = core.take(session), core.take(other)
    assert {mine, others} == {1, 2}
    core.change(acks(("q", "a", 1, 3)), atomic=True)
    assert sorted([*core.take(session), *core.take(other)]) == [("a", 3, b"2"), ("a", 4, b"3")]
    core.ack(session, "a", mine, mine + 1)
    core.flush()
    assert core.state.counters.acks == 2, "an ack of what is acked changes nothing"
    core.check_served()


def test_what_was_not_given_yet_is_passed_over() -> None:
    core = consumed()
    session = core.session()
    core.attach(session, "q", messages=1)
    assert core.take(session) == [("a", 1, b"0")]
    core.change(acks(("q", "a", 2, 4)), atomic=True)
    core.ack(session, "a", 1, 2)
    core.flush()
    assert core.take(session) == [("a", 4, b"3")]


def test_what_a_session_gave_back_is_not_given_again() -> None:
    core = consumed()
    session = core.session()
    core.attach(session, "q")
    assert len(core.take(session)) == 4
    core.dispatcher.close(session)
    session = core.session()
    core.attach(session, "q", messages=1)
    core.change(acks(("q", "a", 1, 2), ("q", "a", 3, 4)), atomic=True)
    taken = []
    while found := core.take(session):
        taken += found
        core.ack(session, "a", found[0][1], found[0][1] + 1)
    assert [offset for _, offset, _ in taken if offset in (2, 4)] == [2, 4]
    core.flush()
    core.settle()
    assert not list(core.tables.log.scan())


def test_a_pull_that_is_acked_in_a_transaction_is_over() -> None:
    core = consumed()
    session = core.session()
    assert len(core.pull(session, "q", 2, lease_ms=100)) == 2
    core.change(acks(("q", "a", 1, 3)), unbind("q", "a"), bind("q", "a"), atomic=True)
    assert not session.pullers and not core.dispatcher.feeds
    core.now_ms += 200
    core.end_leases()
    core.check()


def test_an_ended_binding_goes_with_its_last_message() -> None:
    core = consumed()
    session = core.session()
    core.attach(session, "q")
    core.take(session)
    core.change(unbind("q", "a"))
    core.change(acks(("q", "a", 1, 4)), atomic=True)
    with pytest.raises(OutOfRange):
        core.change(acks(("q", "a", 4, 6)), atomic=True)
    core.change(acks(("q", "a", 4, 5)), bind("q", "a"), publish("a", b"later"), atomic=True)
    assert core.take(session)[-1] == ("a", 5, b"later")
    core.check()


def test_acks_of_a_session_that_no_record_has_yet_are_not_lost() -> None:
    """They are above the cursor, and the transaction's acks close the gap below."""
    core = consumed()
    session = core.session()
    core.attach(session, "q")
    core.take(session)
    core.ack(session, "a", 3, 4)
    batch, lsn = core.take_acks()
    core.ack(session, "a", 2, 3)
    core.change(acks(("q", "a", 1, 2)), atomic=True)
    core.apply_acks(batch, lsn)
    core.ack(session, "a", 4, 5)
    core.flush()
    core.settle()
    assert not list(core.tables.log.scan()), "all four are acked in the tables"


def test_a_chunk_that_waits_for_its_turn_is_not_given_with_what_was_acked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_slice_node.core.dispatch.growing.GIVEN_AT_ONCE_MAX", 0)
    core = consumed(bodies=1)
    session = core.session()
    core.attach(session, "q")
    assert core.take(session) == [("a", 1, b"0")]
    core.change(publish("a", b"two", b"three", b"four"), acks(("q", "a", 3, 4)), atomic=True)
    assert core.take(session) == [("a", 2, b"two"), ("a", 4, b"four")]


def test_a_repeat_gets_the_first_answer_whatever_has_changed_since() -> None:
    core = consumed()
    steps = [publish("a", b"x"), bind("late", "a")]
    with pytest.raises(NoSuchQueue) as first:
        core.change(*steps, head=ChangeHead(PRODUCER, 1, 0), atomic=True)
    done = core.change(declare("late"), bind("late", "b"), head=ChangeHead(PRODUCER, 2, 0), atomic=True)
    before = tables_of(core.tables, without=("producer",))
    with pytest.raises(NoSuchQueue) as again:
        core.change(*steps, head=ChangeHead(PRODUCER, 1, 0), atomic=True)
    assert str(again.value) == str(first.value) and again.value.subject == first.value.subject == "late"
    assert core.change(declare("late"), head=ChangeHead(PRODUCER, 2, 0), atomic=True) == done
    assert tables_of(core.tables, without=("producer",)) == before
    core.change(publish("b", b""), head=ChangeHead(PRODUCER, 3, 2), atomic=True)
    with pytest.raises(OutOfRange, match="was answered and settled"):
        core.change(*steps, head=ChangeHead(PRODUCER, 1, 2), atomic=True)


def test_followers_and_replay_come_to_the_same_tables() -> None:
    core = consumed()
    session = core.session()
    core.attach(session, "q")
    for number, steps in enumerate(
        [
            [publish("a", b"x"), bind("nobody", "a")],
            [acks(("q", "a", 2, 3)), declare("r"), bind("r", "a", start=wire.START_EARLIEST)],
            [acks(("q", "a", 2, 3)), publish("b", b"y")],
            [unbind("q", "a", discard=True), publish("a", b"z"), bind("q", "a", start=wire.START_LAST, value=2)],
            [bind("r", "a", "b", start=wire.START_EARLIEST), unbind("r", "a"), publish("c", b"", mandatory=True)],
        ],
        1,
    ):
        try:
            core.change(*steps, head=ChangeHead(PRODUCER, number, 0), atomic=True)
        except (NoSuchQueue, Conflict, Unroutable):
            assert number in (1, 3, 5)
        core.take(session)
    follower = Replica(MemoryTables())
    refused = [follower.apply(record).refused for record in core.records]
    assert [type(error) for error in refused if error] == [NoSuchQueue, Conflict, Unroutable]
    assert tables_of(follower.state.tables) == tables_of(core.tables)


def test_a_large_transaction_is_tried_and_applied_in_steps() -> None:
    core = consumed()
    keys = [f"key{number}" for number in range(300)]
    data = wire.Change(steps=[bind("q", *keys), publish("a", b"x")], atomic=True).SerializeToString()
    payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
    core.record(Kind.CHANGE, payload)
    record = core.records[-1]
    other = consumed()
    work = Engine(other.tables).in_steps(record._replace(lsn=other.state.lsn + 1))
    steps = 0
    with pytest.raises(StopIteration):
        while True:
            next(work)
            steps += 1
    assert steps > 2 * 300 // 16
    core.check()
