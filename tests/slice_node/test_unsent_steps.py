"""What one nack lists of a session, and the leases that one tick begins, are bounded steps, whatever waits."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import leases, unsent
from shoal_slice_node.core.dispatch.not_sent import NotSent
from shoal_slice_node.core.dispatch.parcels import Parcel, Slot
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.turns import Source

from .core_driver import bind, declare, publish
from .nacks_driver import TIMEOUT_MS, NacksDriver
from .unsent_steps import declared


@pytest.fixture
def core() -> NacksDriver:
    core = NacksDriver()
    core.change(declare("dead"), bind("dead", "dead"))
    return core


def test_the_time_of_many_leases_begins_over_several_ticks(core: NacksDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """80,000 began in one step of 65 ms. None ends early, and all end."""
    monkeypatch.setattr(leases, "LEASES_BEGUN_PER_TICK", 5)
    names = [f"q{number}" for number in range(20)]
    declared(core, *names, ack_timeout_ms=TIMEOUT_MS)
    core.change(*[bind(name, "k") for name in names], publish("k", b"x"))
    session, found = core.session(), core.dispatcher.registry.leases
    for handle, name in enumerate(names, 1):
        core.attach(session, name, handle)
    core.pump()
    begun = []
    for _ in range(6):
        core.wait(100)
        begun.append((len(found), len(session.leases)))
    assert begun == [(5, 5), (10, 10), (15, 15), (20, 20), (20, 20), (20, 20)]
    core.dispatcher.sent(session, core.dispatcher.take(session, 1 << 20).cost_bytes)
    waiting = []
    for _ in range(5):
        core.wait(100)
        waiting.append(len(session.leases))
    assert waiting == [15, 10, 5, 0, 0]
    core.wait(TIMEOUT_MS - 500)
    assert session.owed == 20, "none is over before it has had its time since it was sent"
    core.wait(TIMEOUT_MS)
    again = [(one.redelivered, len(one.handles)) for one in core.deliveries(session)]
    assert sum(handles for _, handles in again) == 20 and all(times > 0 for times, _ in again)


def test_the_first_nack_lists_what_was_not_sent_in_steps(core: NacksDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """It listed 80,000 parcels in one step of 0.12 s."""
    monkeypatch.setattr(unsent, "LISTED_AT_ONCE_MAX", 50)
    core.change(declare("q"), bind("q", "k"), *[publish("k", b"x")] * 400)
    session = core.session(1 << 20)
    core.attach(session, "q", 1, 1_000, 1 << 20)
    core.pump()
    added: list[int] = [0]
    add = NotSent._add

    def counted(listed: NotSent, slot: Slot, parcel: Parcel) -> None:
        added[-1] += 1
        add(listed, slot, parcel)

    monkeypatch.setattr(NotSent, "_add", counted)
    source, acks = Source(b"c", 1), [wire.Ack(key=b"k", low=low, to=low + 1, handles=[1]) for low in (1, 400)]
    requests.take_nacks(
        core.node, source, session, wire.Nacks(messages=acks, unseen=True, number=1), lambda _: None, False
    )
    while core.node.turns.busy(source):
        added.append(0)
        core.node.turns.step()
    assert sum(added) == 400 and max(added) <= 100
    core.pump()
    assert sorted(offset for _, offset, _ in core.take(session)) == list(range(1, 401))
