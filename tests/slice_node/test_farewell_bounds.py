"""Farewells in numbers, for keys of other slices, with bad input, in records and in damaged tables."""

from __future__ import annotations

import pytest

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import (
    InvalidName,
    Malformed,
    NoSuchQueue,
    NotOwner,
    OutOfRange,
    ResourceExhausted,
    TooLarge,
)
from shoal_contract.journal_record import Record
from shoal_contract.limits import FAREWELL_AFTER_S_MAX, FAREWELL_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply import farewells as apply_farewells
from shoal_slice_node.core.apply.records import (
    Expired,
    Farewell,
    Kind,
    decode_farewells,
    encode_expire,
    encode_farewells,
)
from shoal_slice_node.core.dispatch import left_clock
from shoal_slice_node.core.dispatch.farewells import FarewellLetter
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.limits import LEFT_PER_RECORD_MAX, LETTER_AGAIN_MS
from shoal_slice_node.core.rows.farewell_row import letter_key, queue_key
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.turns import finish
from shoal_slice_node.core.verbs.engine import Engine

from .core_driver import declare, drop, farewell
from .farewell_driver import AFTER_MS, AFTER_S, GONE, FarewellDriver


@pytest.fixture(params=[False, True], ids=["memory", "delta"])
def core(request: pytest.FixtureRequest) -> FarewellDriver:
    return FarewellDriver(request.param)


def test_many_at_once_take_several_records_and_each_is_said_once(
    core: FarewellDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_clock, "FAREWELLS_BYTES_PER_RECORD", 16 << 10)
    names = [f"q{number}" for number in range(3000)]
    core.declare(names)
    core.change_all(farewell(name, key="room", body=name.encode(), after_s=AFTER_S) for name in names)
    gateway = core.consumer(*names)
    core.wait(2000)
    core.dispatcher.close(gateway)
    core.pump()
    core.wait(AFTER_MS - 1000)
    assert core.said() == [] and core.kept[0] == 3000
    before = len(core.records)
    found = core.wait(60_000)
    assert sorted(found) == sorted(name.encode() for name in names)
    records = [record for record in core.records[before:] if record.kind == Kind.FAREWELL]
    sizes = [len(decode_farewells(record.payload)[1]) for record in records]
    assert max(sizes) <= LEFT_PER_RECORD_MAX and len(records) > 3000 * 20 // (16 << 10)
    core.check()


def test_more_queues_than_times_are_kept_say_it_later_and_all(
    core: FarewellDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_clock, "LEFT_TIMES_MAX", 20)
    monkeypatch.setattr(left_clock, "LEFT_WALKED_PER_TURN", 7)
    monkeypatch.setattr(left_clock, "FAREWELLS_BYTES_PER_RECORD", 100)
    for number in range(100):
        core.change(declare(f"q{number}"), farewell(f"q{number}", key="room", body=b"%d" % number, after_s=AFTER_S))
        core.maintain()
    assert len(core.dispatcher.farewells) <= 20
    assert core.wait(AFTER_MS - 1000) == []
    assert sorted(core.wait(120_000)) == sorted(b"%d" % number for number in range(100))
    core.check()


def test_large_farewells_bound_the_record_that_drops_their_queues(
    core: FarewellDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_clock, "FAREWELLS_BYTES_PER_RECORD", 1000)
    names = [f"t{number}" for number in range(20)]
    core.change(declare(*names, expires_after_s=30), farewell(*names, key="room", body=bytes(400), after_s=1000))
    before = len(core.records)
    assert len(core.wait(60_000)) == 20
    assert len([record for record in core.records[before:] if record.kind == Kind.EXPIRE]) == 7
    core.check()


def test_a_record_that_was_not_written_is_made_again(core: FarewellDriver) -> None:
    core.change(GONE)
    core.maintain()
    core.now_ms += AFTER_MS
    core.node.tick(core.now_ms, core.wall_ms)
    core.node.commit.gather(core.wall_ms)
    core.node.commit.refused(ResourceExhausted("the disk is full"))
    assert core.kept[0] == 1
    assert core.wait(1000) == [b"anna went offline"]


def test_one_that_was_set_while_the_record_was_written_waits_its_time(core: FarewellDriver) -> None:
    core.change(GONE)
    core.maintain()
    core.now_ms += AFTER_MS
    decided = core.state.lsn
    core.change(farewell("anna", key="room", body=b"new", after_s=AFTER_S))
    core.record(Kind.FAREWELL, encode_farewells([Farewell(queue_key(core.id_of("anna")), b"anna", b"room")], decided))
    core.maintain()
    assert core.wait(AFTER_MS - 1000) == []
    assert core.wait(1000) == [b"new"]


# Letters to other slices.


def letters(core: FarewellDriver) -> list[FarewellLetter]:
    """What the courier takes."""
    found = core.dispatcher.farewells.letters
    return list(iter(lambda: found.take(core.now_ms), None))


