"""Lets time go on, and power go: ticks, what comes beside a tick, crashes, and what is said by then."""

from __future__ import annotations

from random import Random

from shoal_contract.chunk import parse_chunk
from shoal_contract.errors import ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.read.reading import describe_key
from shoal_slice_node.core.rows.farewell_row import queue_key
from shoal_slice_node.core.turns import Source
from tests.lifetimes.consumers import Consumers
from tests.lifetimes.farewells import Farewell
from tests.lifetimes.world import DEAD, EAR, GRAVE, HALL, LATE
from tests.slice_node.core_driver import WALL_AHEAD_MS, acks, farewell, publish, raises

TICK_MS = 500
PRODUCER = b"one-producer-id!"


class Clock(Consumers):
    """Adds time to a run."""

    # Ticks.

    def begins_tick(self, ms: int) -> None:
        """Time goes on, and all sessions that have an ack timeout read: what is not sent has no time of its own."""
        self.core.now_ms += ms
        for session in self.sessions:
            if any(attachment.feed.ack_timeout_ms for attachment in session.attachments.values()):
                self.take(session)
        self.look()

    def ticks(self) -> None:
        """Tells the node the time."""
        self.core.node.tick(self.core.now_ms, self.core.wall_ms)
        self.told_ms = max(self.told_ms, self.core.wall_ms)
        self.model.latest_ms = max(self.model.latest_ms, self.core.wall_ms)
        self.model.ticks(self.core.now_ms)

    def works(self) -> None:
        """Lets the node do all that it has to do."""
        while self.core.node.turn() or self.core.node.commit:
            self.core.commit()

    def jump(self, ahead_ms: int) -> None:
        """Sets the machine's clock: ahead of the one that only grows, or back behind it."""
        self.core.wall_ahead_ms = WALL_AHEAD_MS + ahead_ms

    def tick(self, ms: int = TICK_MS) -> None:
        self.begins_tick(ms)
        self.ticks()
        self.works()
        self.checked()

    def make_room(self, wait_ms: int) -> None:
        for _ in range(0, wait_ms, 300):
            self.tick(300)
        self.begins_tick(0)
        self.flush()
        lsn = -1
        while self.core.state.lsn != lsn:  # A record of one tick may end messages, one of the next one trims.
            lsn = self.core.state.lsn
            self.tick(0)

    def late_farewell(self, name: str, after_s: int, is_written: bool) -> None:
        """Sets a farewell anew while the leader decides to say the one before: the new one stays. `is_written`: the
        leader decides while the change is written; else the record of what it decided is in one batch with it."""
        core, timer = self.core, self.model.farewells.timers[name]
        body = self.new_body()
        self.begins_tick(TICK_MS)
        data = wire.Change(steps=[farewell(name, key=HALL, body=body, after_s=after_s)]).SerializeToString()
        item = Item(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), data), lambda _: None, raises)
        core.node.commit.submit(item)
        old = timer.farewell
        if old is not None and core.now_ms - max(timer.idle_ms, old.set_ms) >= 1000 * old.after_s:
            self.model.farewells.may_be_said.add(old.body)
        timer.farewell = Farewell(body, after_s, core.now_ms)
        if is_written:
            batch = core.node.commit.gather(core.wall_ms)
            core.records += [record for _, record in batch.entries if record is not None]
        self.ticks()
        while core.node.turn():
            pass
        if is_written:
            core.node.commit.written()
            while core.node.commit.to_apply:
                core.node.commit.step()
        core.commit()
        self.works()
        self.checked()

    def late_read(self, session: Session) -> None:
        """Lets a session read after the clock told that messages expired, and before a record gives them up."""
        self.begins_tick(TICK_MS)
        self.ticks()
        self.take(session)
        self.works()
        self.checked()

    def lost_tick(self) -> None:
        """Ticks on a full disk: what the node decides is not written, and must be decided again."""
        self.begins_tick(TICK_MS)
        self.ticks()
        while self.core.node.turn():
            pass
        if self.core.node.commit:
            self.core.node.commit.gather(self.core.wall_ms)
            self.core.node.commit.refused(ResourceExhausted("full"))
        self.tick(0)

    # What was said, and what died.

    def checked(self) -> None:
        """Checks all times, and hears what was said."""
        farewells = self.model.farewells
        head = describe_key(self.core.state, LATE.encode()).head
        self.model.came_due(LATE, head, self.wrote(), self.core.wall_ms)
        for name in list(self.model.queues):
            queue_id = self.core.tables.queue_by_name.get(name.encode())
            has = queue_id is not None and self.core.tables.farewell.get(queue_key(queue_id)) is not None
            is_consumed = bool(self.consumers(name))
            farewells.check_time(name, self.core.now_ms, is_consumed, has, queue_id is not None)
        self.hear()
        for name in [name for name in self.model.queues if name not in farewells.timers]:
            self.ended(name)
        assert not farewells.to_be_said, f"farewells were lost: {farewells.to_be_said}"
        self.model.check_dead(self.core.now_ms)

    def ended(self, name: str) -> None:
        """Notes that a queue is gone, with all that it was owed."""
        for session in self.sessions:
            self._leaves(session, name)
        del self.model.queues[name]

    def hear(self) -> None:
        """Takes farewells and copies from the queues that get them."""
        session = self.core.session()
        for ear, key in ((EAR, HALL), (GRAVE, DEAD)):
            while deliveries := self.core.pull(session, ear, 100):
                for delivery in deliveries:
                    chunk = parse_chunk(delivery.chunk)
                    for index in range(delivery.low - delivery.first, delivery.to - delivery.first):
                        if ear == EAR:
                            self.model.farewells.heard(chunk.bodies[index])
                        else:
                            self._copy(chunk.bodies[index], dict(chunk.headers[index].fields))
                    self.core.change(acks((ear, key, delivery.low, delivery.to)))
                self.core.pump()
        self.core.node.close_session(session, Source("lifetimes", session.number))
        self.heard_ms = self.told_ms

    def _copy(self, body: bytes, fields: dict[str, bytes]) -> None:
        name, key, offset = fields["shoal-queue"].decode(), fields["shoal-key"].decode(), int(fields["shoal-offset"])
        times, reason = int(fields["shoal-deliveries"]), fields["shoal-reason"].decode()
        self.model.copied(name, key, offset, body, times, reason, self.heard_ms)
        origin = fields["shoal-hops"], fields["shoal-origin-key"], int(fields["shoal-origin-offset"])
        assert origin == (b"1", key.encode(), offset), f"a copy of {key} {offset} says that it comes from {origin}"

    # Crashes.

    def crash(self, random: Random) -> None:
        """Loses power while nothing is asked."""
        self.look()
        self._after(random, 0)

    def crash_in_tick(self, random: Random) -> None:
        """Loses power while what a tick decided is written: some of it is durable."""
        self.begins_tick(random.choice((20, TICK_MS)))
        self.ticks()
        for _ in range(random.choice((0, 1, 2, 50))):
            self.core.node.turn()
        self._after(random, random.choice((0, 1, 2, 50)))

    def crash_in_publish(self, key: str, bodies: int, ttl_ms: int, random: Random) -> None:
        """Loses power while a publish is written. Its client asks again, with the same number, and then once more."""
        self.look()
        self.frames += 1
        head = ChangeHead(PRODUCER, self.frames, self.frames - 1)
        chunk = [self.new_body() for _ in range(bodies)]
        step = publish(key, *chunk, ttl_ms=ttl_ms)
        data = wire.Change(steps=[step]).SerializeToString()
        self.core.node.commit.submit(Item(Kind.CHANGE, encode_change(head, data), lambda _: None, raises))
        self._after(random, random.choice((0, 1)))
        outcome = self.core.change(step, head=head)
        self.published(key, outcome.steps[0].offsets[0], chunk, ttl_ms)
        assert self.core.change(step, head=head) == outcome, "a repeated publish has another answer"

    def _after(self, random: Random, durable: int) -> None:
        self.core.crash(random, durable)
        self.sessions.clear()
        self.windows.clear()
        self.order.forget()
        self.told_ms = 0
        for _, _, binding in self.model.bindings():
            binding.crashed()
        self.checked()
        self.model.farewells.crashed(self.core.now_ms)
        self.open()

    # The end.

    def finish(self) -> None:
        """Checks that all that is owed comes, or is told as a gap."""
        for session in list(self.sessions):
            self.close(session)
        self.open()
        for name in list(self.model.queues):
            self.attach(self.sessions[0], name)
        bindings = [(name, key) for name, key, _ in self.model.bindings()]
        rounds = 20 if self.is_prompt else 300
        while rounds and (rounds % 20 or any(self.model.left(*one) for one in bindings)):
            rounds -= 1
            self.take(self.sessions[0])
            self.ack(self.sessions[0], Random(0), 1)
            self.flush()
            self.tick()
        for name, key, _ in self.model.bindings():
            left = self.model.left(name, key)
            gone = {offset for offset in left if self.model.is_gone(key, offset)}
            assert not left - gone, f"{name} is owed {key} {sorted(left - gone)} for ever"
            assert not gone, f"{name} was not told that {key} {sorted(gone)} are gone"
        self.core.check()
