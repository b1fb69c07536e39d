"""Apply never raises on what passed the check, refuses the same everywhere, and stops by name at what it cannot do."""

from __future__ import annotations

from random import Random

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.errors import Corrupt, InvalidName, Malformed, ShoalError
from shoal_contract.journal_record import SET_ASIDE, Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.verbs.changes import check_change, parse_change
from shoal_slice_node.core.verbs.engine import Engine

from .core_driver import CoreDriver, bind, declare, publish
from .determinism_steps import contents
from .memory_base import MemoryBase

TOO_LONG = b"n" * 256
CHUNK = encode_chunk([b"x"])
NOT_A_CHUNK = b"\xff\xff\xff"


BAD_STEPS = {
    "bind of no queue": wire.Step(binds=wire.Binds(queues=[b""], keys=[b"k"])),
    "bind of a long queue": wire.Step(binds=wire.Binds(queues=[TOO_LONG], keys=[b"k"])),
    "bind to no key": wire.Step(binds=wire.Binds(queues=[b"q"], keys=[b""])),
    "bind to a direct key": wire.Step(binds=wire.Binds(queues=[b"q"], keys=[b"@q"])),
    "bind to a direct key of no queue": wire.Step(binds=wire.Binds(queues=[b"q"], keys=[b"@"])),
    "unbind of no queue": wire.Step(unbinds=wire.Unbinds(queues=[b""], keys=[b"k"])),
    "unbind of a long key": wire.Step(unbinds=wire.Unbinds(queues=[b"q"], keys=[TOO_LONG])),
    "publish to no key": wire.Step(publishes=wire.Publishes(keys=[b""], chunks=[CHUNK])),
    "publish to a direct key of no queue": wire.Step(publishes=wire.Publishes(keys=[b"@"], chunks=[CHUNK])),
    "publish to a long direct key": wire.Step(publishes=wire.Publishes(keys=[b"@" + TOO_LONG], chunks=[CHUNK])),
    "publish of no chunk": wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[NOT_A_CHUNK])),
    "publish of an empty chunk": wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[b""])),
    "configure of no key": wire.Step(configures=wire.Configures(keys=[b""])),
    "configure of a direct key": wire.Step(configures=wire.Configures(keys=[b"@q"])),
    "farewell of no queue": wire.Step(farewells=wire.Farewells(queues=[b""])),
    "farewell to no key": wire.Step(farewells=wire.Farewells(queues=[b"q"], keys=[b""], chunks=[CHUNK])),
    "farewell of no chunk": wire.Step(farewells=wire.Farewells(queues=[b"q"], keys=[b"k"], chunks=[NOT_A_CHUNK])),
    "farewells of uneven columns": wire.Step(farewells=wire.Farewells(queues=[b"q"], keys=[b"k"])),
    "time of no farewell": wire.Step(farewells=wire.Farewells(queues=[b"q"], after_s=1)),
    "declare of no queue": wire.Step(declares=wire.Declares(queues=[b""])),
    "drop of no queue": wire.Step(drops=wire.Drops(queues=[b""])),
    "purge of no queue": wire.Step(purges=wire.Purges(queues=[b""])),
    "import of no queue": wire.Step(imports=wire.Imports(queues=[b""], key_counts=[1], keys=[b"k"])),
    "import of no key": wire.Step(imports=wire.Imports(queues=[b"q"], key_counts=[1], keys=[b""])),
    "ack of no queue": wire.Step(acks=wire.TransactionAcks(queues=[b""], keys=[b"k"], lows=[1], tos=[2])),
    "ack of no offset": wire.Step(acks=wire.TransactionAcks(queues=[b"q"], keys=[b"k"], lows=[2], tos=[2])),
    "ack from offset 0": wire.Step(acks=wire.TransactionAcks(queues=[b"q"], keys=[b"k"], lows=[0], tos=[2])),
    "acks of uneven lives": wire.Step(
        acks=wire.TransactionAcks(queues=[b"q"], keys=[b"k"], lows=[1], tos=[2], lives=[1, 2])
    ),
    "acks of uneven columns": wire.Step(acks=wire.TransactionAcks(queues=[b"q"], keys=[b"k"], lows=[1])),
    "columns that do not fit": wire.Step(binds=wire.Binds(queues=[b"q"], key_counts=[2], keys=[b"k"])),
}


@pytest.mark.parametrize("step", BAD_STEPS.values(), ids=BAD_STEPS)
def test_what_a_look_can_refuse_is_refused_before_it_is_journaled(step: wire.Step) -> None:
    data = wire.Change(steps=[declare("q"), step]).SerializeToString()
    with pytest.raises((Malformed, InvalidName)):
        check_change(data)


@pytest.mark.parametrize("step", BAD_STEPS.values(), ids=BAD_STEPS)
def test_a_journal_that_has_it_all_the_same_is_replayed_and_the_frame_changes_nothing(step: wire.Step) -> None:
    """As journals of before the check have it: refused by every node in the same way, over any tables."""
    for core in (CoreDriver(), CoreDriver(Delta(MemoryBase()))):
        core.change(declare("q"), bind("q", "k"))
        before = contents(core.tables)
        with pytest.raises((Malformed, InvalidName)):
            core.change(publish("k", b"of the same frame"), step)
        assert contents(core.tables) == before
        core.check()


def record(core: CoreDriver, kind: int, payload: bytes, flags: int = 0) -> Record:
    return Record(kind, flags, core.state.lsn + 1, 1, 1_000, payload)


