"""A bound for deliveries: counts survive a restart, and what reaches the bound goes to the dead-letter key, once.

Long because all that befalls a dead letter is here.
"""

from __future__ import annotations

import pytest

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import InvalidName, Malformed, OutOfRange, ResourceExhausted
from shoal_contract.journal_record import Record
from shoal_contract.limits import BODY_BYTES_MAX, CHUNK_HEADERS_MAX, DEAD_LETTER_BYTES_MAX
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import (
    NO_PRODUCER,
    ChangeHead,
    Fate,
    Kind,
    Retry,
    encode_change,
    encode_retries,
)
from shoal_slice_node.core.dispatch import deciding
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.rows.key_row import decode_key
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.engine import Engine

from .core_driver import bind, configure, declare, drop, publish, purge, raises, unbind
from .dead_letters_driver import DeadLettersDriver, declare_with, with_graveyard
from .nacks_driver import attached


@pytest.fixture
def core() -> DeadLettersDriver:
    return with_graveyard()


def test_a_message_that_comes_back_too_often_goes_to_the_dead_letter_key_once(core: DeadLettersDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"good"), publish("k", b"bad"))
    assert core.times(session) == [(1, 0), (2, 0)]
    core.ack(session, "k", 1, 2)
    core.again(session, 2, 3)
    assert core.times(session) == [(2, 1)] and core.copies() == []
    core.again(session, 2, 3)
    assert core.times(session) == []
    ours = {
        "shoal-reason": b"nack",
        "shoal-key": b"k",
        "shoal-offset": b"2",
        "shoal-queue": b"q",
        "shoal-deliveries": b"2",
        "shoal-hops": b"1",
        "shoal-origin-key": b"k",
        "shoal-origin-offset": b"2",
    }
    assert core.copies() == [(b"bad", ours)]
    counters = core.state.counters
    assert (counters.nacks, counters.dead_nacked, counters.acks) == (2, 1, 2), "the good one and the copy are acked"
    core.settle()
    assert core.copies() == [] and core.counts() == [] and not list(core.tables.detail.scan())
    assert not list(core.tables.log.scan()), "all is done: nothing is kept"
    core.check()


def test_a_dead_letter_key_at_its_capacity_takes_copies_all_the_same(core: DeadLettersDriver) -> None:
    """A copy cannot be refused: its message is done for its queue in the same record."""
    core.change(configure("dead", KeyOptions(capacity_messages=1)), publish("dead", b"full"))
    assert core.change(publish("dead", b"more")).steps[0].refusals
    session = attached(core)
    core.change(publish("k", b"bad"))
    for _ in range(2):
        core.times(session)
        core.again(session, 1, 2)
    key = decode_key(core.tables.key.get(core.state.full_name(b"dead")) or b"")
    assert key.head == 3, "the copy stands behind what filled the key"
    core.check()


def test_the_copy_keeps_the_headers_of_the_message(core: DeadLettersDriver) -> None:
    session = attached(core)
    chunk = encode_chunk([b"x", b"y"], [{"a": b"1"}, {"shoal-key": b"old"}])
    core.change(wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[chunk])))
    for _ in range(2):
        core.take(session)
        core.again(session, 0, 9)
    (one, headers), (other, others) = core.copies()
    assert (one, headers["a"], headers["shoal-offset"]) == (b"x", b"1", b"1")
    assert (other, others["shoal-key"], others["shoal-offset"]) == (b"y", b"k", b"2")


@pytest.mark.parametrize(("body", "headers"), [(1, CHUNK_HEADERS_MAX), (BODY_BYTES_MAX, 1)])
def test_headers_that_leave_no_room_are_left_out(core: DeadLettersDriver, body: int, headers: int) -> None:
    session = attached(core, "q")
    fields = {f"h{number}": bytes(1 if headers > 1 else BODY_BYTES_MAX - 100) for number in range(headers)}
    chunk = encode_chunk([bytes(body)], [fields])
    core.change(wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[chunk])))
    for _ in range(2):
        core.take(session)
        core.again(session, 0, 9)
    found = core.copies()
    assert len(found[0][0]) == body and found[0][1]["shoal-key"] == b"k" and "h0" not in found[0][1]


