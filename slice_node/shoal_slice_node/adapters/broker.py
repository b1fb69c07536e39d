"""The broker of one slice: core, journal and store wired together, with the loops that keep them going.

Belongs here: starting, stopping, who calls whom. Not here: gRPC (session_stream, slice_service), etcd (membership).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shoal_contract.tasks import OnFailure, Tasks
from shoal_slice_node.adapters.ack_flush import AckFlush
from shoal_slice_node.adapters.archive import Archive
from shoal_slice_node.adapters.archiving import Archiving
from shoal_slice_node.adapters.checkpoints import Checkpoints
from shoal_slice_node.adapters.commit_loop import CommitLoop, Item
from shoal_slice_node.adapters.journal_files import Journal
from shoal_slice_node.adapters.maintenance import Maintenance
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.counters import Counters
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.dispatch.pulling import Puller
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.engine import Engine
from shoal_slice_node.core.reclaim_list import ReclaimList
from shoal_slice_node.core.records import Kind, encode_ownership
from shoal_slice_node.core.state import State
from shoal_slice_node.core.trimmer import Trimmer
from shoal_slice_node.core.watch import Watch
from shoal_slice_node.limits import (
    CHECKPOINT_STOP_S,
    DELTA_ROWS_MAX,
    DELTA_STALL_FACTOR,
    LOOP_SLICE_MS,
    SESSION_BYTES_DEFAULT,
    SESSION_BYTES_MAX,
)

_log = logging.getLogger(__name__)

STORE_FOLDER = "store"
JOURNAL_FOLDER = "journal"


class Broker:
    """Open with `Broker.open`. `wakers`: session number -> what to call when it has deliveries to send. `archiving`
    None: closed journal segments are deleted."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        engine: Engine,
        epoch: int,
        on_failure: OnFailure,
        archive: Archive | None = None,
    ) -> None:
        self.store = store
        self.journal = journal
        self.engine = engine
        self.epoch = epoch
        self.dispatcher = Dispatcher(engine.state)
        self.puller = Puller(engine.state, self.dispatcher)
        self.trimmer = Trimmer(engine.state)
        self.wakers: dict[int, Callable[[], None]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        self.reclaims = ReclaimList(store.tables.reclaim)
        self.archiving = None if archive is None else Archiving(archive, journal, self._in_journal_thread)
        self.checkpoints = Checkpoints(
            store, journal, engine.state, self._in_journal_thread, self.reclaims.note, self.archiving
        )
        self.commit = CommitLoop(
            engine,
            journal,
            self._in_journal_thread,
            engine.state.lsn,
            epoch,
            on_effects=self._on_effects,
            on_turn=self._on_turn,
            throttle=self.checkpoints.throttle,
        )
        self.acks = AckFlush(self.commit, self.dispatcher)
        self._sessions = 0
        self._pump_wake = asyncio.Event()
        self._tasks = Tasks("broker", on_failure)

    @classmethod
    async def open(
        cls,
        folder: Path,
        epoch: int,
        on_failure: OnFailure,
        delta_rows_max: int = DELTA_ROWS_MAX,
        archive: Path | None = None,
    ) -> Broker:
        """Recovers what the folder holds: the checkpoint, then the journal above it. `archive`: this node's own folder
        for closed journal segments.

        Raises Conflict (another process has the folder), Corrupt, ResourceExhausted.
        """
        store = await Store.open(folder / STORE_FOLDER, delta_rows_max)
        try:
            journal = Journal.open(folder / JOURNAL_FOLDER, store.checkpoint_lsn)
            engine = Engine(store.tables, Watch())
            await _replay(engine, store, journal)
        except BaseException:
            await store.close()
            raise
        return cls(store, journal, engine, epoch, on_failure, None if archive is None else Archive(archive))

    @property
    def client_sessions(self) -> int:
        """Streams that clients have open: every session but the one that unary calls share."""
        return max(0, len(self.wakers) - 1)

    @property
    def state(self) -> State:
        return self.engine.state

    def _in_journal_thread(self, work: Callable[[], object]) -> asyncio.Future[object]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def start(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self.store.warm)
        maintenance = Maintenance(
            self.commit, self.state, self.acks, self.reclaims, self.puller, self.trimmer, self.checkpoints
        )
        self._tasks.start("commit", self.commit.run())
        self._tasks.start("pump", self._pump())
        self._tasks.start("maintenance", maintenance.run())
        self._tasks.start("checkpoints", self.checkpoints.run())
        if self.archiving is not None:
            self._tasks.start("archiving", self.archiving.run())

    async def stop(self, checkpoint: bool) -> None:
        """`checkpoint`: leave nothing to replay or to archive, if that can be done in CHECKPOINT_STOP_S."""
        try:
            async with asyncio.timeout(CHECKPOINT_STOP_S if checkpoint else 0):
                await self.acks.settled()
                await self.checkpoints.hold()
                await self._tasks.close()
                await self.checkpoints.finish()
                if self.archiving is not None:
                    await self.archiving.finish(self.store.checkpoint_lsn)
        except TimeoutError:
            _log.warning("stopping without a checkpoint or archive: the next start replays the journal")
        await self._tasks.close()
        await self._in_journal_thread(self.journal.close)
        self._thread.shutdown()
        await self.store.close()

    def open_session(self, window_bytes: int, wake: Callable[[], None]) -> Session:
        self._sessions += 1
        window = min(window_bytes or SESSION_BYTES_DEFAULT, SESSION_BYTES_MAX)
        session = Session(self._sessions, window)
        self.wakers[session.number] = wake
        return session

    def close_session(self, session: Session) -> None:
        del self.wakers[session.number]
        self.dispatcher.close(session)
        self._on_turn()

    async def set_owned(self, map_version: int, owned: bytes) -> None:
        """This slice owns these partitions from here on. Returns when that is durable and in force."""
        if (map_version, owned) == (self.state.map_version, self.state.owned):
            return
        done = asyncio.get_running_loop().create_future()
        payload = encode_ownership(map_version, owned)
        self.commit.submit(Item(Kind.OWNERSHIP, payload, lambda _: done.set_result(None), done.set_exception))
        await done

    async def checkpointed(self) -> None:
        """Returns once the store has everything that is applied now."""
        await self.checkpoints.reach(self.commit.applied_lsn, self._on_turn)

    def _on_effects(self, effects: Effects) -> None:
        if effects.events or effects.created or effects.dropped:
            self.dispatcher.applied(effects)
        if effects.reclaim:
            self.reclaims.note(effects.reclaim)
        if effects.moved:
            self.trimmer.moved(effects.moved, time.monotonic_ns() // 1_000_000)

    def _on_turn(self) -> None:
        """Tells who has something to send; starts the pump if someone lags; begins a checkpoint if it is time."""
        dirty = self.dispatcher.dirty
        if dirty:
            for number in dirty:
                self.wakers[number]()
            dirty.clear()
        if self.dispatcher.has_ready:
            self._pump_wake.set()
        self.checkpoints.consider(self.commit.applied_lsn, self.commit.operations, self.commit.journal_bytes)

    def after_event(self) -> None:
        """To be called after an event that came to the dispatcher from outside: an ack, an attach, room."""
        self._on_turn()

    async def _pump(self) -> None:
        while True:
            await self._pump_wake.wait()
            self._pump_wake.clear()
            slice_end = time.perf_counter() + LOOP_SLICE_MS / 1000
            while self.dispatcher.has_ready:
                self.dispatcher.turn()
                if time.perf_counter() > slice_end:
                    self._on_turn()
                    await asyncio.sleep(0)
                    slice_end = time.perf_counter() + LOOP_SLICE_MS / 1000
            self._on_turn()


async def _replay(engine: Engine, store: Store, journal: Journal) -> None:
    """Applies what the checkpoint does not have. Only a tail beyond all bounds is checkpointed on the way: else the
    first checkpoint can wait until the node serves."""
    engine.state.lsn = store.checkpoint_lsn
    began = time.perf_counter()
    for record in journal.records(store.checkpoint_lsn + 1):
        engine.apply(record)
        if Checkpoints.is_large(store, DELTA_STALL_FACTOR):
            engine.state.kept.save()
            store.freeze(record.lsn)
            await store.checkpoint()
    engine.state.counters = Counters()
    replayed = engine.state.lsn - store.checkpoint_lsn
    _log.info("replayed to lsn %d, %d records, %.2f s", engine.state.lsn, replayed, time.perf_counter() - began)
