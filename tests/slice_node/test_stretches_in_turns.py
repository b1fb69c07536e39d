"""Sessions, leases and queues that end with very many stretches out: these are taken back in bounded steps."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch import releases
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import DROPPED_WITH_BINDINGS_MAX, PUMP_TURN_HANDLES, RELEASED_AT_ONCE_MAX

from .core_driver import acks, bind, declare, drop, publish, purge
from .nacks_driver import TIMEOUT_MS, NacksDriver

QUEUES = [f"q-{number}" for number in range(12)]
EACH = 300
"""Stretches of each queue that are out: the session acked every second message."""


@pytest.fixture
def core() -> NacksDriver:
    core = NacksDriver()
    core.timed(*QUEUES)
    core.change(*[bind(queue, "k") for queue in QUEUES], publish("k", *[b""] * 2 * EACH))
    return core


def half_acked(core: NacksDriver) -> Session:
    session = core.session(window_bytes=1 << 30)
    for handle, queue in enumerate(QUEUES, 1):
        assert core.attach(session, queue, handle, messages=100_000)
    core.deliveries(session)
    for handle in range(1, len(QUEUES) + 1):
        for offset in range(2, 2 * EACH, 2):
            core.ack(session, "k", offset, offset + 1, handle)
    assert session.owed == EACH * len(QUEUES)
    return session


def steps(core: NacksDriver, session: Session, begin: Callable[[], object]) -> list[int]:
    """How many stretches each step takes back."""
    before, found = session.owed, []
    begin()
    found.append(before - session.owed)
    while core.dispatcher.has_work:
        before = session.owed
        core.dispatcher.turn()
        found.append(before - session.owed)
    return found


def test_the_end_of_a_session_takes_back_in_steps(core: NacksDriver) -> None:
    session = half_acked(core)
    found = steps(core, session, lambda: core.dispatcher.close(session))
    assert max(found) < PUMP_TURN_HANDLES + EACH and sum(found) == EACH * len(QUEUES)
    other = core.session(window_bytes=1 << 30)
    assert core.attach(other, QUEUES[0], messages=100_000) and len(core.deliveries(other))


def many_keys(core: NacksDriver, step: wire.Step) -> Session:
    """A session that acked every second message of each of many keys of the queue `q`."""
    keys = [f"k-{number}" for number in range(12)]
    core.change(step, bind("q", *keys), *[publish(key, *[b""] * 2 * EACH) for key in keys])
    session = core.session(window_bytes=1 << 30)
    assert core.attach(session, "q", messages=100_000)
    core.deliveries(session)
    core.maintain()
    for key in keys:
        for offset in range(2, 2 * EACH, 2):
            core.ack(session, key, offset, offset + 1)
    return session


def test_a_timeout_takes_back_in_steps() -> None:
    core = NacksDriver()
    core.timed("q")
    session = many_keys(core, declare("other"))
    core.now_ms += TIMEOUT_MS + 100
    session.close()  # It is given nothing again.
    found = steps(core, session, lambda: core.dispatcher.registry.timeouts.tick(core.now_ms))
    assert max(found) < PUMP_TURN_HANDLES + EACH and sum(found) == EACH * 12


def test_a_drop_takes_back_in_steps() -> None:
    """With so many others that their bindings end in the background."""
    core = NacksDriver()
    others = [f"other-{number}" for number in range(DROPPED_WITH_BINDINGS_MAX)]
    session = many_keys(core, declare("q", *others))
    found = steps(core, session, lambda: core.change(drop("q", *others)))
    assert max(found) < PUMP_TURN_HANDLES + EACH and sum(found) == EACH * 12
    core.settle()
    core.check()


def test_a_lease_does_not_wait_for_the_leases_of_another_session() -> None:
    core = NacksDriver()
    crowd = [f"crowd-{number}" for number in range(400)]
    core.timed(*crowd)
    core.change(declare("honest"), *[bind(queue, "k") for queue in crowd], bind("honest", "own"))
    core.change(publish("k", b""), publish("own", b"x"))
    session = core.session(window_bytes=1 << 30)
    for handle, queue in enumerate(crowd, 1):
        assert core.attach(session, queue, handle)
    core.deliveries(session)
    core.maintain()
    puller = core.session()
    assert len(core.pull(puller, "honest", 1, lease_ms=TIMEOUT_MS + 50)) == 1
    core.now_ms += TIMEOUT_MS + 100
    core.dispatcher.registry.timeouts.tick(core.now_ms)
    before = session.owed
    assert before == len(crowd)
    core.dispatcher.registry.timeouts.turn(PUMP_TURN_HANDLES)
    assert puller.owed == 0 and before - 50 <= session.owed < before
    core.settle()
    assert len(core.pull(puller, "honest", 1)) == 1


@pytest.mark.parametrize("kind", ["acks", "purge", "unbind"])
def test_what_a_record_ends_is_released_in_steps(core: NacksDriver, kind: str) -> None:
    """A change of 70 names was one step of 280,000 stretches: a second of the processor."""
    session = half_acked(core)
    ended = {
        "acks": acks(*[(queue, "k", 1, 2 * EACH + 1) for queue in QUEUES]),
        "purge": purge(*QUEUES),
        "unbind": wire.Step(
            unbinds=wire.Unbinds(
                queues=[queue.encode() for queue in QUEUES],
                key_counts=[1] * len(QUEUES),
                keys=[b"k"] * len(QUEUES),
                discard=True,
            )
        ),
    }
    found = steps(core, session, lambda: core.change(ended[kind]))
    assert max(found) <= max(PUMP_TURN_HANDLES, RELEASED_AT_ONCE_MAX) and sum(found) == EACH * len(QUEUES)
    assert not any((one.messages, one.body_bytes) != (0, 0) for one in session.attachments.values())
    core.settle()
    core.check()
    core.check_served()


def test_a_window_opens_when_what_filled_it_is_released(core: NacksDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it counts as out, and no further message is given."""
    monkeypatch.setattr(releases, "RELEASED_AT_ONCE_MAX", 0)
    session = core.session()
    assert core.attach(session, "q-0", messages=100)
    assert len(core.take(session)) == 100
    core.change(acks(("q-0", "k", 1, 61)))
    attachment = session.attachments[1]
    assert (attachment.messages, session.owed) == (100, 2) and not session.waiting
    assert [(one.first, one.to) for one in next(iter(attachment.feed.streams.values())).out] == [(61, 101)]