def test_counts_survive_restarts(core: DeadLettersDriver) -> None:
    core.bounded("patient", most=5)
    core.change(bind("patient", "k"))
    core.change(publish("k", b"a", b"b", b"c", b"d"))
    for times in range(4):
        session = attached(core, "patient")
        assert core.times(session) == [(1, 0), (2, times), (3, times), (4, 0)]
        core.again(session, 2, 4)
        core.restart()
    assert core.counts() == [(2, 4, 4)]
    core.check()
    session = attached(core, "patient")
    core.take(session)
    core.ack(session, "k", 3, 4)
    core.flush()
    assert core.counts() == [(2, 3, 4)]
    core.again(session, 2, 3)
    assert [headers["shoal-deliveries"] for _, headers in core.copies()] == [b"5"]


def test_the_end_of_a_session_counts_and_its_reason_is_told(core: DeadLettersDriver) -> None:
    core.change(publish("k", b"a"))
    for _ in range(2):
        session = attached(core)
        assert len(core.take(session)) == 1
        core.dispatcher.close(session)
        core.maintain()
    assert core.times(attached(core)) == []
    assert [headers["shoal-reason"] for _, headers in core.copies()] == [b"left"]
    counters = core.state.counters
    assert (counters.nacks, counters.ack_timeouts, counters.dead_left, counters.dead_nacked) == (0, 0, 1, 0)


def test_an_ack_timeout_and_a_lease_count_too(core: DeadLettersDriver) -> None:
    core.bounded("timed", ack_timeout_ms=1000)
    core.change(bind("timed", "k"), publish("k", b"a"))
    session = attached(core, "timed")
    assert core.times(session) == [(1, 0)]
    core.wait(1500)
    assert core.times(session) == [(1, 1)]
    core.dispatcher.detach(session, 1)
    core.change(publish("k", b"b"))
    puller = core.session()
    assert [one.low for one in core.pull(puller, "q", 1, lease_ms=500)] == [1]
    core.wait(1500)
    assert [one.redelivered for one in core.pull(puller, "q", 1, lease_ms=500)] == [1]
    core.wait(1500)
    reasons = [(headers["shoal-queue"], headers["shoal-reason"]) for _, headers in core.copies()]
    assert reasons == [(b"timed", b"left"), (b"q", b"timeout")]
    counters = core.state.counters
    assert (counters.ack_timeouts, counters.dead_timed_out, counters.dead_left, counters.dead_nacked) == (3, 1, 1, 0)


