"""Turns in which a large chunk is met: other consumers of the queue are looked at all the same, and the pump comes to
rest however many streams have one next."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal_slice_node.core.dispatch.served import silent_streams
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, declare, publish
from .large_readers import LARGE, SHARE_BYTES, crowded, readers_of, rest, takes


def all_come(core: CoreDriver, readers: Sequence[Session], session: Session) -> int:
    """The others read what they get, and so does the session. Returns how many chunks it got."""
    got = takes(core, session)
    while session.waiting or any(reader.waiting for reader in readers):
        for reader in readers:
            takes(core, reader)
        got += takes(core, session)
    return got


@pytest.mark.parametrize("first", range(19))
@pytest.mark.parametrize("leaves", ["stop", "close", "detach", "fills its window"])
def test_a_consumer_is_looked_at_though_another_one_of_the_queue_met_a_large_chunk(leaves: str, first: int) -> None:
    """A worker with an open window fell silent, beside one that met a large chunk and then left."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=SHARE_BYTES))
    core.change(declare("w"), bind("w", "A", "B"))
    acks = core.session(1 << 20, "acks")
    core.attach(acks, "w", messages=1)
    rest(core)
    core.change(publish("B", b"first"))
    rest(core)
    assert takes(core, acks) == 1
    meets = core.session(20_000 if leaves == "fills its window" else 1 << 20, "meets")
    core.attach(meets, "w", messages=1)
    rest(core)
    core.change(declare("x"), bind("x", "x"))
    core.attach(meets, "x", handle=2)
    rest(core)
    readers = readers_of(core)
    core.change(publish("A", LARGE))
    core.dispatcher._pump._next_kind = first  # The kind of work that has its turn first.
    core.ack(acks, "B", 1, 2)
    rest(core)
    if leaves == "stop":
        core.dispatcher.stop(meets, 1)
    elif leaves == "close":
        core.dispatcher.close(meets)
    elif leaves == "detach":
        core.dispatcher.detach(meets, 1)
    else:
        core.change(*(publish("x", bytes(1_000)) for _ in range(40)))
    rest(core)
    for reader in readers * 4:
        takes(core, reader)
    assert not list(silent_streams(core.dispatcher, core.dispatcher.feeds.values()))
    assert takes(core, acks) == 1


@pytest.mark.parametrize("keys", [15, 40, 41, 60])
def test_the_pump_rests_where_more_streams_have_a_large_chunk_next_than_a_turn_looks_at(keys: int) -> None:
    """With more than 5,000 keys a processor was used up for as long as others kept the share full."""
    with patched({"PUMP_TURN_LOOKS": 20}):
        core, readers = crowded()
        names = [f"k{number}" for number in range(keys)]
        core.change(declare("w"), bind("w", *names), *(publish(name, LARGE) for name in names))
        session = core.session(1 << 20, "w")
        core.attach(session, "w", size=1 << 30)
        rest(core)
        assert all_come(core, readers, session) == keys


@pytest.mark.parametrize("step", [3, 10, 40])
def test_it_rests_where_streams_that_wait_for_acks_are_among_them(step: int) -> None:
    """Each has acks with gaps, and may have no more ranges; a few have a large chunk next."""
    keys = 40
    with patched({"PUMP_TURN_LOOKS": 8, "DONE_RANGES_MAX": 2}):
        core, readers = crowded()
        names = [f"k{number}" for number in range(keys)]
        core.change(declare("w"), bind("w", *names), *(publish(name, b"1", b"2", b"3", b"4") for name in names))
        session = core.session(1 << 20, "w")
        core.attach(session, "w", size=1 << 30)
        rest(core)
        while session.waiting:
            takes(core, session)
        for number, name in enumerate(names):
            core.ack(session, name, 2, 3)
            if number % step:
                core.ack(session, name, 4, 5)
            core.change(publish(name, LARGE if number % step == 0 else b"x"))
        rest(core)
        all_come(core, readers, session)
        for name in names:
            core.ack(session, name, 1, 5)
        rest(core)
        all_come(core, readers, session)
        assert session.attachments[1].messages == keys and not session.attachments[1].feed.lagging


def test_what_is_known_to_be_large_is_not_read_again_after_each_large_chunk() -> None:
    """With 4,500 keys each chunk given had all the others read: 1,126 turns of the pump, 150 MB for 33 KB."""
    core, readers = crowded()
    names = [f"k{number}" for number in range(300)]
    core.change(declare("w"), bind("w", *names))
    for name in names:
        core.change(publish(name, LARGE))
    session = core.session(1 << 20, "w")
    core.attach(session, "w", size=1 << 30)
    rest(core)
    turns: list[int] = []
    while len(turns) < 5:
        for one in (session, *readers):
            if one.waiting:
                taken = core.dispatcher.take(one, 1 << 20)
                core.dispatcher.sent(one, taken.cost_bytes)
                some = rest(core)
                turns += [some] * (one is session)
    assert max(turns) < 20
