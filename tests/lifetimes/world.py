"""Drives the real core, and tells the model what was done and what came."""

from __future__ import annotations

from collections import defaultdict
from random import Random

from shoal_contract.errors import ResourceExhausted
from shoal_contract.options import KeyOptions, QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.rows.farewell_row import queue_key
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.turns import Source, finish
from tests.lifetimes.model import Binding, Farewell, Model, Queue
from tests.slice_node.core_driver import CoreDriver, bind, bodies_of, configure, farewell, publish, raises
from tests.slice_node.memory_base import MemoryBase

NAMES = ("p", "q", "r")
KEYS = {
    "plain": KeyOptions(),
    "few": KeyOptions(capacity_messages=5, policy="drop_oldest"),
    "full": KeyOptions(capacity_messages=6),
}
HALL, EAR = "hall", "ear"
"""The key of farewells, and the queue that hears them."""
TICK_MS = 500


class Driver(CoreDriver):
    """Keeps all in its journal: a crash replays it from the start."""

    def __init__(self) -> None:
        super().__init__(Delta(MemoryBase()))
        self.epoch = 1

    def crash(self) -> None:
        """Replays all records. Raises AssertionError if other tables come of it."""
        replica = Replica(Delta(MemoryBase()))
        for record in self.records:
            replica.apply(record)
        assert list(finish(checksums(replica.state.tables))) == list(finish(checksums(self.tables))), "a replay differs"
        self.epoch += 1
        self.engine, self.state, self.tables = replica._engine, replica.state, replica.state.tables
        self.node = replica.lead(self.epoch, self.now_ms)
        self.dispatcher, self.puller, self.trimmer = self.node.dispatcher, self.node.puller, self.node.trimmer


