"""Acks in changes: what done ranges of many bindings may cost; acks of what the same record publishes."""

from __future__ import annotations

import gc

import pytest

from shoal_contract.errors import Conflict, OutOfRange, ResourceExhausted, from_wire
from shoal_slice_node.core.apply import acks as applied_acks
from shoal_slice_node.core.limits import DONE_RANGES_MAX
from shoal_slice_node.core.rows.detail_row import Detail, decode_detail

from .core_driver import acks, bind, declare, every_second, publish, with_done
from .transaction_steps import consumed


@pytest.mark.parametrize("atomic", [False, True])
def test_a_binding_that_stands_in_a_step_often_is_read_and_written_once(
    monkeypatch: pytest.MonkeyPatch, atomic: bool
) -> None:
    """Others stand between its acks; refusals keep the order of the requests."""
    core = consumed()
    for key in "ab":
        core.change_all(publish(key, *([b""] * 2000)) for _ in range(4))
        with_done(core, "q", [key], every_second(3000))
    decoded: list[bytes] = []

    def decode(row: bytes) -> Detail:
        decoded.append(row)
        return decode_detail(row)

    monkeypatch.setattr(applied_acks, "decode_detail", decode)
    named = [("q", "ab"[at % 2], 2001 + 2 * (at // 2), 2002 + 2 * (at // 2)) for at in range(400)]
    if not atomic:
        named[7] = named[14] = named[21] = ("q", "b", 2, 3)
    outcome = core.change(acks(*named), atomic=atomic)
    assert [refusal.request for refusal in outcome.steps[0].refusals] == ([] if atomic else [7, 14, 21])
    assert len(decoded) == (4 if atomic else 2)
    core.check()


def test_the_first_request_that_is_refused_names_the_refusal_whatever_binding_it_is_of() -> None:
    core = consumed()
    with pytest.raises(OutOfRange, match="request 1 of"):
        core.change(acks(("q", "a", 1, 2), ("q", "b", 7, 8), ("q", "a", 1, 2)), atomic=True)
    with pytest.raises(Conflict, match="request 1 of"):
        core.change(acks(("q", "a", 1, 2), ("q", "a", 1, 2), ("q", "b", 7, 8)), atomic=True)


def test_acks_of_too_many_done_ranges_are_refused_by_name() -> None:
    """However the requests are spread over steps, and whether they make sense or not."""
    core = consumed()
    core.change_all(publish("a", *([b""] * 4000)) for _ in range(3))
    with_done(core, "q", ["a"], every_second(DONE_RANGES_MAX))
    steps = [acks(("q", "a", 2, 3))] * 20
    outcome = core.change(*steps)
    errors = [from_wire(step.refusals[0].error) for step in outcome.steps]
    assert [type(error) for error in errors] == [Conflict] * 16 + [ResourceExhausted] * 4
    assert errors[-1].subject == "done ranges of a change" and errors[-1].limit == 16 * DONE_RANGES_MAX
    assert "ack in several changes" in errors[-1].message
    with pytest.raises(ResourceExhausted, match="ack in several changes"):
        core.change(*(acks(("q", "a", at, at + 1)) for at in range(3, 43, 2)), atomic=True)
    core.change(acks(*(("q", "a", at, at + 1) for at in range(3, 43, 2))), atomic=True)
    core.check()


@pytest.mark.parametrize("window", [1, 1000])
def test_what_a_record_publishes_and_acks_is_not_sent(window: int) -> None:
    core = consumed()
    core.change(declare("late"))
    session, late = core.session(), core.session()
    core.attach(session, "q", messages=window)
    core.attach(late, "late", messages=window)
    core.change(acks(("q", "a", 1, 5)))
    core.change(
        bind("late", "a"),
        publish("a", b"5", b"6"),
        publish("b", b"1"),
        acks(("q", "a", 5, 6), ("late", "a", 6, 7), ("q", "b", 1, 2)),
        publish("a", b"7"),
        atomic=True,
    )
    found: list[list[tuple[str, int, bytes]]] = [[], []]
    for number, one in enumerate((session, late)):
        while some := core.take(one):
            found[number] += some
            for key, offset, _ in some:
                core.ack(one, key, offset, offset + 1)
    assert found == [[("a", 6, b"6"), ("a", 7, b"7")], [("a", 5, b"5"), ("a", 7, b"7")]]
    core.check_served()


def test_a_change_that_acks_what_a_session_has_makes_room_for_its_other_queues() -> None:
    """They waited for the next time that what sessions owe is counted."""
    core = consumed(bodies=0)
    core.change(bind("other", "c"))
    session = core.session()
    session.limit_owed(1)
    core.attach(session, "q", 1)
    core.attach(session, "other", 2)
    core.change(publish("a", b"x"))
    core.change(publish("c", b"y"))
    assert [key for key, *_ in core.take(session)] == ["a"] and session.turned_away
    core.change(acks(("q", "a", 1, 2)))
    core.pump()
    assert session.waiting and [key for key, *_ in core.take(session)] == ["c"]


def test_acks_that_are_refused_leave_nothing_in_memory() -> None:
    """Each kept a row of 64 KB in a circle: a frame of 13 KB took 64 MB until the collector came."""
    core = consumed()
    for key in "ab":
        core.change_all(publish(key, *([b""] * 2000)) for _ in range(2))
        with_done(core, "q", [key], every_second(1500))
    named = [("q", key, 2, 3) for key in "ab"] + [("q", "none", 1, 2), ("none", "a", 1, 2)]
    core.change(acks(*named))
    gc.collect()
    gc.disable()
    try:
        outcome = core.change(acks(*named))
        assert len(outcome.steps[0].refusals) == 4
        assert gc.collect() < 10
    finally:
        gc.enable()
