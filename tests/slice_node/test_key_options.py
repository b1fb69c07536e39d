"""Options of keys: history by count and by age, capacity in messages and bytes."""

from __future__ import annotations

import pytest

from shoal_contract.errors import InvalidName, OutOfRange, ResourceExhausted, from_wire
from shoal_contract.options import PLAIN, KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.key_options import has_old_history, history_floor
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, Trim, encode_change, encode_trims
from shoal_slice_node.core.background import history_walk
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.read.reading import describe_key
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.engine import Engine

from .core_driver import bind, configure, declare, drop, publish, unbind
from .key_options_driver import KeyOptionsDriver
from .memory_base import MemoryBase

LAST_3 = KeyOptions(history_messages=3)
MINUTE_MS = 60_000
LAST_MINUTE = KeyOptions(history_age_s=60)


@pytest.fixture(params=[False, True], ids=["memory", "delta"])
def core(request: pytest.FixtureRequest) -> KeyOptionsDriver:
    core = KeyOptionsDriver(Delta(MemoryBase()) if request.param else MemoryTables())
    core.change(declare("q", "r"))
    return core


def test_a_history_is_kept_though_nothing_is_bound(core: KeyOptionsDriver) -> None:
    core.change(configure("k", LAST_3))
    for number in range(10):
        told = core.say(b"%d" % number)
        assert (list(told.offsets), list(told.queues)) == ([number + 1], [0])
    core.settle()
    assert core.kept() == (8, 11) and core.state.kept.messages == 3
    core.change(bind("q", "k", start=wire.START_EARLIEST), bind("r", "k", start=wire.START_LAST, value=2))
    assert core.read("q") == [b"7", b"8", b"9"] and core.read("r") == [b"8", b"9"]
    core.say(b"10")
    assert core.read("q") == [b"10"]
    core.settle()
    assert core.kept() == (9, 12)
    core.sound()


def test_a_backlog_is_kept_beyond_the_history(core: KeyOptionsDriver) -> None:
    core.change(configure("k", LAST_3), bind("q", "k"))
    for number in range(10):
        core.say(b"%d" % number)
    core.settle()
    assert core.kept() == (1, 11)
    assert len(core.read("q")) == 10
    core.settle()
    assert core.kept() == (8, 11)
    core.change(unbind("q", "k"), drop("q"))
    core.settle()
    assert core.kept() == (8, 11), "a key with options stays"
    core.sound()


def test_a_chunk_is_kept_whole(core: KeyOptionsDriver) -> None:
    core.change(configure("k", LAST_3))
    core.say(b"1", b"2", b"3", b"4")
    core.say(b"5")
    core.settle()
    assert core.kept() == (1, 6)
    core.say(b"6")
    core.say(b"7")
    core.settle()
    assert core.kept() == (5, 8)


def test_without_options_a_key_vanishes_with_its_history(core: KeyOptionsDriver) -> None:
    core.change(configure("k", LAST_3))
    core.say(b"x")
    assert core.key() is not None
    core.change(configure("k", PLAIN))
    core.settle()
    assert core.key() is None and core.state.kept.messages == 0 and not list(core.tables.log.scan())
    core.change(configure("k", PLAIN))
    assert core.key() is None, "nothing comes of it"
    assert core.say(b"y").offsets == [0]
    core.sound()
    core.change(configure("k", LAST_3))
    assert core.say(b"z").offsets == [2], "above all that the key ever had"


def test_a_key_that_is_bound_stays_bound(core: KeyOptionsDriver) -> None:
    core.change(bind("q", "k"), configure("k", LAST_3))
    core.say(b"x")
    core.change(configure("k", PLAIN))
    assert core.read("q") == [b"x"]
    core.settle()
    assert core.kept() == (2, 2)
    core.change(configure("k", LAST_3), unbind("q", "k"))
    core.settle()
    assert core.kept() == (2, 2)
    core.sound()


