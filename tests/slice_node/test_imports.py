"""Imports and exports in the core: what a step makes, what it refuses, what pages say."""

from __future__ import annotations

import pytest

from shoal_contract.errors import (
    InvalidName,
    Malformed,
    NotOwner,
    OutOfRange,
    ResourceExhausted,
    ShoalError,
    TooLarge,
    from_wire,
)
from shoal_contract.limits import FRAME_BYTES_MAX
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import ChangeHead, Kind, encode_ownership
from shoal_slice_node.core.limits import BINDINGS_PER_QUEUE_MAX
from shoal_slice_node.core.read.memberships import Verifier, export_pages
from shoal_slice_node.core.verbs import changes
from shoal_slice_node.core.verbs.changes import parse_change, parse_import
from shoal_slice_node.processes.limits import EXPORT_PAGE_BYTES

from .bulk_client import RUN, Memberships, imports, live_memberships
from .core_driver import PARTITIONS, CoreDriver, bind, declare, drop, publish, purge, unbind

NAMES = [b"key-%d" % number for number in range(100)]


def bring(core: CoreDriver, memberships: Memberships, *starts: int) -> wire.StepOutcome:
    outcome = core.change(imports(memberships, starts)).steps[0]
    core.check()
    return outcome


def exported(core: CoreDriver, memberships_max: int = 1000) -> dict[bytes, set[bytes]]:
    return live_memberships(export_pages(core.tables, 1, memberships_max, EXPORT_PAGE_BYTES))


def refusals(outcome: wire.StepOutcome) -> list[tuple[int, ShoalError]]:
    return [(refusal.request, from_wire(refusal.error)) for refusal in outcome.refusals]


def test_an_import_makes_queues_keys_and_bindings() -> None:
    core = CoreDriver()
    outcome = bring(core, {b"q1": [b"a", b"b"], b"q2": [b"b"], b"alone": []})
    assert (outcome.queues_made, outcome.bindings_made, list(outcome.refusals)) == (3, 3, [])
    assert exported(core) == {b"q1": {b"a", b"b"}, b"q2": {b"b"}, b"alone": set()}


def test_an_import_adds_to_what_is_there_and_keeps_it() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "a"), publish("a", b"one"))
    outcome = bring(core, {b"q": [b"a", b"b"], b"r": [b"a"]})
    assert (outcome.queues_made, outcome.bindings_made) == (1, 2)
    session = core.session()
    core.attach(session, "q")
    assert core.take(session) == [("a", 1, b"one")]


def test_a_key_named_twice_is_bound_once() -> None:
    core = CoreDriver()
    assert bring(core, {b"q": [b"a", b"a"]}).bindings_made == 1
    assert bring(core, {b"q": [b"a", b"a", b"b"]}).bindings_made == 1
    assert exported(core) == {b"q": {b"a", b"b"}}


def test_imported_members_get_what_is_published_and_can_leave() -> None:
    core = CoreDriver()
    session = core.session()
    core.attach(session, "q")  # before it is there
    bring(core, {b"q": [b"a", b"b"], b"r": [b"a"]})
    core.change(publish("a", b"one"), unbind("q", "a"), publish("a", b"two"))
    assert core.take(session) == [("a", 1, b"one")]
    core.change(drop("r"), unbind("q", "b", discard=True))
    core.settle()
    core.check()
    assert exported(core) == {b"q": set()}


def test_a_queue_of_thousands_of_keys_is_spread_over_buckets() -> None:
    core = CoreDriver()
    keys = [b"key-%05d" % number for number in range(5000)]
    bring(core, {b"q": keys[:900]})
    for first in range(900, 5000, 900):
        bring(core, {b"q": keys[first : first + 900]})
    assert exported(core, memberships_max=700) == {b"q": set(keys)}


def test_bad_queues_are_refused_and_the_rest_is_taken() -> None:
    core = CoreDriver()
    core.change(declare("old"), bind("old", "k"), publish("k", b"x", b"y"))
    outcome = bring(core, {b"late": [b"k", b"a"], b"good": [b"a"]}, 9, 0, 0)
    assert [(at, type(error)) for at, error in refusals(outcome)] == [(0, OutOfRange)]
    assert exported(core) == {b"old": {b"k"}, b"good": {b"a"}}


def test_an_import_from_an_offset_that_is_gone_is_refused() -> None:
    """It has no way to say where the binding begins instead."""
    core = CoreDriver()
    core.change(declare("old"), bind("old", "k"), publish("k", b"x", b"y"), purge("old"))
    core.settle()
    outcome = bring(core, {b"late": [b"k"], b"later": [b"k"]}, 1, 3)
    assert [(at, type(error)) for at, error in refusals(outcome)] == [(0, OutOfRange)]
    assert exported(core) == {b"old": {b"k"}, b"later": {b"k"}}


@pytest.mark.parametrize(
    ("memberships", "problem"),
    [
        ({b"q" * 256: [b"a"]}, "256 bytes; the limit is 255"),
        ({b"": [b"a"]}, "empty"),
        ({b"good": [b"a"], b"q": [b"@direct"]}, "direct"),
        ({b"q": [b"@"]}, "direct"),
        ({b"q": [b""]}, "empty"),
        ({b"q": [b"k" * 256]}, "256 bytes; the limit is 255"),
    ],
)
def test_a_chunk_with_a_bad_name_is_refused_whole(memberships: Memberships, problem: str) -> None:
    """Who makes chunks checks rows before: only a broken maker sends one."""
    core = CoreDriver()
    with pytest.raises(InvalidName, match=problem):
        bring(core, memberships)
    assert exported(core) == {}


