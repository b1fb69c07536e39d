"""Three nodes in one thread, without a loop: one leads and two apply its records, then another one leads."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from shoal_contract.errors import ShoalError, Unavailable
from shoal_contract.journal_record import Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change, encode_ownership
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Source, Work

from .core_driver import PARTITIONS, CoreDriver, bind, bodies_of, declare, publish, purge, raises
from .determinism_steps import QUEUES, contents, step
from .memory_base import MemoryBase

BATCH = 3


class Slice:
    """`leader` is one of three; the others have its records up to where each was told."""

    def __init__(self) -> None:
        self.tables: list[Tables] = [MemoryTables() for _ in range(3)]
        self.replicas = [Replica(tables) for tables in self.tables]
        self.journal: list[Record] = []
        self.epoch = 0
        self.now_ms = 1_000
        self.leading = -1
        self.lead(0)

    def lead(self, number: int) -> None:
        """Takes over with all that is in the journal. The one before it follows, wherever it was in its work."""
        if self.epoch:
            self.replicas[self.leading] = Replica.after(self.leader, Unavailable("it leads no longer"))
        self.leading = -1
        self.follow()
        self.epoch += 1
        self.leading = number
        self.leader: Node = self.replicas[number].lead(self.epoch, self.now_ms)

    def follow(self) -> None:
        """All that do not lead apply what they have not."""
        for number, replica in enumerate(self.replicas):
            if number != self.leading:
                for record in self.journal[replica.state.lsn :]:
                    replica.apply(record)

    def change(self, *steps: wire.Step, failed: Callable[[ShoalError], None] = raises) -> None:
        data = wire.Change(steps=steps).SerializeToString()
        payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), data)
        self.leader.commit.submit(Item(Kind.CHANGE, payload, lambda _: None, failed, operations=len(steps)))

    def work(self) -> None:
        """The leader writes and applies all that is asked, a little of it at a time, and serves."""
        commit = self.leader.commit
        while commit or commit.to_apply or self.leader.has_turns:
            batch = commit.gather(self.now_ms, BATCH)
            self.journal += [record for _, record in batch.entries if record is not None]
            commit.written()
            while commit.to_apply:
                commit.step()
            self.leader.turn()

    def work_in_part(self, applied: int) -> None:
        """The leader writes what is asked and applies so many records of it, and a step of the next."""
        commit = self.leader.commit
        batch = commit.gather(self.now_ms)
        self.journal += [record for _, record in batch.entries if record is not None]
        commit.written()
        while commit.to_apply and commit.applied_lsn < batch.first_lsn - 1 + applied:
            commit.step()
        if commit.to_apply:
            commit.step()


def consume(leader: Node, random: Random) -> None:
    session = leader.new_session(1 << 20)
    for handle, queue in enumerate(QUEUES, 1):
        leader.dispatcher.attach(session, queue.encode(), handle, 100, 1 << 20)
    while leader.turn() or session.waiting:
        taken = leader.dispatcher.take(session, 1 << 20)
        leader.dispatcher.sent(session, taken.cost_bytes)
        for delivery in taken.deliveries:
            assert bodies_of(delivery)
            row = leader.state.tables.key.get(leader.state.full_name(delivery.key))
            assert row is not None
            for handle in delivery.handles:
                if random.random() < 0.8:
                    leader.dispatcher.ack(session.attachments[handle], row[ID], delivery.low, delivery.to)
    leader.dispatcher.close(session)


def test_a_leader_that_loses_its_role_in_the_middle_of_its_work_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it wrote and did not apply, it applies as a follower; what it was asked fails, once; consumers are gone."""
    monkeypatch.setattr("shoal_slice_node.core.node.commit.APPLIED_WHOLE_MAX", 1)
    random = Random(11)
    of_three = Slice()
    of_three.leader.commit.submit(
        Item(Kind.OWNERSHIP, encode_ownership(1, b"\x01" * PARTITIONS), lambda _: None, raises)
    )
    of_three.work()
    failed: list[ShoalError] = []
    for turn in range(30):
        for _ in range(20):
            of_three.change(*(step(random) for _ in range(random.randint(1, 4))))
        of_three.work()
        before = of_three.leader
        session = before.new_session(1 << 20)
        for handle, queue in enumerate(QUEUES, 1):
            before.dispatcher.attach(session, queue.encode(), handle, 100, 1 << 20)
        for _ in range(8):
            of_three.change(*(step(random) for _ in range(3)), failed=failed.append)
        of_three.work_in_part(random.randrange(7))
        asked = before.commit.to_apply
        failed.clear()
        of_three.lead(turn % 3)
        assert len(failed) == asked > 0
        of_three.change(step(random))
        of_three.work()
        of_three.follow()
        assert contents(of_three.tables[0]) == contents(of_three.tables[1]) == contents(of_three.tables[2])
        before.commit.submit(Item(Kind.CHANGE, b"", lambda _: None, failed.append))
        assert len(failed) == asked + 1, "a request that comes too late fails, too"