def test_a_history_by_age_goes_when_it_is_old_though_nothing_happens(core: KeyOptionsDriver) -> None:
    core.change(configure("k", LAST_MINUTE))
    core.say(b"first")
    core.later(MINUTE_MS // 2)
    core.say(b"second")
    core.later(MINUTE_MS // 2)
    assert core.kept() == (1, 3), "not a moment early"
    core.later(3_000)
    assert core.kept() == (2, 3)
    core.restart()
    core.later(MINUTE_MS // 2)
    assert core.kept() == (3, 3) and core.state.kept.messages == 0
    core.sound()


def test_a_clock_that_goes_back_keeps_a_history_longer(core: KeyOptionsDriver) -> None:
    core.change(configure("k", LAST_MINUTE))
    core.say(b"x")
    core.now_ms += 6 * MINUTE_MS
    core.wall_ahead_ms -= 6 * MINUTE_MS
    core.later(MINUTE_MS)
    assert core.kept() == (1, 2)
    core.later(3_000)
    assert core.kept() == (2, 2)


def test_of_both_histories_the_longer_counts(core: KeyOptionsDriver) -> None:
    core.change(configure("k", KeyOptions(history_messages=1, history_age_s=60)))
    for body in (b"1", b"2", b"3"):
        core.say(body)
    core.settle()
    assert core.kept() == (1, 4)
    core.later(MINUTE_MS + 3_000)
    assert core.kept() == (3, 4)
    core.sound()


def test_many_old_messages_go_in_turns(core: KeyOptionsDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_walk, "HISTORIES_PER_TURN", 2)
    keys = [f"k{number}" for number in range(5)]
    for key in keys:
        core.change(configure(key, LAST_MINUTE))
        core.change_all(publish(key, b"x") for _ in range(100))
    core.later(MINUTE_MS + 10_000)
    found = [core.key(key) for key in keys]
    assert [key and key.low for key in found] == [101] * 5
    core.sound()


def test_an_old_history_of_many_chunks_is_trimmed_by_a_few_records(core: KeyOptionsDriver) -> None:
    core.change(configure("k", LAST_MINUTE))
    core.change_all(publish("k", b"x") for _ in range(12_000))
    core.now_ms += MINUTE_MS + 1
    core.say(b"young")
    before = len(core.records)
    core.later(3_000)
    assert core.kept() == (12_001, 12_002)
    assert len([record for record in core.records[before:] if record.kind == Kind.TRIM]) <= 4
    core.sound()


def test_an_old_history_is_found_to_the_chunk_whatever_is_young(core: KeyOptionsDriver) -> None:
    core.change(configure("k", LAST_MINUTE))
    started = core.wall_ms
    for _ in range(40):
        core.say(b"x", b"y")
        core.now_ms += 1_000
    key = core.key()
    assert key is not None
    for old in range(41):
        floor = history_floor(core.tables, key, started + MINUTE_MS + 1_000 * old - 999)
        assert floor == 1 + 2 * old, "not one chunk more or less"
        assert has_old_history(core.tables, key, started + MINUTE_MS + 1_000 * old - 999) == (old > 0)


def test_a_trim_that_was_decided_before_a_history_was_asked_for_leaves_it(core: KeyOptionsDriver) -> None:
    core.change(bind("q", "k"), bind("r", "k"))
    for _ in range(5):
        core.say(b"x")
    row = core.tables.key.get(core.state.full_name(b"k"))
    assert row is not None
    looked_at = core.state.lsn
    core.change(configure("k", LAST_3))
    core.record(Kind.TRIM, encode_trims([Trim(row[ID], 6, looked_at)]))
    assert core.kept() == (3, 6)


def test_a_key_at_its_capacity_refuses_and_names_the_limit(core: KeyOptionsDriver) -> None:
    core.change(configure("k", KeyOptions(capacity_messages=3)), bind("q", "k"))
    assert core.say(b"1", b"2").offsets == [1]
    (refusal,) = core.say(b"3", b"4").refusals
    with pytest.raises(ResourceExhausted, match="key k would keep 4 messages; its capacity is 3") as refused:
        raise from_wire(refusal.error)
    assert (refused.value.subject, refused.value.limit, refused.value.value) == ("k", 3, 4)
    assert core.say(b"3").offsets == [3] and core.say(b"4").refusals
    assert core.read("q") == [b"1", b"2", b"3"]
    core.settle()
    assert core.say(b"4").offsets == [4]
    core.sound()


def test_a_capacity_in_bytes_counts_bodies(core: KeyOptionsDriver) -> None:
    core.change(configure("k", KeyOptions(capacity_bytes=10)), bind("q", "k"))
    assert not core.say(b"12345").refusals and not core.say(b"12345", b"").refusals
    (refusal,) = core.say(b"1").refusals
    with pytest.raises(ResourceExhausted, match="11 bytes; its capacity is 10"):
        raise from_wire(refusal.error)
    assert core.read("q") == [b"12345", b"12345", b""]
    core.settle()
    assert not core.say(b"1234567890").refusals
    core.sound()


def test_a_capacity_alone_keeps_nothing_without_a_queue(core: KeyOptionsDriver) -> None:
    core.change(configure("k", KeyOptions(capacity_messages=1)))
    for _ in range(3):
        assert core.say(b"x").offsets == [0]
    core.change(bind("q", "k"))
    core.say(b"x")
    core.change(unbind("q", "k", discard=True))
    core.settle()
    assert core.kept() == (2, 2) and core.state.kept.messages == 0
    core.sound()


def test_a_delayed_publish_waits_until_its_key_has_room(core: KeyOptionsDriver) -> None:
    core.change(configure("k", KeyOptions(capacity_messages=1)), bind("q", "k"))
    core.say(b"1")
    core.change(publish("k", b"2", not_before_ms=1))
    core.later(10_000)
    assert core.read("q") == [b"1"]
    core.later(70_000)
    assert core.read("q") == [b"2"]
    core.sound()


def test_mandatory_wants_a_queue_whatever_the_history(core: KeyOptionsDriver) -> None:
    core.change(configure("k", LAST_3))
    assert len(core.change(publish("k", b"x", mandatory=True)).steps[0].refusals) == 1
    assert core.kept() == (1, 1)


@pytest.mark.parametrize(
    "options",
    [
        KeyOptions(history_messages=1 << 53),
        KeyOptions(capacity_messages=1 << 63),
        KeyOptions(capacity_bytes=(1 << 64) - 1),
        KeyOptions(history_messages=3, capacity_messages=3),
    ],
)
def test_options_beyond_their_bounds_are_refused_with_the_frame(core: KeyOptionsDriver, options: KeyOptions) -> None:
    with pytest.raises(OutOfRange):
        core.change(publish("k", b"x"), configure("k", options))
    assert core.key() is None


def test_direct_keys_have_no_options(core: KeyOptionsDriver) -> None:
    with pytest.raises(InvalidName, match="@q"):
        core.change(configure("@q", LAST_3))


def test_replay_gives_the_same_tables(core: KeyOptionsDriver) -> None:
    core.change(configure("k", LAST_3), configure("a", LAST_MINUTE), bind("q", "a"))
    for key in ("k", "a") * 5:
        core.change(publish(key, b"x"))
    core.read("q")
    core.later(MINUTE_MS + 3_000)
    core.change(configure("a", PLAIN))
    again = Engine(MemoryTables())
    for record in core.records:
        again.apply(record)
    assert finish(checksums(again.state.tables)) == finish(checksums(core.tables))
    assert not list(check_tables(again.state.tables))


def test_a_check_finds_a_key_that_nothing_looks_at() -> None:
    core = KeyOptionsDriver(MemoryTables())
    core.change(configure("k", LAST_MINUTE))
    core.check()
    ((key_id, row),) = core.tables.history.scan()
    core.tables.history.delete(key_id)
    core.tables.history.put(b"12345678", row)
    assert {problem.table for problem in check_tables(core.tables)} == {"key", "history"}


def test_a_transaction_configures_all_or_nothing(core: KeyOptionsDriver) -> None:
    core.change(bind("q", "k"), publish("k", b"1"))
    before = list(checksums(core.tables))
    steps = [configure("k", LAST_MINUTE), configure("new", LAST_3), publish("new", b"1"), publish("k", b"2")]
    unroutable = wire.Change(steps=[*steps, publish("none", b"", mandatory=True)], atomic=True)
    found = core.record(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), unroutable.SerializeToString()))
    assert found.refused is not None and list(checksums(core.tables)) == before
    atomic = wire.Change(steps=steps, atomic=True)
    found = core.record(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), atomic.SerializeToString()))
    assert found.refused is None
    described = describe_key(core.state, b"k")
    assert KeyOptions.of_wire(described.options) == LAST_MINUTE and described.head == 3
    assert describe_key(core.state, b"new").head == 2, "its history alone keeps the message"
    core.sound()