def test_part_of_a_stretch_is_released_with_its_share_of_bytes(core: NacksDriver) -> None:
    core.change(declare("other"), bind("other", "o"), publish("o", *[b"12345"] * 30))
    session = core.session()
    assert core.attach(session, "other", messages=100)
    assert len(core.take(session)) == 30
    core.change(acks(("other", "o", 11, 21)))
    attachment = session.attachments[1]
    assert (attachment.messages, attachment.body_bytes, session.owed) == (20, 100, 2)
    core.change(acks(("other", "o", 6, 11), ("other", "o", 21, 31)))
    assert (attachment.messages, attachment.body_bytes, session.owed) == (5, 25, 1)
    core.check_served()


@pytest.mark.parametrize("at_once", [0, RELEASED_AT_ONCE_MAX])
def test_a_pull_ends_with_what_a_record_ends(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pulls with something left stay, and are not looked at."""
    monkeypatch.setattr(releases, "RELEASED_AT_ONCE_MAX", at_once)
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", *[b""] * 6))
    sessions = [core.session() for _ in range(3)]
    assert [len(core.pull(session, "q", 2, lease_ms=9_000)) for session in sessions] == [1, 1, 1]
    core.change(acks(("q", "k", 1, 4)))
    core.pump()
    assert [len(session.pullers) for session in sessions] == [0, 1, 1]
    assert [session.owed for session in sessions] == [0, 1, 1]
    core.change(purge("q"))
    core.pump()
    assert not any(session.pullers or session.owed for session in sessions) and not core.dispatcher.feeds


@pytest.mark.parametrize("kind", ["acks", "purge"])
def test_what_rests_and_is_ended_by_a_record_is_released_in_steps(core: NacksDriver, kind: str) -> None:
    session = half_acked(core)
    for handle in range(1, len(QUEUES) + 1):
        core.nack(session, 1, 2 * EACH + 1, delay_ms=60_000, handle=handle)
    rests, found = core.dispatcher.shares.rests, []
    assert (rests.stretches, session.owed) == (EACH * len(QUEUES), 0)
    if kind == "acks":  # The first message of each queue rests on.
        core.change(acks(*[(queue, "k", 2, 2 * EACH + 1) for queue in QUEUES]))
    else:
        core.change(purge(*QUEUES))
    found = [EACH * len(QUEUES) - rests.stretches]
    while core.dispatcher.has_work:
        before = rests.stretches
        core.dispatcher.turn()
        found.append(before - rests.stretches)
    assert max(found) <= max(PUMP_TURN_HANDLES, RELEASED_AT_ONCE_MAX)
    assert rests.stretches == rests.queues == (len(QUEUES) if kind == "acks" else 0)
    core.wait(60_000)
    core.settle()
    core.check()
    core.check_served()
    given = sum(len(delivery.handles) for delivery in core.deliveries(session))
    assert given == (len(QUEUES) if kind == "acks" else 0)


def test_what_is_released_late_ends_no_later_pull_of_the_same_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "RELEASED_AT_ONCE_MAX", 0)
    core = NacksDriver()
    core.change(declare("q"), bind("q", "k"), publish("k", b"1"), publish("k", b"2"))
    session = core.session()
    core.pull(session, "q", 1)
    (before,) = session.pullers.values()
    core.change(acks(("q", "k", 1, 2)))
    core.dispatcher.registry.forget_puller(before)
    core.pull(session, "q", 1)
    (later,) = session.pullers.values()
    core.pump()
    assert later is not before and not before.messages
    assert list(later.feed.pullers.values()) == list(session.pullers.values()) == [later]