def to_another_slice(core: FarewellDriver, *queues: str) -> None:
    """The queues have said their farewells, at a key of another slice."""
    homes = {core.partition(f"@{queue}") for queue in (*queues, "reader")} | {core.partition("room")}
    away = next(key for key in ("away", "a2", "a3", "a4", "a5") if core.partition(key) not in homes)
    core.own(*homes)
    for queue in queues:
        core.change(farewell(queue, key=away, body=f"bye of {queue}".encode()))
        core.maintain()


def test_for_a_key_of_another_slice_it_becomes_a_letter(core: FarewellDriver) -> None:
    to_another_slice(core, "anna")
    assert core.kept[0] == 1 and core.tables.farewell.get(queue_key(core.id_of("anna"))) is None
    core.check()
    box = core.dispatcher.farewells.letters
    (letter,) = letters(core)
    assert parse_chunk(letter.chunk).bodies == [b"bye of anna"] and len(letter.producer) == 16
    box.not_sent(letter, core.now_ms)
    assert letters(core) == [], "its key pauses"
    core.now_ms += LETTER_AGAIN_MS
    assert letters(core) == [letter] and letters(core) == []
    core.consumer("anna")  # It was said: nothing takes it back.
    core.change(farewell("anna"))
    assert core.kept[0] == 1
    box.sent(letter)
    core.maintain()
    assert core.kept == (0, 0) and not box.ready(core.now_ms)
    core.check()


def test_a_letter_outlives_its_queue_and_the_leader_and_has_one_producer(core: FarewellDriver) -> None:
    to_another_slice(core, "anna")
    (letter,) = letters(core)
    core.change(drop("anna"))
    core.restart()
    (again,) = letters(core)
    assert again == letter
    core.dispatcher.farewells.letters.sent(again)
    core.restart()  # The record that takes it away is lost: it is sent once more, by the same producer.
    assert letters(core) == [letter]
    core.dispatcher.farewells.letters.sent(letter)
    core.node.tick(core.now_ms, core.wall_ms)
    core.node.commit.gather(core.wall_ms)
    core.node.commit.refused(ResourceExhausted("the disk is full"))
    core.maintain()
    assert core.kept == (0, 0)
    core.check()


def test_each_letter_has_a_producer_of_its_own(core: FarewellDriver) -> None:
    core.change(declare("b", "c"))
    to_another_slice(core, "anna")
    to_another_slice(core, "anna")
    found = letters(core)
    assert len({letter.producer for letter in found}) == len({letter.row_key for letter in found}) == 2
    assert [letter.row_key for letter in found] == sorted(letter.row_key for letter in found)


def test_an_expired_queue_sends_a_letter_too(core: FarewellDriver) -> None:
    core.change(declare("t", expires_after_s=30))
    homes = {core.partition("@t"), core.partition("@reader"), core.partition("room")}
    away = next(key for key in ("away", "a2", "a3", "a4", "a5") if core.partition(key) not in homes)
    core.own(*homes)
    core.change(farewell("t", key=away, body=b"expired", after_s=1000))
    core.maintain()
    core.wait(31_000)
    (letter,) = letters(core)
    assert letter.key == away.encode() and core.tables.queue_by_name.get(b"t") is None
    core.check()


# Bad input.


def test_a_queue_that_is_not_there_or_not_at_home_has_none(core: FarewellDriver) -> None:
    assert isinstance(core.refused(farewell("nobody", key="room", body=b"x")), NoSuchQueue)
    assert isinstance(core.refused(farewell("nobody")), NoSuchQueue)
    core.own()
    assert isinstance(core.refused(GONE), NotOwner) and isinstance(core.refused(farewell("anna")), NotOwner)
    assert core.kept == (0, 0)


def test_limits_at_their_edge_and_one_past_it(core: FarewellDriver) -> None:
    room = FAREWELL_BYTES_MAX - len(encode_chunk([bytes(FAREWELL_BYTES_MAX - 100)])) + FAREWELL_BYTES_MAX - 100
    core.change(farewell("anna", key="room", body=bytes(room), after_s=FAREWELL_AFTER_S_MAX))
    with pytest.raises(TooLarge, match="farewell bytes: 65537; the limit is 65536"):
        core.change(farewell("anna", key="room", body=bytes(room + 1)))
    with pytest.raises(OutOfRange, match="after_s is 86401; it needs 0 to 86400"):
        core.change(farewell("anna", key="room", body=b"", after_s=FAREWELL_AFTER_S_MAX + 1))
    core.check()