def of_a_newer_version() -> bytes:
    """A change with one step of a field that this version does not know."""
    return encode_change(ChangeHead(NO_PRODUCER, 0, 0), b"\x0a\x03\xfa\x01\x00")


UNAPPLIABLE = {
    "unknown kind": (99, b""),
    "step of a newer version": (Kind.CHANGE, of_a_newer_version()),
    "change without a head": (Kind.CHANGE, b"short"),
    "acks cut off": (Kind.ACKS, b"1234567890"),
    "trims cut off": (Kind.TRIM, b"12345"),
    "reclaim of a cut key": (Kind.RECLAIM, b"\x09k"),
    "expiry of a cut name": (Kind.EXPIRE, b"12345678" + b"12345678" + b"\x05abc"),
    "retries cut off": (Kind.RETRY, bytes(8) + bytes(37)),
    "due rows cut in a key": (Kind.DUE, b"\x09k"),
    "due rows without a name": (Kind.DUE, b"\x02kk"),
    "due rows cut in their head": (Kind.DUE, b"\x01" + bytes(7)),
    "farewells cut in a key": (Kind.FAREWELL, bytes(8) + b"\x09q"),
    "farewells without names": (Kind.FAREWELL, bytes(8) + b"\x01q"),
    "ownership of no partition": (Kind.OWNERSHIP, bytes(12)),
    "ownership cut off": (Kind.OWNERSHIP, b"1234"),
}


@pytest.mark.parametrize(("kind", "payload"), UNAPPLIABLE.values(), ids=UNAPPLIABLE)
def test_a_record_that_cannot_be_applied_is_named_and_can_be_set_aside(kind: int, payload: bytes) -> None:
    core = CoreDriver()
    lsn = core.state.lsn + 1
    with pytest.raises(Corrupt, match=rf"journal record {lsn} \(.*--skip {lsn}") as caught:
        core.engine.apply(record(core, kind, payload))
    assert caught.value.value == lsn
    other, expected = CoreDriver(), CoreDriver()
    effects = other.engine.apply(record(other, kind, payload, SET_ASIDE))
    assert effects.set_aside and other.state.lsn == lsn
    expected.state.lsn = lsn
    expected.state.note_left_out()
    assert contents(other.tables) == contents(expected.tables), "nothing but the mark that it was left out"


def test_a_live_frame_with_a_step_of_a_newer_version_is_malformed() -> None:
    with pytest.raises(Malformed, match="of a kind that this version does not know"):
        parse_change(of_a_newer_version()[32:])


def test_any_change_that_passes_the_check_is_applied() -> None:
    """Columns of random names, known and unknown, with numbers at their ends: outcomes, never an exception."""
    random = Random(5)
    core = CoreDriver(Delta(MemoryBase()))
    core.change(declare("q", "r"), bind("q", "a", "b"))
    queues = [b"q", b"r", b"new", b"\x00", b"\xff" * 255]
    keys = [b"a", b"b", b"c", b"\x00", b"\xff" * 255]
    numbers = [0, 1, 2, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1]
    passed = 0
    for _ in range(2000):
        some = [random.choice(queues) for _ in range(random.randint(0, 3))]
        many = [random.choice(keys) for _ in some]
        value = random.choice(numbers)
        step = random.choice(
            [
                wire.Step(
                    binds=wire.Binds(
                        queues=some, keys=many, start=random.choice(wire.Start.values()), start_value=value
                    )
                ),
                wire.Step(unbinds=wire.Unbinds(queues=some, keys=many, discard=random.random() < 0.5)),
                wire.Step(publishes=wire.Publishes(keys=[random.choice([*keys, b"@q", b"@gone"])], chunks=[CHUNK])),
                wire.Step(declares=wire.Declares(queues=some, incarnations=[random.choice(numbers) for _ in some])),
                wire.Step(
                    farewells=wire.Farewells(
                        queues=some,
                        keys=[random.choice([*keys, b"@q", b"@gone"]) for _ in some],
                        chunks=[CHUNK for _ in some],
                        after_s=value % 90_000,
                    )
                ),
                wire.Step(farewells=wire.Farewells(queues=some)),
                wire.Step(drops=wire.Drops(queues=some, incarnations=[random.choice(numbers) for _ in some])),
                wire.Step(
                    acks=wire.TransactionAcks(
                        queues=some, keys=many, lows=[1] * len(some), tos=[random.choice(numbers[2:]) for _ in some]
                    )
                ),
                wire.Step(purges=wire.Purges(queues=some, positions=[random.choice(numbers) for _ in some])),
                wire.Step(
                    imports=wire.Imports(queues=some, key_counts=[1] * len(some), keys=many, starts=[value] * len(many))
                ),
            ]
        )
        steps = [wire.Step(publishes=wire.Publishes(keys=[b"a"], chunks=[CHUNK])), step]
        data = wire.Change(steps=steps[random.randint(0, 1) :], atomic=random.random() < 0.5).SerializeToString()
        sequence = random.choice([0, *numbers])
        head = ChangeHead(b"p" * 16 if sequence else NO_PRODUCER, sequence, random.choice(numbers))
        try:
            check_change(data)
        except ShoalError:
            continue
        passed += 1
        core.record(Kind.CHANGE, encode_change(head, data))
    assert passed > 1000
    replayed = Delta(MemoryBase())
    engine = Engine(replayed)
    for one in core.records:
        engine.apply(one)
    assert contents(replayed) == contents(core.tables)
    core.check()