def test_a_start_is_an_offset_that_the_key_has_or_the_first_of_a_new_key() -> None:
    core = CoreDriver()
    core.change(declare("old"), bind("old", "k"), publish("k", b"x"), publish("k", b"y"))
    outcome = bring(core, {b"q": [b"k", b"new"], b"r": [b"new2"]}, 2, 1, 2)
    assert [at for at, _ in refusals(outcome)] == [1]
    session = core.session()
    core.attach(session, "q")
    assert core.take(session) == [("k", 2, b"y")]


def test_keys_of_other_slices_are_refused() -> None:
    core = CoreDriver()
    mine, other = (next(name for name in NAMES if partition_of(name, PARTITIONS) % 2 == odd) for odd in (0, 1))
    core.record(Kind.OWNERSHIP, encode_ownership(2, b"\x01\x00" * (PARTITIONS // 2)))
    outcome = bring(core, {b"q": [mine, other], b"r": [mine]})
    ((at, error),) = refusals(outcome)
    assert (at, type(error), error.map_version) == (0, NotOwner, 2)
    assert exported(core) == {b"r": {mine}}


def test_too_many_bindings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_slice_node.core.apply.binds.BINDINGS_PER_QUEUE_MAX", 3)
    core = CoreDriver()
    assert BINDINGS_PER_QUEUE_MAX > 3
    bring(core, {b"q": [b"a", b"b"]})
    outcome = bring(core, {b"q": [b"c", b"d"]})
    assert isinstance(refusals(outcome)[0][1], ResourceExhausted)
    assert exported(core) == {b"q": {b"a", b"b"}}


def test_a_chunk_after_a_gap_is_refused() -> None:
    core = CoreDriver()
    core.change(imports({b"q": [b"a"]}), head=ChangeHead(RUN, 1, 0))
    with pytest.raises(OutOfRange, match="the last was 1"):
        core.change(imports({b"r": [b"a"]}), head=ChangeHead(RUN, 3, 0))
    assert exported(core) == {b"q": {b"a"}}


def test_sessions_may_not_import_and_chunks_have_nothing_else() -> None:
    step = imports({b"q": [b"a"]})
    with pytest.raises(Malformed, match="BulkService"):
        parse_change(wire.Change(steps=[step]).SerializeToString())
    with pytest.raises(Malformed, match="one step"):
        parse_import(wire.Change(steps=[step, step]).SerializeToString())
    short = wire.Step(imports=wire.Imports(queues=[b"q"], key_counts=[2], keys=[b"a"]))
    with pytest.raises(Malformed, match="1 keys; it needs 2"):
        parse_import(wire.Change(steps=[short]).SerializeToString())


def test_the_fields_of_a_large_chunk_are_counted_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed, each takes much more than the two bytes that it came in."""
    data = wire.Change(steps=[wire.Step()]).SerializeToString() * (FRAME_BYTES_MAX // 4)
    monkeypatch.setattr(changes, "_check", lambda data: pytest.fail("it was parsed"))
    for parse in (parse_change, parse_import):
        with pytest.raises(TooLarge, match="operations"):
            parse(data)


def test_export_tells_cursors_ends_and_done_ranges() -> None:
    core = CoreDriver()
    core.change(declare("q", "keeps"), bind("q", "a", "b"), bind("keeps", "a", "b"))
    for body in (b"1", b"2", b"3", b"4"):
        core.change(publish("a", body), publish("b", body))
    session = core.session()
    core.attach(session, "q")
    assert len(core.take(session)) == 8
    core.ack(session, "a", 1, 2)
    core.ack(session, "a", 3, 4)
    core.flush()
    core.change(unbind("q", "b"))
    (page,) = export_pages(core.tables, 7, 1000, EXPORT_PAGE_BYTES)
    assert (page.lsn, list(page.queues), list(page.key_counts)) == (7, [b"q", b"keeps"], [2, 2])
    rows = list(zip(page.keys, page.starts, page.cursors, page.ends, page.done_counts, strict=True))
    assert rows[:2] == [(b"a", 1, 2, 0, 1), (b"b", 1, 1, 5, 0)]
    assert sorted(rows[2:]) == [(b"a", 1, 1, 0, 0), (b"b", 1, 1, 0, 0)]
    assert list(page.done) == [3, 4]


def test_verify_counts_and_names_what_is_missing() -> None:
    core = CoreDriver()
    bring(core, {b"q": [b"a", b"b"], b"alone": []})
    asked = imports({b"q": [b"a", b"c", b"b"], b"alone": [], b"none": [], b"nobody": [b"a"]}).imports
    answer = Verifier(core.tables, 5).verify(4, asked)
    assert (answer.chunk, answer.lsn, answer.found, answer.missing) == (4, 5, 3, 3)
    assert (answer.missing_queue, answer.missing_key) == (b"q", b"c")


def test_verify_finds_bindings_to_keys_with_a_hash_tag() -> None:
    core = CoreDriver(owned=b"\x01" * 64)
    keys = [b"{room-7}/votes", b"plain", b"{}", b"{open"]
    bring(core, {b"q": keys})
    answer = Verifier(core.tables, 5).verify(1, imports({b"q": keys}).imports)
    assert (answer.found, answer.missing) == (len(keys), 0)
