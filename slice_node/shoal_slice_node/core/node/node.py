"""Keeps all rules of a slice's node: requests become records, durable records are applied, and consumers are served.

A driver offers work (`commit.submit`, `add_work`, and what dispatch takes) and tells the time (`tick`). It writes the
batches that `commit.gather` returns and says what became of them. It lets the node work in bounded steps (`commit.step`
applies, `turn` serves and reads). Sessions with something to send are in `dispatcher.dirty`. No loop, no clock, no
files, no randomness: the server, the tests' models and the fuzzer drive this same class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.background.due_list import DueList
from shoal_slice_node.core.background.history_walk import HistoryWalk
from shoal_slice_node.core.background.idle_producers import IdleProducers
from shoal_slice_node.core.background.job import (
    DueJob,
    ExpireJob,
    FarewellJob,
    ForgetProducersJob,
    ReclaimJob,
    RetryJob,
    TrimJob,
)
from shoal_slice_node.core.background.key_walk import KeyWalk
from shoal_slice_node.core.background.reclaim_list import ReclaimList
from shoal_slice_node.core.background.trimmer import Trimmer
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.dispatch.pulling import Puller
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import PRODUCER_IDLE_MS
from shoal_slice_node.core.node.ack_flush import AckFlush
from shoal_slice_node.core.node.commit import Commit, Item
from shoal_slice_node.core.node.limited_binds import limit_binds
from shoal_slice_node.core.node.maintenance import Maintenance
from shoal_slice_node.core.node.unused_drops import UnusedDrops
from shoal_slice_node.core.rows.ids import ID_BYTES
from shoal_slice_node.core.turns import Done, Source, Turns, Work
from shoal_slice_node.core.verbs.engine import Engine
from shoal_slice_node.core.watching.watching import Watching


class Node:
    """Leads its slice in one epoch, over what was recovered. `now_ms`, here and in `tick`: the time of a clock that
    never goes back. `advanced`: keys with cursors that advanced in what was replayed, and `passed_over`: not all of
    them."""

    def __init__(
        self,
        engine: Engine,
        epoch: int,
        now_ms: int,
        advanced: Collection[bytes] = (),
        shares: DispatchShares | None = None,
        let_go: Callable[[int], None] = lambda size_bytes: None,
        passed_over: bool = False,
    ) -> None:
        self.engine = engine
        self.dispatcher = Dispatcher(engine.state, shares)
        self.puller = Puller(engine.state, self.dispatcher)
        self.watching = Watching(engine.state, self.dispatcher)
        self.trimmer = Trimmer(engine.state)
        self.trimmer.advanced(advanced, now_ms)
        if passed_over:
            self.trimmer.pass_over()
        self.key_walk = KeyWalk(engine.state)
        self.reclaims = ReclaimList(engine.state.tables)
        self.due = DueList(engine.state)
        self.turns = Turns()
        self.unused_drops = UnusedDrops(self.dispatcher, lambda: self.now_ms)
        self.epoch = epoch
        self.commit = Commit(engine, epoch, self._on_effects, let_go, self._decide)
        self.acks = AckFlush(self.commit, self.dispatcher)
        jobs = (
            TrimJob(self.trimmer, self.key_walk, HistoryWalk(engine.state), self._on_void),
            ReclaimJob(self.reclaims),
            ExpireJob(self.dispatcher.transients, engine.state),
            FarewellJob(self.dispatcher.farewells, engine.state),
            RetryJob(self.dispatcher.returns, engine.state),
            DueJob(self.due),
            ForgetProducersJob(IdleProducers(engine.state, PRODUCER_IDLE_MS)),
        )
        self.maintenance = Maintenance(self.commit, self.acks, self.dispatcher, jobs, now_ms)
        self.dispatcher.transients.begin(now_ms)
        self.dispatcher.farewells.begin(now_ms)
        self._sessions = 0

    @property
    def state(self) -> State:
        return self.engine.state

    @property
    def now_ms(self) -> int:
        """Returns the time that was told last."""
        return self.maintenance.now_ms

    @property
    def wall_ms(self) -> int:
        """Returns the machine's time, as it was told last; 0: not told yet."""
        return self.due.wall_ms

    def _decide(self, item: Item) -> None:
        """Writes into the item of a change that is about to be journaled what only the leader knows."""
        assert item.checked is not None
        if item.checked.leader_decides:
            self.unused_drops.decide(item)
        if item.checked.grows:
            limit_binds(self.dispatcher.registry, item)

    def new_session(self, window_bytes: int, owner: bytes = b"", connection: str = "") -> Session:
        """Returns a new session. `owner`: see Session.owner. `connection`: the client's."""
        self._sessions += 1
        return Session(self._sessions, window_bytes, owner, connection, self.dispatcher.shares)

    def close_session(self, session: Session, source: Source) -> None:
        """Ends a session. Must not be called while a record is applied in part."""
        self.turns.drop(source)
        self.dispatcher.close(session)

    def add_work(self, source: Source, work: Work[object], done: Done, looks: bool = False) -> None:
        """Does `work` in turns; work of one owner is done one after the other. `looks`: it takes nothing, and may take
        long: what the owner asks for later does not wait for it."""
        if looks:
            self.turns.add_beside(source, work, done)
        else:
            self.turns.add(source, work, done)

    def tell_time(self, now_ms: int, wall_ms: int) -> None:
        """Tells the time. `wall_ms`: the machine's, which may jump: absolute times are compared with it."""
        self.maintenance.now_ms = now_ms
        self.due.wall_ms = self.trimmer.wall_ms = wall_ms
        self.dispatcher.tell_time(wall_ms)

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Tells the time, and looks for what is due."""
        self.tell_time(now_ms, wall_ms)
        self.maintenance.tick(now_ms)
        self.watching.tick(now_ms)

    @property
    def has_turns(self) -> bool:
        """Returns whether `turn` has something to do."""
        return bool(self.turns or self.watching.has_turns) or self.dispatcher.has_work or self.maintenance.has_turns

    def turn(self) -> bool:
        """Does a step of what waits for its turn: an ack flush, dispatch, a read; each under about a millisecond.
        Returns whether there may be more. Must not be called while a record is applied in part."""
        more = False
        if self.maintenance.has_turns:
            self.maintenance.turn()
            more = True
        if self.dispatcher.turn():
            more = True
        if self.watching.has_turns:
            self.watching.turn()
            more = True
        if self.turns:
            self.turns.step()
            more = True
        return more

    def _on_void(self, row_keys: list[bytes]) -> None:
        """Hears of ended bindings with nothing left to get. Where their queue is consumed, dispatch tells the consumer
        first, and ends them."""
        feeds = self.dispatcher.feeds
        self.reclaims.note([row_key for row_key in row_keys if row_key[1 : 1 + ID_BYTES] not in feeds])

    def _on_effects(self, effects: Effects) -> None:
        for queue_id, expires_after_s in effects.transients:
            self.dispatcher.transients.left(queue_id, expires_after_s)
        for queue_id, after_s in effects.farewells:
            self.dispatcher.farewells.was_set(queue_id, after_s)
        if effects.letters:
            self.dispatcher.farewells.letters.note()
        if effects.events or effects.created or effects.dropped:
            self.dispatcher.applied(effects)
        if effects.due:
            self.due.note(effects.due)
        if effects.members or effects.ownership:
            self.watching.applied(effects)
        if effects.reclaim:
            self.reclaims.note(effects.reclaim)
        if effects.advanced:
            self.trimmer.advanced(effects.advanced, self.maintenance.now_ms)
        if effects.full:
            self.trimmer.full(effects.full, self.maintenance.now_ms)