@pytest.mark.parametrize(
    ("step", "error", "match"),
    [
        (wire.Farewells(queues=[b"anna"], keys=[b"room"]), Malformed, "0 chunks; it needs 1"),
        (wire.Farewells(queues=[b"anna"], chunks=[encode_chunk([b"x"])]), Malformed, "0 keys; it needs 1"),
        (
            wire.Farewells(queues=[b"anna"], keys=[b"room"], chunks=[encode_chunk([b"x", b"y"])]),
            Malformed,
            "2 messages",
        ),
        (wire.Farewells(queues=[b"anna"], keys=[b"room"], chunks=[b"\xff"]), Malformed, "cannot be read"),
        (wire.Farewells(queues=[b"anna"], keys=[b"room"], chunks=[b""]), Malformed, "no messages"),
        (wire.Farewells(queues=[b"anna"], keys=[b"@"], chunks=[encode_chunk([b"x"])]), InvalidName, "key @"),
        (wire.Farewells(queues=[b"anna"], keys=[b""], chunks=[encode_chunk([b"x"])]), InvalidName, "empty"),
        (wire.Farewells(queues=[b""]), InvalidName, "empty"),
        (wire.Farewells(queues=[b"q" * 256]), InvalidName, "256 bytes"),
        (wire.Farewells(queues=[b"anna"], after_s=5), Malformed, "after_s 5"),
        (wire.Farewells(queues=[b"anna"] * 1001), TooLarge, "1001 operations"),
    ],
)
def test_bad_steps_are_refused_by_name(
    core: FarewellDriver, step: wire.Farewells, error: type[Exception], match: str
) -> None:
    core.change(GONE)
    with pytest.raises(error, match=match):
        core.change(wire.Step(farewells=step))
    assert core.kept[0] == 1


def test_a_transaction_may_not_have_one(core: FarewellDriver) -> None:
    with pytest.raises(Malformed, match="farewells, which an atomic change may not have"):
        core.change(GONE, atomic=True)


def test_the_longest_names_fit(core: FarewellDriver) -> None:
    """A direct key may have 256 bytes."""
    name = "q" * 255
    core.change(declare(name), farewell(name, key=f"@{name}", body=b"x"))
    core.maintain()
    assert core.records[-1].kind == Kind.FAREWELL and core.kept == (0, 0)
    core.check()


def test_more_than_a_slice_may_keep_is_refused(core: FarewellDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_farewells, "FAREWELLS_OF_SLICE_BYTES_MAX", 40)
    core.change(declare("ben"))
    core.change(farewell("anna", key="room", body=bytes(30), after_s=9))
    refused = core.refused(farewell("ben", key="room", body=b"x", after_s=9))
    assert isinstance(refused, ResourceExhausted) and "farewells of this slice would take 43 bytes" in str(refused)
    core.change(farewell("anna", key="room", body=bytes(10), after_s=9))  # In its own place.
    assert not core.change(farewell("ben", key="room", body=b"x", after_s=9)).steps[0].refusals
    core.check()


# Records.


def test_replay_gives_the_same_tables(core: FarewellDriver) -> None:
    core.change(declare("t", expires_after_s=30), farewell("t", key="room", body=b"t", after_s=1000), GONE)
    core.wait(AFTER_MS + 5000)
    to_another_slice(core, "anna")
    to_another_slice(core, "anna")
    box = core.dispatcher.farewells.letters
    letter = box.take(core.now_ms)
    assert letter is not None
    box.sent(letter)
    core.maintain()
    again = Engine(MemoryTables())
    for record in core.records:
        again.apply(record)
    assert finish(checksums(again.state.tables)) == finish(checksums(core.tables)) and core.kept[0] == 1


def test_apply_guards_what_a_record_names(core: FarewellDriver) -> None:
    """What is gone stays gone."""
    core.change(GONE)
    queue_id = core.id_of("anna")
    core.change(farewell("anna"))
    names = [
        Farewell(queue_key(queue_id), b"anna", b"room"),
        Farewell(queue_key(bytes(8)), b"", b""),
        Farewell(letter_key(1, 2), b"", b"away"),
        Farewell(b"", b"", b""),
    ]
    core.record(Kind.FAREWELL, encode_farewells(names, core.state.lsn))
    core.record(Kind.EXPIRE, encode_expire([Expired(queue_id, b"anna")], core.state.lsn))
    assert core.said() == [] and core.tables.queue_by_name.get(b"anna") == queue_id
    core.check()


@pytest.mark.parametrize(
    "payload", [b"", b"1234567", encode_farewells([Farewell(b"q12345678", b"anna", b"room")], 1)[:-1]]
)
def test_a_record_that_is_cut_off_stops_the_node(core: FarewellDriver, payload: bytes) -> None:
    with pytest.raises(Exception, match="cannot be applied"):
        core.engine.apply(Record(Kind.FAREWELL, 0, core.state.lsn + 1, 1, 1, payload))


def test_a_check_finds_damage() -> None:
    core = FarewellDriver(delta=False)
    core.change(GONE)
    ((row_key, row),) = core.tables.farewell.scan()
    core.tables.farewell.delete(row_key)
    assert {problem.table for problem in check_tables(core.tables)} == {"meta"}
    core.tables.farewell.put(queue_key(bytes(8)), row)
    assert [str(problem) for problem in check_tables(core.tables) if "no queue" in str(problem)]
    core.tables.farewell.put(row_key, row[:-1])
    assert [str(problem) for problem in check_tables(core.tables) if "cannot be read" in str(problem)]
