"""Acks and nacks of a session are done in the order in which they came, small ones too; and each step is small."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from shoal_contract.errors import ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import ACKED_PER_STEP
from shoal_slice_node.core.node import commit
from shoal_slice_node.core.node.settling import take_acks
from shoal_slice_node.core.turns import Source

from .core_driver import CoreDriver, bind, declare, publish

Told = Callable[[ShoalError | None], None]


def consumed() -> tuple[CoreDriver, Session]:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), *(publish("k", b"") for _ in range(10)))
    session = core.session()
    core.attach(session, "q")
    core.take(session)
    return core, session


def ack(core: CoreDriver, session: Session, count: int, told: Told, unacked: list[int] | None = None) -> None:
    """An ack of the first message, by this session's handle, so many times."""
    one = wire.Ack(key=b"k", low=1, to=2, handles=[1] * count)
    take_acks(core.node, Source("connection", session.number), session, [one], told, everyone=False, unacked=unacked)


def test_a_small_ack_waits_for_what_its_session_asked_before() -> None:
    core, session = consumed()
    order: list[str] = []
    ack(core, session, ACKED_PER_STEP + 1, lambda _: order.append("large"))
    ack(core, session, 1, lambda _: order.append("small"))
    assert not order
    while core.node.turns:
        core.node.turns.step()
    assert order == ["large", "small"]


def test_a_small_ack_waits_while_a_record_is_done_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would look at tables and windows as they are in the middle of it."""
    monkeypatch.setattr(commit, "APPLIED_WHOLE_MAX", 0)
    core, session = consumed()
    told: list[ShoalError | None] = []
    large = partial(core.change, declare(*(f"d{number}" for number in range(20))))
    step = core.node.commit.step

    def look_after(before: int) -> None:
        step()
        if not (core.node.commit.whole or told or core.node.turns):
            ack(core, session, 1, told.append)
            assert not told and session.owed == before

    monkeypatch.setattr(core.node.commit, "step", partial(look_after, session.owed))
    large()
    assert core.node.turns
    core.node.turns.step()
    assert told == [None]


@pytest.mark.parametrize(("tells", "step"), [(True, False), (False, True)])
def test_an_ack_that_tells_what_is_unacked_costs_twice_as_much(tells: bool, step: bool) -> None:
    """Else it looks at twice as many consumers in one step."""
    core, session = consumed()
    told: list[ShoalError | None] = []
    ack(core, session, ACKED_PER_STEP // 2 + 1, told.append, [] if tells else None)
    assert bool(told) == step
