"""Records that an operator set aside: what can be applied of them is, and what cannot leaves no trace."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from shoal_contract.errors import Conflict, NoSuchQueue, from_wire
from shoal_contract.journal_record import LEFT_OUT, SET_ASIDE, Record
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.due import apply_due
from shoal_slice_node.core.apply.publishes import publish as published
from shoal_slice_node.core.apply.records import ChangeHead, Kind, encode_change
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.verbs import applying
from shoal_slice_node.core.verbs import publish as publishing
from shoal_slice_node.core.verbs.engine import Engine

from .core_driver import CoreDriver, acks, bind, configure, declare, drop, farewell, publish, purge, unbind
from .determinism_steps import contents
from .memory_base import MemoryBase

HEAD = ChangeHead(b"p" * 16, 1, 0)


def replayed(records: Iterable[Record], flags: dict[int, int]) -> Engine:
    """What a start makes of these records. `flags`: of those that were set aside, by LSN."""
    engine = Engine(Delta(MemoryBase()))
    for record in records:
        effects = engine.apply(record._replace(flags=flags.get(record.lsn, 0)))
        assert effects.set_aside == (record.lsn in flags)
    return engine


def served(engine: Engine) -> CoreDriver:
    """A node that goes on from there."""
    core = CoreDriver(engine.state.tables)
    core.now_ms = 10_000
    core.restart()
    core.check()
    return core


def pulled(core: CoreDriver, queue: str = "q") -> list[tuple[str, int]]:
    found = core.pull(core.session(), queue, 1_000)
    return [(one.key.decode(), offset) for one in found for offset in range(one.low, one.to)]


def of_all_kinds(seed: int) -> CoreDriver:
    """A history of all verbs and kinds of records."""
    random = Random(seed)
    core = CoreDriver()
    jobs = QueueOptions(max_deliveries=1, dead_letter=b"dead", ack_timeout_ms=100)
    options = wire.Step(declares=wire.Declares(queues=[b"jobs"], options=jobs.to_wire()))
    core.change(declare("q", "r"), options, declare("short", expires_after_s=1))
    core.change(bind("q", "a", "b", "dead"), bind("r", "b"), bind("jobs", "a"), bind("short", "a"))
    core.change(configure("full", KeyOptions(capacity_messages=4, policy="reject")), bind("q", "full"))
    core.change(configure("old", KeyOptions(capacity_messages=3, policy="drop_oldest")), bind("r", "old"))
    core.change(farewell("short", key="b", body=b"gone"))
    for number in range(40):
        key, body = random.choice(("a", "b", "full", "old", "@q", "nothing")), b"%d" % number
        chosen = random.random()
        if chosen < 0.5:
            ttl_ms = random.choice((0, 0, 400))
            head = ChangeHead(b"p" * 16, number + 1, 0) if random.random() < 0.3 else None
            for _ in range(1 if head is None else random.choice((1, 2))):
                core.change(publish(key, *[body] * random.randint(1, 3), ttl_ms=ttl_ms), head=head)
        elif chosen < 0.6:
            core.change(publish(key, body, not_before_ms=core.wall_ms + 500))
        elif chosen < 0.7:
            low = random.randint(1, 6)
            core.change(acks(("q", "a", low, low + 1), ("r", "b", low, low + 2)))
        elif chosen < 0.75:
            core.change(random.choice((unbind("q", "a"), purge("r"), drop("r"))))
        elif chosen < 0.85:
            core.change(declare("q", "r"), bind("q", "a", "b"), bind("r", "b", start=wire.START_EARLIEST))
        elif chosen < 0.9:
            try:
                core.change(publish("a", body), bind(random.choice(("q", "none")), "c"), atomic=True)
            except NoSuchQueue:
                pass
        else:
            core.pull(core.session(), "jobs", 2)
        if random.random() < 0.3:
            core.now_ms += 300
            core.end_leases()
            core.maintain()
    core.settle()
    return core


@pytest.mark.parametrize("seed", range(3))
def test_a_record_that_can_be_applied_is_done_as_ever(seed: int) -> None:
    """Each record of a history is set aside alone: nothing is lost, and nothing behind it is another."""
    live = of_all_kinds(seed)
    assert {Kind(record.kind) for record in live.records} >= {Kind.CHANGE, Kind.RETRY, Kind.DUE, Kind.FAREWELL}
    whole = contents(replayed(live.records, {}).state.tables)
    for record in live.records:
        assert contents(replayed(live.records, {record.lsn: SET_ASIDE}).state.tables) == whole, record


def fails(monkeypatch: pytest.MonkeyPatch, key: bytes) -> None:
    """A defect in publishes to this key, found when something is written already."""

    def failing(state: State, name: bytes, *others: object, **named: object) -> object:
        found = published(state, name, *others, **named)  # type: ignore[arg-type]
        if name == key:
            raise RuntimeError("a defect")
        return found

    monkeypatch.setattr(publishing, "publish", failing)


def test_of_a_change_only_the_steps_that_fail_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k", "bad"), publish("bad", b"lost"), publish("k", b"1"), head=HEAD)
    aside = live.state.lsn
    live.change(declare("later"), bind("later", "k"))
    live.change(publish("k", b"2"))
    live.change(acks(("later", "k", 2, 3)))
    with monkeypatch.context() as patched:
        fails(patched, b"bad")
        engine = replayed(live.records, {aside: SET_ASIDE})
    core = served(engine)
    assert pulled(core) == [("k", 1), ("k", 2)] and pulled(core, "later") == []
    assert core.change(publish("bad", b"x")).steps[0].offsets == [1]
    outcome = core.change(publish("k", b"again"), head=HEAD)
    assert [len(step.refusals) for step in outcome.steps] == [0, 0, 1, 0], "a repeat gets this answer"
    error = from_wire(outcome.steps[2].refusals[0].error)
    assert isinstance(error, Conflict) and f"journal record {aside}" in error.message
    assert outcome.steps[3].offsets == [1]
    assert pulled(core) == [("bad", 1)], "nothing was published by the repeat"


def test_a_repeat_of_a_change_that_was_left_out_in_part_does_nothing() -> None:
    """As a downgrade leaves them: a step is not known, and the frame is in the journal twice, with another between."""
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k"))
    known = wire.Change(steps=[publish("k", b"1")]).SerializeToString()
    strange = encode_change(HEAD, known + b"\x0a\x03\xfa\x01\x00")
    lsn = live.state.lsn

    def record(number: int, payload: bytes) -> Record:
        return Record(Kind.CHANGE, 0, lsn + number, 1, 2_000, payload)

    second = encode_change(HEAD._replace(sequence=2), wire.Change(steps=[publish("k", b"2")]).SerializeToString())
    records = [*live.records, record(1, strange), record(2, second), record(3, strange), record(4, second)]
    core = served(replayed(records, {lsn + 1: SET_ASIDE, lsn + 3: SET_ASIDE}))
    assert pulled(core) == [("k", 1), ("k", 2)]


def test_a_transaction_with_a_step_that_fails_is_left_out_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k", "bad"))
    live.change(publish("k", b"1"), publish("bad", b"lost"), atomic=True)
    aside = live.state.lsn
    with monkeypatch.context() as patched:
        fails(patched, b"bad")
        engine = replayed(live.records, {aside: SET_ASIDE})
    assert pulled(served(engine)) == []


def test_a_record_of_another_kind_that_fails_is_left_out_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k"), publish("k", b"1"))
    live.change(publish("k", b"later", not_before_ms=live.wall_ms + 500))
    before = live.state.lsn
    live.now_ms += 1_000
    live.maintain()
    (due,) = [record for record in live.records if record.kind == Kind.DUE]

    def failing(state: State, payload: bytes) -> object:
        yield from apply_due(state, payload)
        raise RuntimeError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr(applying, "apply_due", failing)
        found = replayed(live.records[: due.lsn], {due.lsn: SET_ASIDE})
    expected = replayed([record for record in live.records if record.lsn <= before], {})
    expected.state.lsn = due.lsn
    expected.state.note_left_out()
    assert contents(found.state.tables) == contents(expected.state.tables)


def test_what_is_set_aside_twice_is_left_out_whole() -> None:
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k"))
    live.change(publish("k", b"lost"))
    engine = replayed(live.records, {live.state.lsn: SET_ASIDE | LEFT_OUT})
    assert engine.state.lsn == live.state.lsn
    assert pulled(served(engine)) == []


@pytest.mark.parametrize("restarts", [False, True])
def test_acks_behind_a_publish_that_was_left_out_pass_over_nothing_to_come(restarts: bool) -> None:
    """They name offsets that were given again since, or not yet."""
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k"))
    live.change(publish("k", b"lost"))
    aside = live.state.lsn
    live.change(publish("k", b"2"))
    session = live.session()
    assert live.attach(session, "q") and len(live.take(session)) == 2
    live.ack(session, "k", 1, 3)
    live.flush()
    assert Kind(live.records[-1].kind) == Kind.ACKS
    engine = replayed(live.records[:aside] if restarts else live.records, {aside: SET_ASIDE | LEFT_OUT})
    if restarts:  # The mark is in the tables, not in memory only.
        engine = Engine(engine.state.tables)
        for record in live.records[aside:]:
            engine.apply(record)
    core = served(engine)
    assert core.change(publish("k", b"3")).steps[0].offsets == [2]
    assert pulled(core) == [("k", 2)]


def test_a_trim_behind_a_publish_that_was_left_out_cuts_no_chunk() -> None:
    """What it names lies within a chunk of later messages."""
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k"))
    live.change(publish("k", b"lost"))
    aside = live.state.lsn
    live.change(publish("k", b"a1", b"a2", b"a3"))
    live.change(publish("k", b"b1", b"b2", b"b3"))
    session = live.session()
    assert live.attach(session, "q") and len(live.take(session)) == 7
    live.ack(session, "k", 1, 5)
    live.flush()
    live.settle()
    assert Kind(live.records[-1].kind) == Kind.TRIM
    core = served(replayed(live.records, {aside: SET_ASIDE | LEFT_OUT}))
    assert pulled(core) == [("k", 5), ("k", 6)]


def test_acks_behind_what_was_left_out_end_with_a_binding_that_ended() -> None:
    live = CoreDriver()
    live.change(declare("q"), bind("q", "k"))
    live.change(publish("k", b"lost"))
    aside = live.state.lsn
    live.change(publish("k", b"2"), publish("k", b"3"))
    session = live.session()
    assert live.attach(session, "q") and len(live.take(session)) == 3
    live.change(unbind("q", "k"), declare("r"), bind("r", "k"), publish("k", b"4"))
    live.ack(session, "k", 3, 4)
    live.flush()
    core = served(replayed(live.records, {aside: SET_ASIDE | LEFT_OUT}))
    assert pulled(core) == [("k", 1), ("k", 2)] and pulled(core, "r") == [("k", 3)]