def test_leaders_take_turns_and_all_three_have_the_same_tables() -> None:
    random = Random(7)
    of_three = Slice()
    payload = encode_ownership(1, b"\x01" * PARTITIONS)
    of_three.leader.commit.submit(Item(Kind.OWNERSHIP, payload, lambda _: None, raises))
    for turn in range(9):
        for _ in range(40):
            of_three.change(*(step(random) for _ in range(random.randint(1, 4))))
        of_three.work()
        consume(of_three.leader, random)
        for _ in range(5):
            of_three.now_ms += 1_000
            of_three.leader.tick(of_three.now_ms, of_three.now_ms)
            of_three.work()
        of_three.follow()
        assert contents(of_three.tables[0]) == contents(of_three.tables[1]) == contents(of_three.tables[2])
        assert not list(check_tables(of_three.tables[turn % 3]))
        of_three.lead(random.randrange(3))
    assert of_three.leader.commit.committed_lsn == len(of_three.journal) > 380
    assert {record.epoch for record in of_three.journal} >= set(range(1, 9))


def test_what_a_leader_would_have_trimmed_it_trims_when_it_leads_again() -> None:
    """A log that everything had passed, and that no checkpoint had, stayed: a walk over the checkpoint finds only what
    is in it."""
    core = CoreDriver(Delta(MemoryBase()))
    core.change(declare("q"), bind("q", "k"), publish("k", b"one", b"two"))
    session = core.session()
    core.attach(session, "q")
    core.pump()
    assert len(core.take(session)) == 2
    core.ack(session, "k", 1, 3)
    core.flush()
    told: list[object] = []
    core.node.acks.then(told.append)
    core.node.add_work(Source("c", "o"), iter_forever(), lambda result, error: told.append(error))
    gone = Unavailable("it leads no longer")
    core.node = Replica.after(core.node, gone).lead(2, core.now_ms)
    assert told == [gone, gone], "calls that wait for acks or reads fail"
    core.dispatcher, core.puller, core.trimmer = core.node.dispatcher, core.node.puller, core.node.trimmer
    core.settle()
    assert core.state.kept.messages == 0


def test_a_replica_that_was_a_leader_watches_nothing() -> None:
    """Sessions and what they consume went with the lead: nothing is to be collected for them."""
    core = CoreDriver()
    core.change(declare("q"), bind("q", "k"))
    core.attach(core.session(), "q")
    core.pump()
    replica = Replica.after(core.node, Unavailable("it leads no longer"))
    payload = encode_change(ChangeHead(NO_PRODUCER, 0, 0), wire.Change(steps=[publish("k", b"a")]).SerializeToString())
    record = Record(Kind.CHANGE, 0, replica.state.lsn + 1, 2, core.now_ms, payload)
    assert replica.apply(record).events == []


def iter_forever() -> Work[object]:
    while True:
        yield


def test_keys_of_a_replayed_tail_beyond_those_that_are_noted_are_found_by_a_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The walk after the start found those of them that the checkpoint had before; the logs of others stayed."""
    monkeypatch.setattr("shoal_slice_node.core.node.replica.ADVANCED_NOTED_MAX", 2)
    base = MemoryBase()
    leader = CoreDriver(Delta(base))
    keys = [f"k{number}" for number in range(5)]
    leader.change(declare("q"), bind("q", *keys), *(publish(key, b"x") for key in keys), purge("q"))
    delta = Delta(base)
    replica = Replica(delta)
    for record in leader.records:
        replica.apply(record)
    assert len(replica._advanced) == 2
    core = CoreDriver()
    core.node, core.state, core.tables = replica.lead(2, core.now_ms), replica.state, delta
    core.dispatcher, core.trimmer = core.node.dispatcher, core.node.trimmer
    has_lsn = 0
    core.node.key_walk.checkpoint_lsn = lambda: has_lsn
    core.settle()
    assert core.state.kept.messages == 3
    delta.freeze()
    base.checkpoint(delta)
    has_lsn = core.state.lsn
    core.settle()
    assert core.state.kept.messages == 0 and core.node.key_walk.done


def test_the_latest_keys_of_a_replayed_tail_are_noted_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """One key whose cursors advanced often pushed out all others."""
    monkeypatch.setattr("shoal_slice_node.core.node.replica.ADVANCED_NOTED_MAX", 2)
    replica = Replica(MemoryTables())
    for key_id in (b"a", b"b", b"b", b"b", b"c", b"b"):
        replica._note([key_id])
    assert list(replica._advanced) == [b"c", b"b"]
    replica._note([b"a"])
    assert list(replica._advanced) == [b"b", b"a"]