def test_it_is_not_given_before_its_count_is_durable(core: DeadLettersDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a"))
    core.take(session)
    core.nack(session, 1, 2)
    core.pump()
    assert core.times(session) == []
    core.node.tick(core.now_ms, core.wall_ms)
    core.node.commit.gather(core.wall_ms)
    core.node.commit.refused(ResourceExhausted("the disk is full", subject="disk"))
    assert core.times(session) == [] and core.counts() == []
    core.maintain()
    assert core.counts() == [(1, 2, 1)] and core.times(session) == [(1, 1)]


def test_a_full_disk_delays_a_dead_letter_and_makes_no_second_one(core: DeadLettersDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a"))
    core.take(session)
    core.again(session, 1, 2)
    core.take(session)
    core.nack(session, 1, 2)
    for _ in range(3):
        core.node.tick(core.now_ms, core.wall_ms)
        core.node.commit.gather(core.wall_ms)
        core.node.commit.refused(ResourceExhausted("the disk is full", subject="disk"))
    core.settle()
    assert len(core.copies()) == 1


def test_a_delay_is_kept_and_a_dead_letter_waits_for_none(core: DeadLettersDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a"))
    core.take(session)
    core.again(session, 1, 2, delay_ms=2000)
    core.wait(1900)
    assert core.times(session) == [] and core.counts() == [(1, 2, 1)]
    core.wait(500)
    assert core.times(session) == [(1, 1)]
    core.again(session, 1, 2, delay_ms=3_600_000)
    assert len(core.copies()) == 1


def test_without_a_dead_letter_key_it_is_dropped(core: DeadLettersDriver) -> None:
    core.bounded("plain", most=1, dead_letter="")
    core.change(bind("plain", "k"), publish("k", b"a"))
    session = attached(core, "plain")
    assert core.times(session) == [(1, 0)]
    core.again(session, 1, 2)
    assert core.times(session) == [] and core.copies() == []
    core.dispatcher.close(session)
    core.settle()
    assert core.counts() == []
    core.check()


def test_a_queue_bound_to_its_own_dead_letter_key_does_not_send_round_for_ever(core: DeadLettersDriver) -> None:
    core.bounded("loop", most=1, dead_letter="round")
    core.change(bind("loop", "k", "round"), publish("k", b"a"))
    session = attached(core, "loop")
    for _ in range(5):
        for one in core.deliveries(session):
            core.again(session, one.low, one.to, key=one.key.decode())
    core.settle()
    assert core.times(session) == [] and core.tables.key.get(core.state.full_name(b"round")) is not None
    core.check()


def test_a_header_that_a_publisher_made_up_loses_no_message(core: DeadLettersDriver) -> None:
    core.bounded("jobs", most=1, dead_letter="failed")
    core.change(declare("dead"), bind("dead", "failed"), bind("jobs", "k"))
    forged = encode_chunk([b"a"], [{"shoal-hops": b"8"}])
    core.change(wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[forged])))
    session, dead = attached(core, "jobs"), attached(core, "dead")
    (one,) = core.deliveries(session)
    core.again(session, one.low, one.to, key="k")
    (letter,) = core.deliveries(dead)
    assert parse_chunk(letter.chunk).headers[0].fields["shoal-hops"] == b"1"
    core.check()


def test_queues_that_send_each_other_their_dead_letters_end_it(core: DeadLettersDriver) -> None:
    core.bounded("ping", most=1, dead_letter="@pong")
    core.bounded("pong", most=1, dead_letter="@ping")
    sessions = {queue: attached(core, queue) for queue in ("ping", "pong")}
    core.change(publish("@ping", b"a"))
    rounds = 0
    for _ in range(30):
        for session in sessions.values():
            for one in core.deliveries(session):
                rounds += 1
                core.again(session, one.low, one.to, key=one.key.decode())
    assert rounds == 2, "it does not come back to where it was"
    core.settle()
    core.check()


def die(core: DeadLettersDriver, session: Session, queues: list[str]) -> None:
    """All that the session is given, under the places of these queues as handles, comes back until nothing does."""
    for _ in range(30):
        for one in core.deliveries(session):
            for handle in one.handles:
                core.nack(session, one.low, one.to, key=one.key.decode(), handle=handle)
        core.maintain()
    assert len(queues) == len(session.attachments) and not session.owed


def test_dead_letters_that_would_go_round_do_not_multiply(core: DeadLettersDriver) -> None:
    here, there = [f"here-{number}" for number in range(5)], [f"there-{number}" for number in range(5)]
    for queues, key, dead_letter in ((here, "k1", "k2"), (there, "k2", "k1")):
        for queue in queues:
            core.bounded(queue, most=1, dead_letter=dead_letter)
            core.change(bind(queue, key))
    session = core.session()
    for handle, queue in enumerate([*here, *there], 1):
        assert core.attach(session, queue, handle)
    core.change(publish("k1", b"a"))
    die(core, session, [*here, *there])
    heads = [decode_key(core.tables.key.get(core.state.full_name(name)) or b"").head for name in (b"k1", b"k2")]
    assert heads == [2, 6], "one for each queue that could not do it"
    core.settle()
    core.check()


def test_a_message_comes_to_two_dead_letter_keys_and_says_where_it_was_first(core: DeadLettersDriver) -> None:
    queues = ["first", "second", "third"]
    for number, queue in enumerate(queues):
        core.bounded(queue, most=1, dead_letter=f"dead-{number + 1}")
        core.change(bind(queue, f"dead-{number}"))
    core.change(declare("last"), bind("last", "dead-2"), bind("graveyard", "dead-3"))
    session = core.session()
    for handle, queue in enumerate(queues, 1):
        assert core.attach(session, queue, handle)
    core.change(publish("dead-0", b"a", b"b"))
    die(core, session, queues)
    assert core.copies() == []
    (one, _), (other, headers) = core.copies("last")
    assert (one, other) == (b"a", b"b")
    where = [headers[f"shoal-{name}"] for name in ("key", "offset", "hops", "origin-key", "origin-offset")]
    assert where == [b"dead-1", b"2", b"2", b"dead-0", b"2"]
    core.check()


def test_headers_that_a_publisher_made_up_lose_no_message(core: DeadLettersDriver) -> None:
    session = attached(core)
    forged = {"shoal-hops": b"8", "shoal-origin-key": b"dead"}
    core.change(wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[encode_chunk([b"a"], [forged])])))
    for _ in range(2):
        core.take(session)
        core.again(session, 0, 9)
    assert [(headers["shoal-hops"], headers["shoal-origin-key"]) for _, headers in core.copies()] == [(b"1", b"k")]