def test_a_key_is_described_with_its_options(core: KeyOptionsDriver) -> None:
    core.change(configure("k", options := KeyOptions(1, 2, 3, 4)), bind("q", "plain"))
    assert KeyOptions.of_wire(describe_key(core.state, b"k").options) == options
    assert not describe_key(core.state, b"plain").HasField("options")
    assert not describe_key(core.state, b"none").HasField("options")


def test_a_transaction_sees_the_room_that_its_own_steps_leave(core: KeyOptionsDriver) -> None:
    """The pass that tries it and the pass that does it must see the same."""
    core.change(bind("q", "k"), configure("k", KeyOptions(capacity_bytes=10, capacity_messages=5)))
    atomic = wire.Change(steps=[publish("k", b"12345"), publish("k", b"12345")], atomic=True)
    assert core.record(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), atomic.SerializeToString())).outcome
    assert core.kept() == (1, 3)
    atomic = wire.Change(steps=[publish("k", b""), publish("k", b"1"), publish("k", b"", not_before_ms=1)], atomic=True)
    effects = core.record(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), atomic.SerializeToString()))
    assert "its capacity is 10" in str(effects.refused) and core.kept() == (1, 3)
    assert not list(core.tables.due.scan())
    atomic = wire.Change(steps=[publish("k", b""), publish("k", b"", not_before_ms=1)], atomic=True)
    core.record(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), atomic.SerializeToString()))
    core.later(1_000)
    assert core.kept() == (1, 5)
    core.sound()
