"""Leases of many queues, which begin together: their times begin in steps."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import leases
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.pulling import PullAnswer, PullTerms
from shoal_slice_node.core.limits import LEASE_BYTES
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.turns import finish

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


def test_a_session_counts_the_leases_with_something_out() -> None:
    """Of an attached queue, one for what it is given in a tick; of pulls, one for each, also from many keys."""
    core = NacksDriver()
    core.timed("q")
    core.change(declare("p"), bind("q", "k"), bind("p", "k", "l", "m"))
    session = core.session()
    core.attach(session, "q")
    for _ in range(3):
        core.change(publish("k", b"x", b"y"), publish("l", b"x"), publish("m", b"x"))
        core.pump()
        core.wait(100)
    assert session.leases.out == 3
    core.pull(session, "p", 2, lease_ms=1000)
    core.pull(session, "p", 10, lease_ms=1000)
    assert session.leases.out == 5
    core.deliveries(session)
    core.ack(session, "k", 1, 4)
    assert session.leases.out == 4, "one has another message out"
    core.wait(1_100)
    assert session.leases.out == 2, "those of the pulls are over, from all keys"
    assert len(core.pull(session, "p", 100, lease_ms=1000)) >= 3
    core.dispatcher.close(session)
    core.pump()
    assert session.leases.out == 0


def test_a_lease_takes_no_more_than_what_is_charged() -> None:
    """It took 300 bytes, of which nothing was charged: a list for its one stream was a third of them."""
    core = NacksDriver()
    core.timed("q")
    core.change(bind("q", "k"), publish("k", b"x"))
    session = core.session()
    core.attach(session, "q")
    core.pump()
    attachment = session.attachments[1]
    (stream,) = attachment.feed.streams.values()
    clock, given = leases.LeaseClock(), 1_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(given):
            lease = leases.Lease(attachment, TIMEOUT_MS)
            lease.take(stream, 1)
            lease.begin(10_000 + number)
            clock.add(lease)
        del lease
        taken_bytes = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken_bytes < 1.25 * LEASE_BYTES * given, taken_bytes // given


def test_leases_begin_in_their_order_though_others_are_opened_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease never began while others were opened, as many with each tick as begin."""
    monkeypatch.setattr(leases, "LEASES_BEGUN_PER_TICK", 2)
    core = NacksDriver()
    names = [f"q{number}" for number in range(20)]
    declared(core, *names, ack_timeout_ms=TIMEOUT_MS)
    core.change(*[bind(name, f"k{number}") for number, name in enumerate(names)])
    session = core.session()
    for handle, name in enumerate(names, 1):
        core.attach(session, name, handle)
    opened, begun = [], []
    for some in (range(4), *(range(number, number + 2) for number in range(4, 20, 2)), range(0)):
        core.change(*[publish(f"k{one}", b"x") for one in some])
        core.pump()
        opened += [session.attachments[one + 1].lease for one in some]
        core.wait(100)
        begun.append([one is not None and bool(one.until_ms or one in session.leases._waiting) for one in opened])
    assert begun[0] == [True, True, False, False] and begun[1] == [True] * 4 + [False] * 2
    assert begun[-1] == [True] * 20


def test_a_lease_that_was_sent_begins_though_one_that_was_opened_before_it_waits() -> None:
    core = NacksDriver()
    declared(core, "first", "second", ack_timeout_ms=TIMEOUT_MS)
    core.change(bind("first", "k1", "k3"), bind("second", "k2"))
    session = core.session()
    core.attach(session, "first", 1)
    core.attach(session, "second", 2)
    for key in "k1", "k2", "k3":
        core.change(publish(key, b"x"))
        core.pump()
    first, second = (session.attachments[handle].lease for handle in (1, 2))
    assert first is not None and second is not None and first.parcel > second.parcel
    core.wait(100)
    for _ in range(2):
        core.dispatcher.sent(session, core.dispatcher.take(session, 1).cost_bytes)
    core.wait(100)
    assert list(session.leases._waiting) == [first], "the second has its time, as all of it was sent"


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
    assert len(list(lease.streams)) == 2
    core.dispatcher.ack(puller, keys[1], 1, 2)
    core.flush()
    core.pump()
    assert not core.dispatcher.feeds and len(clock) == 1 and not list(lease.streams)
    assert lease.ended


@pytest.mark.parametrize("door", ["session", "unary"])
def test_of_a_pull_whose_answer_never_left_its_lease_keeps_nothing(door: str) -> None:
    """What it took was kept for as long as the lease would have run: 780 KB of 3,200 messages, and 190 where it was the
    answer of a unary call. A node with a budget of 320 MiB grew to 400."""
    core = NacksDriver()
    keys = [f"k{number}" for number in range(500)]
    core.change(declare("q"), bind("q", *keys))
    core.change(*(publish(key, b"x") for key in keys))
    kept: list[int] = []
    for _ in range(3):
        session, answer = core.session(), PullAnswer()
        if door == "unary":
            core.dispatcher.share_among_calls(session)
        ask = wire.Pull(queue=b"q", lease_ms=3_600_000)
        found = finish(core.pumped(requests.pull(core.node, session, ask, 0, 3_600_000, answer).whole()))
        assert len(found.pulled.deliveries) == 500
        if door == "unary":
            answer.drop()
        else:
            core.dispatcher.close(session)
        del session, answer, found
        core.pump()
        gc.collect()
        kept.append(sum(type(one) is Attachment for one in gc.get_objects()))
    clock = core.dispatcher.registry.leases
    assert len(clock) == 3 and all(lease.ended for _, _, lease in clock._heap)
    assert kept == [kept[0]] * 3 and not core.dispatcher.feeds


def test_the_lease_of_a_pull_runs_from_when_all_is_taken() -> None:
    """It ran from the pull's first step: of a queue that took long to load, it was over before the answer left."""
    core = NacksDriver()
    declared(core, "jobs")
    core.change(bind("jobs", "k"), publish("k", b"x"))
    queue_id = core.tables.queue_by_name.get(b"jobs")
    assert queue_id is not None
    pulling = core.puller.pull(core.session(), queue_id, PullTerms(1, 0, TIMEOUT_MS), lambda: core.now_ms)
    next(pulling)
    core.wait(2 * TIMEOUT_MS)
    assert len(finish(core.pumped(pulling))) == 1
    core.wait(TIMEOUT_MS - 100)
    assert core.pull(core.session(), "jobs", 1) == []
    core.wait(200)
    assert len(core.pull(core.session(), "jobs", 1)) == 1