def test_a_queues_own_direct_key_is_no_dead_letter_key(core: DeadLettersDriver) -> None:
    with pytest.raises(Malformed, match="queue own: its dead_letter is its own direct key @own"):
        core.bounded("own", most=1, dead_letter="@own")
    assert core.tables.queue_by_name.get(b"own") is None
    core.bounded("other", most=1, dead_letter="@own")
    core.check()


@pytest.mark.parametrize("ends", ["purge", "discard", "drop", "unbind and ack"])
def test_counts_go_with_their_messages(core: DeadLettersDriver, ends: str) -> None:
    core.bounded("patient", most=9)
    core.change(bind("patient", "k"), publish("k", b"a", b"b", b"c"))
    session = attached(core, "patient")
    core.take(session)
    core.again(session, 2, 3)
    assert core.counts() == [(2, 3, 1)]
    changes = {"purge": purge("patient"), "discard": unbind("patient", "k", discard=True), "drop": drop("patient")}
    core.change(changes.get(ends, unbind("patient", "k")))
    if ends == "unbind and ack":
        core.check()
        assert core.counts() == [(2, 3, 1)]
        core.take(session)
        core.ack(session, "k", 1, 9)
    core.settle()
    assert core.counts() == [] and not list(core.tables.detail.scan())
    core.check()


def test_counts_stay_when_the_key_is_bound_again(core: DeadLettersDriver) -> None:
    core.bounded("patient", most=9)
    core.change(bind("patient", "k"), publish("k", b"a", b"b"))
    session = attached(core, "patient")
    core.take(session)
    core.again(session, 1, 2)
    core.change(unbind("patient", "k"), publish("k", b"away"))
    core.change(bind("patient", "k"))
    core.restart()
    assert core.times(attached(core, "patient")) == [(1, 1), (2, 0)]
    core.check()


def test_many_dead_letters_take_several_records(core: DeadLettersDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "DEAD_PER_RECORD_MAX", 7)
    monkeypatch.setattr(deciding, "DEAD_BYTES_PER_RECORD_MAX", 100)
    session = attached(core)
    core.change(publish("k", *[b"%d" % number for number in range(20)]))
    core.change(publish("k", bytes(1000)), publish("k", bytes(1000)))
    for _ in range(2):
        assert len(core.take(session)) == 22
        core.again(session, 0, 99)
    core.settle()
    copies = core.copies()
    assert sorted(int(headers["shoal-offset"]) for _, headers in copies) == list(range(1, 23))
    made = [record for record in core.records if record.kind == Kind.RETRY]
    assert len(made) >= 5
    core.check()


def test_records_are_replayed_to_the_same_tables(core: DeadLettersDriver) -> None:
    session = attached(core)
    core.change(publish("k", *[b"x"] * 10), publish("k", b"y"))
    for low, to in ((1, 3), (5, 6), (2, 9), (1, 12)):
        core.take(session)
        core.again(session, low, to)
    core.settle()
    other = Engine(MemoryTables())
    for record in core.records:
        other.apply(record)
    assert finish(checksums(other.state.tables)) == finish(checksums(core.tables))
    assert len(core.copies()) >= 5


def test_a_retry_of_what_is_done_gone_or_bound_again_changes_nothing(core: DeadLettersDriver) -> None:
    core.change(publish("k", b"a", b"b", b"c"))
    queue_id = core.tables.queue_by_name.get(b"q") or b""
    key_id = next(iter(core.tables.binding.scan()))[0]
    names = {name: core.tables.key.get(core.state.full_name(name)) for name in (b"k", b"dead")}
    key_id = (names[b"k"] or b"")[1:9]
    session = attached(core)
    core.take(session)
    core.ack(session, "k", 1, 3)
    core.flush()
    before = core.state.lsn
    for retry in (
        Retry(queue_id, key_id, 1, 2, 1, Fate.DEAD, 1),
        Retry(queue_id, key_id, 2, 9, 1, Fate.DEAD, 1),
        Retry(queue_id, key_id, 9, 3, 1, Fate.DEAD, 1),
        Retry(bytes(8), key_id, 3, 4, 1, Fate.DEAD, 1),
        Retry(queue_id, bytes(8), 3, 4, 1, Fate.DEAD, 1),
        Retry(queue_id, (names[b"dead"] or b"")[1:9], 1, 2, 1, Fate.DEAD, 1),
    ):
        core.record(Kind.RETRY, encode_retries([retry], core.state.lsn))
    core.change(unbind("q", "k", discard=True))
    core.change(bind("q", "k", start=wire.START_OFFSET, value=4))
    core.change(unbind("q", "k", discard=True), bind("graveyard", "k", start=wire.START_OFFSET, value=4))
    core.record(Kind.RETRY, encode_retries([Retry(queue_id, key_id, 3, 4, 1, Fate.AGAIN, 1)], before))
    assert core.copies() == [] and core.counts() == []
    core.check()


