"""Binds that begin below a key's head between the taking of acks, or the search for a trim, and their record."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply import bind_backs
from shoal_slice_node.core.apply.records import Kind, encode_trims
from shoal_slice_node.core.limits import BIND_BACKS_FORGOTTEN_MAX, BIND_BACKS_NOTED_MAX
from shoal_slice_node.core.read.reading import describe_key

from .core_driver import CoreDriver, bind, declare, publish, unbind
from .determinism_steps import contents, replayed_by_starts


def joins_and_leaves(core: CoreDriver) -> None:
    """Another queue is bound from the key's history, and unbound."""
    core.change(bind("joiner", "k", start=wire.START_LAST, value=1), unbind("joiner", "k", discard=True))


def bound_from(core: CoreDriver, offset: int, discard: bool = False) -> None:
    """Queue q is unbound, and bound again from `offset`."""
    core.change(unbind("q", "k", discard=discard), bind("q", "k", start=wire.START_OFFSET, value=offset))


def left(core: CoreDriver) -> list[int]:
    """Offsets that a new session on queue q is given, after a crash of dispatch."""
    after = CoreDriver(core.tables)
    session = after.session()
    after.attach(session, "q")
    return [offset for _, offset, _ in after.take(session)]


def consumed(messages: int) -> CoreDriver:
    """Queue q has these messages of key k, and acked all of them; no record has its acks yet."""
    core = CoreDriver()
    core.change(declare("q", "joiner", "keeper"), bind("q", "k"), bind("keeper", "k"))
    core.attach(core.session(), "q")
    again(core, messages)
    return core


def again(core: CoreDriver, messages: int) -> None:
    """So many more are published, given and acked."""
    (attachment,) = core.dispatcher.feeds[core.tables.queue_by_name.get(b"q") or b""].attachments.values()
    core.change(*(publish("k", b"a") for _ in range(messages)))
    for _, offset, _ in core.take(attachment.session):
        core.ack(attachment.session, "k", offset, offset + 1)


def test_acks_are_done_however_often_others_bind_from_the_keys_history() -> None:
    core = consumed(5)
    taken = core.take_acks()
    for _ in range(10):
        joins_and_leaves(core)
    core.apply_acks(*taken)
    assert not core.dispatcher.acks.waiting, "nothing is to be taken again"
    assert left(core) == []
    core.check()


@pytest.mark.parametrize("discard", [False, True])
def test_acks_that_were_taken_before_their_binding_was_bound_anew_count_below_its_start(discard: bool) -> None:
    core = consumed(5)
    taken = core.take_acks()
    bound_from(core, 3, discard)
    core.apply_acks(*taken)
    core.flush()
    assert left(core) == [3, 4, 5]
    core.check()


def test_acks_of_what_comes_again_are_not_cut() -> None:
    core = consumed(5)
    bound_from(core, 2)
    first = core.take_acks()
    again(core, 0)
    second = core.take_acks()
    bound_from(core, 4)
    core.apply_acks(*first)
    core.apply_acks(*second)
    core.flush()
    assert left(core) == [4, 5]
    core.check()


def test_a_log_is_trimmed_though_others_bind_from_its_history_at_all_times() -> None:
    core = consumed(0)
    core.change(unbind("keeper", "k"))
    for _ in range(10):
        again(core, 10)
        core.flush()
        core.now_ms += 1_000
        trims = core.trimmer.turn(core.now_ms)
        joins_and_leaves(core)
        core.record(Kind.TRIM, encode_trims(trims))
    key = describe_key(core.state, b"k")
    assert key.head == 101 and key.low > 60
    core.settle()
    assert describe_key(core.state, b"k").low == 101
    core.check()


def test_a_trim_that_was_decided_before_leaves_what_a_binding_was_promised() -> None:
    core = consumed(0)
    core.change(publish("k", b"a", b"b", b"c"), publish("k", b"d", b"e", b"f"), publish("k", b"g"))
    core.change(unbind("keeper", "k", discard=True))
    again(core, 0)
    core.flush()
    core.now_ms += 1_000
    trims = core.trimmer.turn(core.now_ms)
    assert [trim.low for trim in trims] == [8]
    core.change(bind("joiner", "k", start=wire.START_OFFSET, value=5))
    core.record(Kind.TRIM, encode_trims(trims))
    assert describe_key(core.state, b"k").low == 4, "the chunk that holds 5 stays whole"
    core.settle()
    assert describe_key(core.state, b"k").low == 4
    core.change(unbind("joiner", "k", discard=True))
    core.settle()
    assert describe_key(core.state, b"k").low == 8
    assert not list(core.tables.reclaim.scan(b"b")), "nothing is noted any more"
    core.check()


def test_what_is_noted_is_bounded_and_acks_older_than_it_are_taken_again() -> None:
    core = consumed(5)
    taken = core.take_acks()
    steps = [bind("joiner", "k", start=wire.START_LAST, value=1), unbind("joiner", "k", discard=True)]
    core.change_all(steps * (BIND_BACKS_NOTED_MAX + 1))
    assert len(list(core.tables.reclaim.scan(b"a"))) == BIND_BACKS_NOTED_MAX
    core.apply_acks(*taken)
    assert core.dispatcher.acks.waiting, "nothing is known of the binds since then"
    core.flush()
    assert left(core) == []
    for _ in range(BIND_BACKS_NOTED_MAX // BIND_BACKS_FORGOTTEN_MAX + 1):
        again(core, 1)
        core.flush()
    assert not list(core.tables.reclaim.scan(b"a"))
    core.check()


def test_a_restart_between_bind_and_acks_cuts_the_same() -> None:
    core = consumed(5)
    taken = core.take_acks()
    joins_and_leaves(core)
    bound_from(core, 3)
    core.apply_acks(*taken)
    assert contents(replayed_by_starts(core.records)) == contents(core.tables)


def test_a_replay_takes_no_acks_that_the_leader_has_taken_again_as_it_forgot_binds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bind_backs, "BIND_BACKS_NOTED_MAX", 2)
    core = consumed(5)
    taken = core.take_acks()
    bound_from(core, 2)
    for _ in range(3):
        joins_and_leaves(core)
    core.apply_acks(*taken)
    assert core.dispatcher.acks.waiting, "the leader does not know of the bind any more"
    core.flush()
    tables = replayed_by_starts(core.records)
    assert left(CoreDriver(tables)) == left(core) == [2, 3, 4, 5]
    assert contents(tables) == contents(core.tables)
