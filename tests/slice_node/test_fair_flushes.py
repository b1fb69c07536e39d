"""Flushes of acks take each session's in its turn, and a frame waits for the queues that it names, not for all."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import ACK_FEEDS_NAMED_MAX
from shoal_slice_node.core.node.named_feeds import named_feeds
from tests.fuzz.small_limits import patched

from .core_driver import CoreDriver, bind, declare, drop, publish

MANY = 30
FEW = {
    "ACK_COST_PER_FLUSH": 6,
    "ACK_COST_PER_RECORD": 2,
    "BIND_BACKS_NOTED_MAX": 8,
    "BIND_BACKS_FORGOTTEN_MAX": 8,
    "FAIR_QUANTUM": 2,
}
COST = 2
"""What a binding costs with one ack and no done range."""


class Acking:
    """A consumer that acks one message of each of MANY queues, and one that acks its only one afterwards."""

    def __init__(self) -> None:
        self.core = core = CoreDriver()
        names = [f"q{number}" for number in range(MANY)]
        core.change(declare("other", *names), *(bind(name, name) for name in (*names, "other")))
        core.change(*(publish(name, b"a", b"b") for name in (*names, "other")))
        self.many, self.one = core.session(), core.session()
        for handle, name in enumerate(names, 1):
            core.attach(self.many, name, handle)
        core.attach(self.one, "other")
        core.take(self.many)
        core.take(self.one)
        for handle, name in enumerate(names, 1):
            core.dispatcher.ack(self.many.attachments[handle], self._key_id(name), 1, 2)
        core.ack(self.one, "other", 1, 2)
        self.told: list[str] = []

    def _key_id(self, name: str) -> bytes:
        return next(iter(self.feed(name).streams))

    def feed(self, name: str) -> Feed:
        queue_id = self.core.tables.queue_by_name.get(name.encode())
        assert queue_id is not None
        return self.core.dispatcher.feeds[queue_id]

    def then(self, text: str, *names: str) -> None:
        def tell(error: ShoalError | None) -> None:
            assert error is None
            self.told.append(text)

        self.core.node.acks.then(tell, [self.feed(name) for name in names] if names else None)

    def flush_until(self, done: Callable[[], bool]) -> int:
        """Returns how many records it took."""
        before = self.core.state.lsn
        commit = self.core.node.commit
        while not done():
            self.core.node.acks.flush()
            commit.gather(self.core.wall_ms, items_max=1)
            commit.written()
            while commit.to_apply:
                commit.step()
        return self.core.state.lsn - before


def test_acks_of_another_do_not_wait_for_those_of_many_queues() -> None:
    with patched(FEW):
        acking = Acking()
        acking.then("all")
        acking.then("many", "q0", f"q{MANY - 1}")
        acking.then("one", "other")
        records = acking.flush_until(lambda: bool(acking.told))
        assert acking.told == ["one"] and records <= 1 + FEW["ACK_COST_PER_FLUSH"] // COST
        acking.then("later", "other")
        acking.flush_until(lambda: len(acking.told) == 4)
        assert acking.told == ["one", "later", "all", "many"], "and what is left over is taken without a tick"
        assert not acking.core.dispatcher.acks.waiting and not acking.core.node.acks.under_way
        acking.core.check()


def test_a_flush_takes_few_acks_also_where_they_leave_gaps() -> None:
    """Each binding counted as one ack: flushes took 60,000."""
    queues, acks_each, cost_max = 20, 30, 200
    core, names = CoreDriver(), [f"q{number}" for number in range(queues)]
    core.change(declare(*names, "honest"), *(bind(name, "k") for name in names), bind("honest", "o"))
    core.change(publish("k", *[b"x"] * (2 * acks_each + 2)), publish("o", b"x"))
    session, honest = core.session(64 << 20), core.session()
    for handle, name in enumerate(names, 1):
        core.attach(session, name, handle)
    core.attach(honest, "honest")
    core.take(session)
    core.take(honest)
    for handle in range(1, queues + 1):
        for low in range(2, 2 * acks_each + 2, 2):
            core.ack(session, "k", low, low + 1, handle)
    core.ack(honest, "o", 1, 2)
    flushes: list[list[bytes]] = []
    acks = core.dispatcher.acks
    with patched({"ACK_COST_PER_FLUSH": cost_max}):
        while acks.waiting:
            acks.begin_flush()
            batch, lsn = core.take_acks()
            assert len(batch.acks) <= cost_max + acks_each
            core.apply_acks(batch, lsn)
            flushes.append([stream.feed.name for stream, _ in batch.sources])
    assert b"honest" in flushes[0] and len(flushes) <= 2 * queues * acks_each // cost_max
    core.check()


def test_what_was_not_written_is_waited_for_again() -> None:
    with patched(FEW):
        acking = Acking()
        acking.then("one", "other")
        acking.then("all")
        acks, commit = acking.core.node.acks, acking.core.node.commit
        for _ in range(3):
            while acks.flush():
                pass
            commit.gather(acking.core.wall_ms)
            commit.refused(ResourceExhausted("the disk is full", subject="disk"))
            assert not acking.told
        acking.flush_until(lambda: len(acking.told) == 2)
        assert acking.told == ["one", "all"] and not acking.core.dispatcher.acks.waiting
        acking.core.check()


def test_after_a_full_disk_a_frame_is_answered_once_its_own_acks_are_durable() -> None:
    """A frame of an earlier flush than the one that failed is no older than what the next flush leaves."""
    with patched({**FEW, "ACK_COST_PER_FLUSH": 1_000}):
        acking = Acking()
        acking.then("all")
        acks, commit, feed = acking.core.node.acks, acking.core.node.commit, acking.feed("other")
        durable: list[bool] = []

        def tell(error: ShoalError | None) -> None:
            assert error is None
            durable.append(all(stream.is_flushed for stream in feed.streams.values()))
            acking.told.append("one")

        acks.then(tell, [feed])
        while acks.flush():
            pass
        commit.gather(acking.core.wall_ms)
        commit.refused(ResourceExhausted("the disk is full", subject="disk"))
    with patched(FEW):
        acking.flush_until(lambda: len(acking.told) == 2)
        assert durable == [True] and not acking.core.dispatcher.acks.waiting
        acking.core.check()


def test_a_queue_that_is_dropped_meanwhile_keeps_nobody_waiting() -> None:
    with patched(FEW):
        acking = Acking()
        acking.then("dropped", f"q{MANY - 1}")
        acking.then("all")
        acking.core.node.acks.flush()
        acking.core.change(drop(f"q{MANY - 1}"))
        acking.flush_until(lambda: len(acking.told) == 2)
        assert not acking.core.dispatcher.acks.waiting
        acking.core.check()


def named(core: CoreDriver, session: Session, **columns: list[int] | list[bytes]) -> list[Feed] | None:
    return named_feeds(core.node, session, [wire.Ack(key=b"k", low=1, to=2, **columns)])  # type: ignore[arg-type]


def test_a_frame_waits_for_the_queues_that_it_names() -> None:
    acking = Acking()
    core, many = acking.core, acking.many
    assert named(core, many, handles=[1, 3]) == [acking.feed("q0"), acking.feed("q2")]
    assert named(core, many, queues=[b"q1", b"absent"]) == [acking.feed("q1")]
    assert named(core, many, handles=[1, MANY + 1]) is None, "who knows what an unknown handle was"
    assert named(core, many, handles=[1] * ACK_FEEDS_NAMED_MAX) == [acking.feed("q0")]
    assert named(core, many, handles=[1] * (ACK_FEEDS_NAMED_MAX + 1)) is None, "one ack with so many is not looked at"


def test_a_frame_of_many_queues_waits_for_all() -> None:
    core = CoreDriver()
    names = [f"q{number}" for number in range(ACK_FEEDS_NAMED_MAX + 1)]
    core.change(declare(*names))
    session = core.session()
    for handle, name in enumerate(names, 1):
        core.attach(session, name, handle)
    for found in (
        named(core, session, handles=[*range(1, len(names) + 1)]),
        named(core, session, queues=[name.encode() for name in names]),
    ):
        assert found is None
    few = named(core, session, handles=[*range(1, len(names) - 1)], queues=[b"q0"])
    assert few is not None and len(few) == ACK_FEEDS_NAMED_MAX - 1
    parts = [wire.Ack(key=b"k", low=1, to=2, handles=[handle]) for handle in range(1, len(names) + 1)]
    assert len(named_feeds(core.node, session, parts[1:]) or ()) == ACK_FEEDS_NAMED_MAX
    assert named_feeds(core.node, session, parts) is None


@pytest.mark.parametrize("cost", [1, 6, 1_000])
def test_all_acks_are_taken_whatever_a_flush_may_take(cost: int) -> None:
    with patched({**FEW, "ACK_COST_PER_FLUSH": cost}):
        acking = Acking()
        acking.core.flush()
        assert not acking.core.dispatcher.acks.waiting
        acking.core.check()
