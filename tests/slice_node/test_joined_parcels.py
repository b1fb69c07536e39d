"""Parcels that wait in a session: one takes a message to a queue once, also where a binding is made anew meanwhile."""

from __future__ import annotations

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.node import settling
from shoal_slice_node.core.turns import Source
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, declare, publish, purge, unbind


@pytest.mark.parametrize("discard", [True, False])
def test_what_a_new_binding_brings_joins_no_parcel_that_waits_with_what_the_one_before_had(discard: bool) -> None:
    """The parcel named the handle twice: what was given back unsent went out all the same, after another consumer had
    acked it."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), declare("still"), bind("still", "k"))
    session = core.session()
    core.attach(session, "q")
    core.change(publish("k", b"one"))
    core.pump()
    if not discard:
        core.change(purge("q"))
    core.change(unbind("q", "k", discard=discard))
    core.change(bind("q", "k", start=wire.START_EARLIEST))
    core.pump()
    assert [parcel.handles for parcel in session.waiting.values()] == [[1], [1]]
    core.check()


@pytest.mark.parametrize("acked_by", ["name", "transaction"])
def test_what_others_acked_while_it_waited_and_a_new_bind_brings_again_joins_no_parcel_that_waits(
    acked_by: str,
) -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"1", b"2"))
    core.change(publish("k", b"3"))
    session, shared = core.session(), core.session()
    core.attach(session, "q", messages=2)
    core.pump()
    if acked_by == "name":
        core.dispatcher.share_among_calls(shared)
        ack = wire.Ack(key=b"k", low=1, to=3, queues=[b"q"])
        settling.take_acks(core.node, Source("calls", 0), shared, [ack], lambda _: None, True)
        while core.node.turns:
            core.node.turns.step()
    else:
        core.change(wire.Step(acks=wire.TransactionAcks(queues=[b"q"], keys=[b"k"], lows=[1], tos=[3])))
    core.flush()
    core.change(unbind("q", "k"), bind("q", "k", start=wire.START_EARLIEST))
    core.pump()
    assert [(one.low, one.to, one.handles) for one in session.waiting.values()] == [(1, 3, [1]), (1, 3, [1])]


def test_a_binding_made_anew_while_its_queue_is_loaded_joins_no_parcel_that_waits() -> None:
    with patched({"INLINE_STREAMS_MAX": 1, "PUMP_TURN_BINDINGS": 1}):
        core, keys = CoreDriver(), [f"k{number}" for number in range(400)]
        core.change(declare("q"), bind("q", *keys))
        core.change(*(publish(key, b"1", b"2") for key in keys))
        session = core.session(1 << 20)
        core.attach(session, "q")
        while not session.waiting:
            core.dispatcher.turn()
        key = next(iter(session.waiting.values())).key
        core.change(unbind("q", key.decode(), discard=True))
        core.change(bind("q", key.decode(), start=wire.START_EARLIEST))
        (feed,) = core.dispatcher.feeds.values()
        assert feed.loading
        core.pump()
        assert [one.handles for one in session.waiting.values() if one.key == key] == [[1], [1]]