def test_what_a_bind_has_promised_again_since_is_decided_anew(core: DeadLettersDriver) -> None:
    session = attached(core)
    core.change(publish("k", b"a"))
    core.take(session)
    core.again(session, 1, 2)
    core.take(session)
    core.nack(session, 1, 2)
    core.change(unbind("q", "k"))
    core.change(bind("q", "k", start=wire.START_EARLIEST))
    core.settle()
    assert len(core.copies()) == 1 and core.times(session) == []
    core.check()


@pytest.mark.parametrize(
    "payload", [b"", b"1234567", encode_retries([Retry(bytes(8), bytes(8), 1, 2, 1, 0, 1)], 1)[:-1]]
)
def test_a_record_that_is_cut_off_stops_the_node(core: DeadLettersDriver, payload: bytes) -> None:
    with pytest.raises(Exception, match="cannot be applied"):
        core.engine.apply(Record(Kind.RETRY, 0, core.state.lsn + 1, 1, 1, payload))


def test_bad_options_are_refused_by_name(core: DeadLettersDriver) -> None:
    with pytest.raises(OutOfRange, match="max_deliveries is 0: no message would ever go there"):
        core.change(declare_with("x", QueueOptions(dead_letter=b"dead")))
    with pytest.raises(OutOfRange, match="ack_timeout_ms is 99; it needs at least 100, or 0 for none"):
        core.change(declare_with("x", QueueOptions(ack_timeout_ms=99)))
    with pytest.raises(OutOfRange, match="max_deliveries is 1000001"):
        core.change(declare_with("x", QueueOptions(max_deliveries=1_000_001)))
    with pytest.raises(InvalidName, match="dead_letter is 201 bytes; the limit is 200"):
        core.change(declare_with("x", QueueOptions(max_deliveries=1, dead_letter=b"d" * (DEAD_LETTER_BYTES_MAX + 1))))
    with pytest.raises(InvalidName, match="direct key of no queue"):
        core.change(declare_with("x", QueueOptions(max_deliveries=1, dead_letter=b"@")))
    core.change(declare_with("x", QueueOptions(max_deliveries=1_000_000, dead_letter=b"d" * DEAD_LETTER_BYTES_MAX)))
    outcome = core.change(declare_with("x", QueueOptions(max_deliveries=1_000_000, dead_letter=b"other")))
    assert "dead_letter=" in outcome.steps[0].refusals[0].error.message


@pytest.mark.parametrize("in_between", [False, True])
def test_what_the_key_drops_between_a_decision_and_its_record_is_a_gap(in_between: bool) -> None:
    core = DeadLettersDriver()
    last_2 = KeyOptions(capacity_messages=2, policy="drop_oldest")
    dying = QueueOptions(max_deliveries=1, dead_letter=b"dead")
    core.change(declare_with("q", dying), bind("q", "k"), configure("k", last_2))
    core.change(declare("graves"), bind("graves", "dead"), publish("k", b"one"))
    session = attached(core)
    assert core.times(session) == [(1, 0)]
    core.nack(session, 1, 2)
    data = wire.Change(steps=[publish("k", b"two", b"three")]).SerializeToString()
    item = Item(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), data), lambda _: None, raises)
    if in_between:
        core.node.commit.submit(item)
    core.now_ms += 100
    core.node.tick(core.now_ms, core.wall_ms)
    if not in_between:
        core.commit()
        core.node.commit.submit(item)
    core.commit()
    core.settle()
    assert core.times(session) == [(2, 0), (3, 0)]
    told = [(gap.first, gap.to) for gap in core.gaps]
    graves = attached(core, "graves")
    letters = [body for _, _, body in core.take(graves)]
    assert (letters, told) == (([], [(1, 2)]) if in_between else ([b"one"], []))
    core.check()
