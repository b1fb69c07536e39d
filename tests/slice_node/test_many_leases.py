"""Leases of many queues, which begin together: their times begin in steps."""

from __future__ import annotations

import pytest

from shoal_slice_node.core.dispatch import leases

from .core_driver import bind, declare, publish
from .nacks_driver import TIMEOUT_MS, NacksDriver
from .unsent_steps import declared


def test_the_time_of_many_leases_begins_over_several_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """80,000 began in one step of 65 ms. None ends early, and all end."""
    monkeypatch.setattr(leases, "LEASES_BEGUN_PER_TICK", 5)
    core = NacksDriver()
    core.change(declare("dead"), bind("dead", "dead"))
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


@pytest.mark.parametrize("keys", [("k0", "k1"), ("k1", "k0")])
def test_a_lease_waits_for_its_last_parcel_though_some_of_it_joined_an_earlier_one(keys: tuple[str, str]) -> None:
    """What was never sent counted as delivered, and went to the dead-letter key."""
    core = NacksDriver()
    core.change(declare("dead"), bind("dead", "dead"))
    declared(core, "first", max_deliveries=0)
    declared(core, "timed", ack_timeout_ms=TIMEOUT_MS, max_deliveries=1)
    core.change(bind("first", "k1"), bind("timed", *keys))
    session = core.session(1 << 20)
    core.attach(session, "first", 1)
    core.change(publish("k1", b"B"))
    core.pump()
    core.change(publish("k0", b"A"))
    core.attach(session, "timed", 2)
    core.pump()
    taken = core.dispatcher.take(session, 1)
    core.dispatcher.sent(session, taken.cost_bytes)
    assert [(one.key, list(one.handles)) for one in taken.deliveries] == [(b"k1", [1, 2])]
    core.wait(TIMEOUT_MS + 300)
    core.dispatcher.close(session)
    core.settle()
    late = core.session()
    core.attach(late, "timed")
    assert [key for key, _, _ in core.take(late)] == ["k0"], "it was not sent, and is not dead"


def test_a_lease_of_which_nothing_is_out_any_more_keeps_no_stream() -> None:
    """Of pulls that were acked the clock keeps leases of an hour, and these kept all done ranges of their bindings."""
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k", "l"), publish("k", b"x"), publish("l", b"y"))
    session = core.session()
    assert len(core.pull(session, "q", 10, lease_ms=3_600_000)) == 2
    (puller,) = session.pullers.values()
    feed, clock = puller.feed, core.dispatcher.registry.leases
    keys = list(feed.streams)
    core.dispatcher.ack(puller, keys[0], 1, 2)
    ((_, _, lease),) = clock._heap
    assert len(lease.streams) == 2
    core.dispatcher.ack(puller, keys[1], 1, 2)
    core.flush()
    core.pump()
    assert not core.dispatcher.feeds and len(clock) == 1 and lease.streams == []
