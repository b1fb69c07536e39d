"""Parcels that were not sent are found by key and offset."""

from __future__ import annotations

from itertools import count

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import unsent
from shoal_slice_node.core.dispatch.not_sent import NotSent
from shoal_slice_node.core.dispatch.parcels import Parcel, Slot
from shoal_slice_node.core.node import settling
from shoal_slice_node.core.turns import Source

from .core_driver import bind, declare, publish
from .nacks_driver import NacksDriver


def test_parcels_of_a_key_are_found_by_their_offsets() -> None:
    listed, waiting, numbers = NotSent(), dict[Slot, Parcel](), count(1)

    def wait(key_id: bytes, first: int, to: int, another: int = 0, live: bool = False) -> None:
        slot = (key_id, first, to, 0, 0, another)
        waiting[slot] = Parcel(b"k", first, first, to, b"x", 0, 0, next(numbers), is_live=live)

    def found(key_id: bytes, first: int, to: int) -> list[tuple[int, int]]:
        listed.list_new(waiting)
        return [(parcel.low, parcel.to) for _, parcel in listed.between(key_id, first, to)[0]]

    assert found(b"a", 0, 100) == []
    for first in (20, 5, 6, 30):
        wait(b"a", first, first + 1)
    wait(b"b", 6, 7)
    wait(b"a", 6, 7, 9, live=True)
    assert found(b"a", 0, 100) == [(5, 6), (6, 7), (20, 21), (30, 31)]
    wait(b"a", 8, 19)
    wait(b"a", 6, 7, 1)
    assert found(b"a", 6, 7) == [(6, 7), (6, 7)] and found(b"a", 7, 8) == []
    assert found(b"a", 18, 21) == [(8, 19), (20, 21)]
    for slot in [slot for slot in waiting if slot[1] == 6]:
        del waiting[slot]
        listed.leaves(slot, is_last=False)
    assert found(b"a", 0, 21) == [(5, 6), (8, 19), (20, 21)] and found(b"b", 0, 100) == []
    for slot in list(waiting):
        del waiting[slot]
        listed.leaves(slot, not waiting)
    assert found(b"a", 0, 100) == []
    wait(b"a", 3, 4)
    assert found(b"a", 0, 100) == [(3, 4)]


def test_what_waits_for_an_open_session_is_listed_in_steps_while_it_changes() -> None:
    listed, waiting = NotSent(), dict[Slot, Parcel]()

    def wait(low: int) -> None:
        joined[0] += 1
        waiting[(b"k", low, low + 1, 0, 0, 0)] = Parcel(b"k", low, low, low + 1, b"x", 0, 0, joined[0])

    def leave(low: int) -> None:
        slot = (b"k", low, low + 1, 0, 0, 0)
        del waiting[slot]
        listed.leaves(slot, not waiting)

    def found() -> list[int]:
        listed.list_new(waiting)
        return [parcel.low for _, parcel in listed.between(b"k", 0, 1_000)[0]]

    joined = [0]
    for low in range(1, 11):
        wait(low)
    assert listed.list_some(waiting, 3) and len(listed.between(b"k", 0, 1_000)[0]) == 3
    for low in (2, 5, 6):
        leave(low)
    wait(5)  # At the place of one that was to be listed next, behind those that are not listed yet.
    wait(11)
    steps = 0
    while listed.list_some(waiting, 3):
        steps += 1
    assert steps <= 5 and len(listed.between(b"k", 0, 1_000)[0]) >= len(waiting) - 3
    assert found() == [1, 3, 4, 5, 7, 8, 9, 10, 11]
    assert not listed.list_some(waiting, 3), "little is new"
    for low in range(20, 30):
        wait(low)
    assert listed.list_some(waiting, 3)
    for low in [slot[1] for slot in waiting]:
        leave(low)
    wait(50)
    while listed.list_some(waiting, 3):
        pass
    assert found() == [50]


def test_what_a_closed_session_left_behind_is_listed_in_steps() -> None:
    listed = NotSent()
    waiting = {(b"k", n, n + 1, 0, 0, 0): Parcel(b"k", n, n, n + 1, b"x", 0, 0, n) for n in range(1, 11)}
    listed.list_new(dict(list(waiting.items())[:4]))
    listed.close(waiting)
    assert listed.waited == 10 and listed.between(b"k", 0, 100) == ([], 0)
    assert [listed.list_left_behind(4) for _ in range(4)] == [True, True, False, False]
    assert [parcel.low for _, parcel in listed.between(b"k", 0, 100)[0]] == list(range(1, 11))
    assert all(parcel.chunk == b"" for parcel in waiting.values())


def test_a_nack_is_looked_at_while_many_live_chunks_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not listed, and were looked through again and again, for as long as the client did not read."""
    monkeypatch.setattr(unsent, "LISTED_AT_ONCE_MAX", 50)
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"x"))
    session = core.session(1 << 20)
    core.attach(session, "q", 1, 1_000, 1 << 20)
    core.pump()
    core.dispatcher.sent(session, core.dispatcher.take(session, 1 << 20).cost_bytes)
    for _ in range(400):
        core.live(publish("k", b"live", live=True))
    core.pump()
    source, answered = Source(b"c", 1), list[object]()
    ack = wire.Ack(key=b"k", low=1, to=2, handles=[1])
    settling.take_nacks(core.node, source, session, wire.Nacks(messages=[ack]), answered.append, False)
    for _ in range(40):
        core.node.turns.step() if core.node.turns.busy(source) else None
    assert answered == [None]


def test_the_first_nack_lists_what_was_not_sent_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """It listed 80,000 parcels in one step of 0.12 s."""
    monkeypatch.setattr(unsent, "LISTED_AT_ONCE_MAX", 50)
    core = NacksDriver()
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
    settling.take_nacks(
        core.node, source, session, wire.Nacks(messages=acks, unseen=True, number=1), lambda _: None, False
    )
    while core.node.turns.busy(source):
        added.append(0)
        core.node.turns.step()
    assert sum(added) == 400 and max(added) <= 100
    core.pump()
    assert sorted(offset for _, offset, _ in core.take(session)) == list(range(1, 401))
