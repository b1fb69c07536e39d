"""Pulls over much that is gone: one answer tells a bounded number of gaps, and the next pull goes on."""

from __future__ import annotations

import pytest

from shoal_contract.chunk import encode_chunk
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import filling, pulling
from shoal_slice_node.core.dispatch.pulling import PullAnswer
from shoal_slice_node.core.limits import PARCEL_BYTES_MAX
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.turns import Source, finish

from .core_driver import CoreDriver, bind, configure, declare, publish

MESSAGES = 3_000
LAST_3 = KeyOptions(capacity_messages=3, policy="drop_oldest")


def test_a_pull_tells_a_bounded_number_of_gaps_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "PULL_GAPS_BYTES_MAX", 10 * PARCEL_BYTES_MAX)
    monkeypatch.setattr(pulling, "PULL_ROWS_PER_STEP", 4)
    core = CoreDriver()
    keys = [f"k{number}" for number in range(35)]
    core.change(declare("q"), *[configure(key, LAST_3) for key in keys], bind("q", *keys))
    for number in range(5):
        core.change(*[publish(key, b"%d" % number) for key in keys])
    session = core.session()
    taken: list[int] = []
    found: list[bytes] = []
    while not taken or taken[-1]:
        found += [one.key for one in core.pull(session, "q", 1_000)]
        taken.append(len(core.gaps) - sum(taken))
        assert taken[-1] <= 10
        core.check_served()
    assert sum(taken) == 35 == len({gap.key for gap in core.gaps}), "each gap is told once"
    assert len(found) == 35 * 3 and len(taken) >= 4


def test_a_pull_over_many_expired_stretches_tells_a_bounded_number_of_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "PULL_GAPS_BYTES_MAX", 10 * PARCEL_BYTES_MAX)
    monkeypatch.setattr(filling, "EXPIRED_PER_GAP_MAX", 1)
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"stays"))
    for _ in range(100):
        core.change(wire.Step(publishes=wire.Publishes(keys=[b"k"], chunks=[encode_chunk([b"x"])], ttl_ms=1)))
    core.change(publish("k", b"last"))
    core.now_ms += 1_000
    core.dispatcher.registry.tell_time(core.wall_ms)
    session = core.session()
    bodies: list[int] = []
    for _ in range(12):
        before = len(core.gaps)
        bodies += [one.low for one in core.pull(session, "q", 10)]
        assert len(core.gaps) - before <= 10
    assert bodies == [1, 102]
    assert core.gaps[0].first == 2 and core.gaps[-1].to == 102


@pytest.mark.parametrize("steps", [0, 1, 2, 100])
def test_what_a_pull_took_whose_session_ended_meanwhile_was_delivered_to_nobody(
    steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was not made, or had not left. It counted as delivered, up to the dead-letter key, and its gap as
    told."""
    monkeypatch.setattr(pulling, "PULL_ROWS_PER_STEP", 4)
    core = CoreDriver()
    jobs = declare("q")
    jobs.declares.options.CopyFrom(QueueOptions(max_deliveries=1, dead_letter="lost").to_wire())
    last_12 = KeyOptions(capacity_messages=12, policy="drop_oldest")
    core.change(declare("dead"), bind("dead", "lost"), jobs, configure("k", last_12), bind("q", "k"))
    for number in range(20):
        core.change(publish("k", b"%d" % number))
    session = core.session()
    source, answers = Source(b"c", 1), []
    pull = requests.pull(core.node, session, wire.Pull(queue=b"q", messages_max=100), 0, 60_000, PullAnswer())
    core.node.add_work(source, pull.whole(), lambda answer, error: answers.append(answer))
    while steps and not answers:
        core.node.turns.step()
        steps -= 1
    assert bool(answers) == (steps > 0)
    core.node.close_session(session, source)
    core.maintain()
    other = core.session()
    core.attach(other, "q")
    assert len(core.take(other)) == 12
    assert [(gap.first, gap.to) for gap in core.gaps] == [(1, 9)]
    assert core.node.state.counters.deliveries == 12
    dead = core.session()
    core.attach(dead, "dead")
    assert core.take(dead) == []


def test_a_lease_that_ends_before_the_answer_left_counts_no_delivery_and_tells_no_gap() -> None:
    """The client did not read its answers."""
    core = CoreDriver()
    jobs = declare("q")
    jobs.declares.options.CopyFrom(QueueOptions(max_deliveries=1, dead_letter="lost").to_wire())
    core.change(declare("dead"), bind("dead", "lost"), jobs, configure("k", LAST_3), bind("q", "k"))
    for number in range(5):
        core.change(publish("k", b"%d" % number))
    session, answer = core.session(), PullAnswer()
    finish(requests.pull(core.node, session, wire.Pull(queue=b"q", messages_max=9), 1_000, 60_000, answer).whole())
    core.now_ms += 2_000
    core.end_leases()
    answer.left()
    core.maintain()
    other = core.session()
    core.attach(other, "q")
    assert [body for _, _, body in core.take(other)] == [b"2", b"3", b"4"]
    assert [(gap.first, gap.to) for gap in core.gaps] == [(1, 3)]
    dead = core.session()
    core.attach(dead, "dead")
    assert core.take(dead) == []


def test_the_gaps_of_a_pull_are_noted_in_turns() -> None:
    """A pull with 75 gaps that spanned 2,000 stretches each was one step of 0.4 s."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", *[b"x"] * MESSAGES))
    first = core.session()
    core.attach(first, "q", messages=MESSAGES)
    core.take(first)
    for offset in range(2, MESSAGES + 1, 2):
        core.ack(first, "k", offset, offset + 1)
    core.dispatcher.close(first)
    core.settle()
    core.change(configure("k", KeyOptions(capacity_messages=1, policy="drop_oldest")), publish("k", b"last"))
    session, answer = core.session(), PullAnswer()
    finish(requests.pull(core.node, session, wire.Pull(queue=b"q", messages_max=9_999), 0, 60_000, answer).whole())
    had = session.owed
    assert had > MESSAGES // 2
    answer.left()
    assert session.owed == had
    core.settle()
    assert session.owed == 1 and session.pullers
    core.check()


def test_a_puller_that_ends_twice_does_not_take_its_successor_with_it() -> None:
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"1"), publish("k", b"2"))
    session = core.session()
    core.pull(session, "q", 1)
    (feed,) = core.dispatcher.feeds.values()
    (first,) = session.pullers.values()
    core.dispatcher.registry.forget_puller(first)
    core.pull(session, "q", 1)
    (second,) = session.pullers.values()
    assert second is not first
    core.dispatcher.registry.forget_puller(first)
    assert list(feed.pullers.values()) == [second] == list(session.pullers.values())
