"""Lets time go on: ticks, and what comes beside a tick. Not here: what is said by then (hearing.py)."""

from __future__ import annotations

from shoal_contract.errors import ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node.commit import Item
from tests.lifetimes.farewells import Farewell
from tests.lifetimes.hearing import Hearing
from tests.lifetimes.world import HALL
from tests.slice_node.core_driver import WALL_AHEAD_MS, farewell, raises

TICK_MS = 500


class Clock(Hearing):
    """Adds time to a run."""

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