class World:
    """Keeps a run. `has`: what each session holds, by queue and key. `gaps`: what each was told of."""

    def __init__(self) -> None:
        self.core = Driver()
        self.model = Model()
        self.log: list[str] = []
        self.bodies = 0
        self.ticked_ms = 0
        self.sessions: list[Session] = []
        self.has: dict[int, dict[tuple[str, str], set[int]]] = {}
        self.gaps: dict[int, set[tuple[str, str, int]]] = {}
        self.core.change(*(configure(key, options) for key, options in KEYS.items()))
        self.core.declare([EAR])
        self.core.change(bind(EAR, HALL))
        self.open()

    def open(self) -> None:
        session = self.core.session()
        self.sessions.append(session)
        self.has[session.number], self.gaps[session.number] = defaultdict(set), set()

    def is_consumed(self, name: str) -> bool:
        return self.consumers(name) > 0

    def consumers(self, name: str) -> int:
        """Returns how many sessions are attached, by what they themselves have."""
        return sum(NAMES.index(name) + 1 in session.attachments for session in self.sessions)

    def look(self) -> None:
        """Notes which queues are consumed now. Checks that one session alone has an exclusive one."""
        for name, queue in self.model.queues.items():
            if consumers := self.consumers(name):
                queue.idle_ms = self.core.now_ms
                assert consumers == 1 or not queue.is_exclusive, f"{consumers} sessions have {name}, which is exclusive"

    def new_body(self) -> bytes:
        self.bodies += 1
        return b"%06d" % self.bodies

    def forget(self, name: str) -> None:
        """Forgets what sessions hold of a queue's life, or of one attachment."""
        for number, held in self.has.items():
            for place in [place for place in held if place[0] == name]:
                del held[place]
            self.gaps[number] = {told for told in self.gaps[number] if told[0] != name}

    # Changes.

    def declare(self, name: str, options: QueueOptions, keys: list[str]) -> None:
        if name in self.model.queues:
            return
        self.core.change(wire.Step(declares=wire.Declares(queues=[name.encode()], options=options.to_wire())))
        self.core.change(bind(name, *keys))
        bindings = {key: Binding() for key in keys}
        self.model.queues[name] = Queue(
            options.expires_after_s, self.core.now_ms, bindings, options.exclusive != "none"
        )
        self.forget(name)

    def publish(self, key: str, count: int, ttl_ms: int) -> None:
        options = KEYS[key]
        drops = options.policy == "drop_oldest"
        bodies = [self.new_body() for _ in range(1 if drops else count)]
        now_ms = self.core.wall_ms
        outcome = self.core.change(publish(key, *bodies, ttl_ms=ttl_ms)).steps[0]
        if outcome.refusals:
            assert options.capacity_messages and not drops, f"a publish to {key} was refused"
            self.core.flush()
            self.tick(0)  # What was acked, or has expired, leaves the log.
            outcome = self.core.change(publish(key, *bodies, ttl_ms=ttl_ms)).steps[0]
        if outcome.refusals:
            kept = self.model.kept_max(key)
            assert kept + len(bodies) > options.capacity_messages, f"{key} refused, and has {kept} messages at most"
            return
        if not outcome.offsets[0]:
            assert not any(key in queue.bindings for queue in self.model.queues.values()), f"{key} went nowhere"
            return
        expires_ms = now_ms + ttl_ms if ttl_ms else 0
        self.model.published(key, outcome.offsets[0], bodies, expires_ms, options.capacity_messages, drops)
        if options.capacity_messages and not drops:
            first = outcome.offsets[0]
            owed = {o for queue in self.model.queues.values() for o in queue.bindings.get(key, Binding()).owed}
            owed = {o for o in owed if not self.model.is_over(key, o, now_ms)}
            kept = first + len(bodies) - min(owed, default=first)
            assert kept <= options.capacity_messages, f"{key} has {kept} messages, more than its capacity"

    def set_farewell(self, name: str, after_s: int) -> None:
        body = self.new_body()
        self.core.change(farewell(name, key=HALL, body=body, after_s=after_s))
        self.model.queues[name].farewell = Farewell(body, after_s, self.core.now_ms)

    def take_back(self, name: str) -> None:
        self.core.change(farewell(name))
        self.model.queues[name].farewell = None

    # Sessions.

    def attach(self, session: Session, name: str) -> None:
        self.detach(session, name)
        before = [other for other in self.sessions if NAMES.index(name) + 1 in other.attachments]
        request = wire.Attach(
            queues=[name.encode()], handles=[NAMES.index(name) + 1], window_messages=100, window_bytes=1 << 20
        )
        finish(requests.attach(self.core.node, session, request)())
        assert NAMES.index(name) + 1 in session.attachments, f"{name} was not attached"
        if any(NAMES.index(name) + 1 not in other.attachments for other in before):
            self.forget(name)
        self.look()

    def detach(self, session: Session, name: str) -> None:
        self.look()
        self.core.dispatcher.detach(session, NAMES.index(name) + 1)
        for place in [place for place in self.has[session.number] if place[0] == name]:
            del self.has[session.number][place]
        self.gaps[session.number] = {told for told in self.gaps[session.number] if told[0] != name}

    def close(self, session: Session) -> None:
        self.look()
        self.sessions.remove(session)
        self.core.node.close_session(session, Source("lifetimes", session.number))

    def take(self, session: Session) -> None:
        """Lets a session read all that waits for it."""
        self.core.gaps = []
        deliveries = self.core.deliveries(session)
        for told in self.core.gaps:
            for handle in told.handles:
                name, key = NAMES[handle - 1], told.key.decode()
                for offset in range(told.first, told.to):
                    place = name, key, offset
                    assert place not in self.gaps[session.number], f"a gap was told twice: {place}"
                    self.gaps[session.number].add(place)
                self.model.gap(name, key, told.first, told.to, self.core.wall_ms)
        for delivery in deliveries:
            for key, offset, body in bodies_of(delivery):
                for handle in delivery.handles:
                    self.model.delivered(NAMES[handle - 1], key, offset, body, self.ticked_ms)
                    self.has[session.number][NAMES[handle - 1], key].add(offset)

    def ack(self, session: Session, random: Random) -> None:
        """Acks some of what a session holds."""
        for (name, key), held in self.has[session.number].items():
            for offset in sorted(held):
                if random.random() < 0.6:
                    held.discard(offset)
                    self.core.ack(session, key, offset, offset + 1, NAMES.index(name) + 1)
                    self.model.acked(name, key, offset)

    # Time.

    def tick(self, ms: int = TICK_MS) -> None:
        self.core.now_ms += ms
        self.look()
        self.core.maintain()
        self.checked()

    def late_farewell(self, name: str, after_s: int, is_written: bool) -> None:
        """Sets a farewell anew while the leader decides to say the one before: the new one stays. `is_written`: the
        leader decides while the change is written; else the record of what it decided is in one batch with it."""
        core, queue = self.core, self.model.queues[name]
        body = self.new_body()
        self.core.now_ms += TICK_MS
        self.look()
        data = wire.Change(steps=[farewell(name, key=HALL, body=body, after_s=after_s)]).SerializeToString()
        item = Item(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), data), lambda _: None, raises)
        core.node.commit.submit(item)
        old = queue.farewell
        if old is not None and core.now_ms - max(queue.idle_ms, old.set_ms) >= 1000 * old.after_s:
            self.model.may_be_said.add(old.body)
        queue.farewell = Farewell(body, after_s, core.now_ms)
        if is_written:
            batch = core.node.commit.gather(core.wall_ms)
            core.records += [record for _, record in batch.entries if record is not None]
        core.node.tick(core.now_ms, core.wall_ms)
        while core.node.turn():
            pass
        if is_written:
            core.node.commit.written()
            while core.node.commit.to_apply:
                core.node.commit.step()
        core.commit()
        while core.node.turn() or core.node.commit:
            core.commit()
        self.checked()

    def late_read(self, session: Session) -> None:
        """Lets a session read after the clock told that messages expired, and before a record gives them up."""
        self.core.now_ms += TICK_MS
        self.look()
        self.core.node.tick(self.core.now_ms, self.core.wall_ms)
        self.ticked_ms = self.core.wall_ms
        self.take(session)
        self.core.maintain()
        self.checked()

    def lost_tick(self) -> None:
        """Ticks on a full disk: what the node decides is not written, and must be decided again."""
        self.core.now_ms += TICK_MS
        self.look()
        self.core.node.tick(self.core.now_ms, self.core.wall_ms)
        while self.core.node.turn():
            pass
        if self.core.node.commit:
            self.core.node.commit.gather(self.core.wall_ms)
            self.core.node.commit.refused(ResourceExhausted("full"))
        self.core.maintain()
        self.checked()

    def checked(self) -> None:
        """Checks all times, and hears what was said."""
        self.ticked_ms = self.core.wall_ms
        for name in list(self.model.queues):
            queue_id = self.core.tables.queue_by_name.get(name.encode())
            has = queue_id is not None and self.core.tables.farewell.get(queue_key(queue_id)) is not None
            self.model.check_time(name, self.core.now_ms, self.is_consumed(name), has, queue_id is not None)
            if name not in self.model.queues:
                self.forget(name)
        self.hear()
        assert not self.model.to_be_said, f"farewells were lost: {self.model.to_be_said}"

    def hear(self) -> None:
        session = self.core.session()
        for delivery in self.core.pull(session, EAR, 100):
            for key, offset, body in bodies_of(delivery):
                self.model.heard(body)
                self.core.change(
                    wire.Step(
                        acks=wire.TransactionAcks(
                            queues=[EAR.encode()], keys=[key.encode()], lows=[offset], tos=[offset + 1]
                        )
                    )
                )
        self.core.node.close_session(session, Source("lifetimes", session.number))

    def crash(self) -> None:
        self.look()
        self.core.crash()
        self.sessions.clear()
        self.ticked_ms = 0
        self.model.crashed(self.core.now_ms)
        self.open()

    def finish(self) -> None:
        """Checks that all that is owed comes, or is told as a gap."""
        for session in list(self.sessions):
            self.close(session)
        self.open()
        for name in list(self.model.queues):
            self.attach(self.sessions[0], name)
        for _ in range(20):
            self.take(self.sessions[0])
            self.ack(self.sessions[0], Random(0))
            self.core.flush()
            self.tick()
        for name, queue in self.model.queues.items():
            for key, binding in queue.bindings.items():
                held = self.has[self.sessions[0].number][name, key]
                left = {offset for offset in binding.owed - held if offset >= self.model.dropped_below[key]}
                assert not left, f"{name} is owed {key} {sorted(left)} for ever"
                gone = binding.owed - held - left
                assert not gone, f"{name} was not told that {key} {sorted(gone)} are gone"
        self.core.check()
