"""The broker of one slice: wires core, journal and store together, and runs the loops that drive them.

Belongs here: starting, stopping, which part calls which. Not here: gRPC (session_stream, slice_service), etcd
(cluster_role).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from shoal_contract.errors import Fenced, ResourceExhausted, ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.process_memory import own_bytes
from shoal_runtime.tasks import OnFailure, Tasks
from shoal_slice_node.adapters.answer_room import AnswerRoom
from shoal_slice_node.adapters.archiving import Archiving
from shoal_slice_node.adapters.checkpoints import Checkpoints
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.commit_loop import CommitLoop, Hooks
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.limits import (
    CHECKPOINT_STOP_S,
    PUMP_SLICE_MS,
    SESSION_BYTES_DEFAULT,
    SESSION_BYTES_MAX,
    TICK_MS,
)
from shoal_slice_node.adapters.recovery import Recovered
from shoal_slice_node.adapters.steps import StepWatch
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.adapters.watchman import Watchman
from shoal_slice_node.adapters.writers import Writers
from shoal_slice_node.core.apply.records import Kind, encode_ownership
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.memory import MemoryPlan
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.turns import Done, Source, Work
from shoal_slice_node.storage.archive import Archive
from shoal_slice_node.storage.journal_files import Journal

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Holds the broker's options. `archive`: this node's own folder for closed journal segments; None: they are
    deleted. `archive_every_s`: a segment is closed at this age; 0: only when it is full. `memory`: how the process's
    memory budget is divided."""

    memory: MemoryPlan
    archive: Path | None = None
    archive_every_s: float = 0
    lease_left_s: Callable[[], float] = lambda: float(1 << 20)
    """Returns how long this node may surely still answer, in seconds. A node that runs alone may always answer."""
    own_bytes: Callable[[], int] = own_bytes
    """Returns the memory that the process holds, in bytes."""


class Broker:
    """Drives one slice, starting from the recovered data. `node` makes all decisions; `commit` and tasks drive it."""

    def __init__(self, recovered: Recovered, epoch: int, on_failure: OnFailure, options: BrokerOptions) -> None:
        self.store: Store = recovered.store
        self.journal: Journal = recovered.journal
        self.epoch = epoch
        self.options = options
        self.steps = StepWatch()
        memory = options.memory
        shares = DispatchShares(memory.deliveries_bytes, memory.attached_bytes, memory.owed_bytes)
        self.large_frames = FrameRoom(memory.pending_bytes // 2)
        self.node = recovered.replica.lead(epoch, steady_ms(), shares, self.large_frames.give)
        self.dispatcher = self.node.dispatcher
        self.writers = Writers()
        self.answers = AnswerRoom(memory.answers_bytes)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="journal")
        archive = options.archive
        self.archiving = (
            None
            if archive is None
            else Archiving(Archive(archive), self.journal, self._in_journal_thread, options.archive_every_s)
        )
        self.checkpoints = Checkpoints(
            self.store,
            self.journal,
            self.node.state,
            self._in_journal_thread,
            self.node.reclaims.note_keys,
            self.archiving,
            memory.delta_bytes,
        )
        hooks = Hooks(self.start_due_work, self.checkpoints.throttle, self.check_may_answer, self._disk_is_full)
        self.commit_loop = CommitLoop(
            self.node.commit,
            self.large_frames,
            self.journal,
            self._in_journal_thread,
            hooks,
            memory.pending_bytes,
            self.steps,
        )
        self.watchman = Watchman(
            self.dispatcher,
            self.writers,
            self.answers,
            memory.budget_bytes,
            self.commit_loop.between_records,
            options.own_bytes,
        )
        self._full = False
        self._pump_wake = asyncio.Event()
        self._tasks = Tasks("broker", on_failure)

    @property
    def state(self) -> State:
        return self.node.state

    def _in_journal_thread(self, work: Callable[[], object]) -> asyncio.Future[object]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def start(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self.store.warm)
        self._tasks.start("commit", self.commit_loop.run())
        self._tasks.start("pump", self._pump())
        self._tasks.start("ticks", self._tick())
        self._tasks.start("watch", self.watchman.run())
        self._tasks.start("checkpoints", self.checkpoints.run())
        if self.archiving is not None:
            self._tasks.start("archiving", self.archiving.run())

    async def stop(self, checkpoint: bool, within_s: float = CHECKPOINT_STOP_S) -> None:
        """Stops the broker. `checkpoint`: it first checkpoints and archives everything, if that can be done in
        `within_s`, so that the next start has nothing to replay."""
        try:
            async with asyncio.timeout(within_s if checkpoint else 0):
                await self.settled_acks()
                await self.checkpoints.hold()
                await self._tasks.close()
                await self.checkpoints.finish()
                if self.archiving is not None:
                    await self.archiving.finish(self.store.checkpoint_lsn)
        except TimeoutError:
            if checkpoint:
                _log.warning(
                    "the node stops before its last checkpoint or archive was finished, since %g s are over. Nothing is"
                    " lost: the next start replays the journal",
                    within_s,
                )
        except ShoalError as error:
            _log.warning(
                "the node stops without a last checkpoint: %s. Nothing is lost: the next start replays the journal",
                error,
            )
        await self._tasks.close()
        await self._in_journal_thread(self.journal.close)
        self._thread.shutdown()
        await self.store.close()

    # Checks of what may be done now.

    def check_may_answer(self) -> None:
        """Checks that this node may answer; called before anything is sent to a client. Raises Fenced once the lease
        may be over."""
        if self.options.lease_left_s() <= 0:
            raise Fenced(
                "this node's lease may be over: it answers nothing more, the outcome is unknown", subject="lease"
            )

    def check_takes_changes(self) -> None:
        """Raises ResourceExhausted while no change could ever become a checkpoint."""
        trouble = self.checkpoints.trouble
        if trouble:
            raise ResourceExhausted(f"this slice takes no changes now: {trouble}", subject="checkpoint")

    @property
    def trouble(self) -> str:
        """Returns, as a sentence, why changes are refused; "" while they are taken."""
        if self._full:
            return "the disk of its journal is full: changes are refused until there is room"
        return self.checkpoints.trouble

    def _disk_is_full(self, full: bool) -> None:
        if full is not self._full:
            self._full = full
            if full:
                _log.error(
                    "no disk space for the journal: changes are refused until there is room, reads go on. Make room, or"
                    " grow the disk; no restart is needed"
                )
            else:
                _log.info("the journal has disk space again: changes are taken")

    # Sessions.

    def check_takes_sessions(self) -> None:
        """Raises ResourceExhausted while the process holds much more than its budget."""
        if self.watchman.memory_short is not None:
            raise self.watchman.memory_short

    def open_session(
        self, window_bytes: int, connection: str, wake: Callable[[], None], end: Callable[[], None]
    ) -> Session:
        """Opens a session with a window of `window_bytes` (0: the default; at most SESSION_BYTES_MAX). `wake`, `end`,
        `connection`: see Writers. Raises ResourceExhausted while the process holds much more than its budget."""
        self.check_takes_sessions()
        session = self.node.new_session(min(window_bytes or SESSION_BYTES_DEFAULT, SESSION_BYTES_MAX))
        self.writers.open(session, connection, wake, end)
        return session

    def open_shared_session(self) -> Session:
        """Opens the session that all unary calls share. It has no stream, so nothing wakes it."""
        return self.node.new_session(SESSION_BYTES_DEFAULT)

    def close_session(self, session: Session, source: Source) -> None:
        self.writers.close(session)
        self.commit_loop.between(lambda: self.node.close_session(session, source))
        self.start_due_work()

    def refusal(self, sequence: int, error: ShoalError) -> wire.Answer:
        """Returns the answer for a frame that was refused as a whole, and counts the refusal."""
        self.state.counters.refuse(error.code)
        return wire.Answer(sequence=sequence, error=error.to_wire())

    def add_work(self, source: Source, work: Work[object], done: Done) -> None:
        """Does `work` in turns with other work. The pieces of one owner are done one after the other."""
        self.node.add_work(source, work, done)
        self._pump_wake.set()

    def start_due_work(self) -> None:
        """Wakes the sessions that have something to send. Starts the pump if work waits for it, and begins a checkpoint
        if one is due. Must be called after all that may bring such work: an ack, an attach, new room in a session."""
        self.writers.wake(self.dispatcher.dirty)
        self.commit_loop.wake()
        if not self._pump_wake.is_set() and self.node.has_turns:
            self._pump_wake.set()
        if self.commit_loop.between_records.is_set():
            commit = self.node.commit
            self.checkpoints.consider(commit.applied_lsn, commit.operations, commit.journal_bytes)

    async def set_owned(self, map_version: int, owned: bytes) -> None:
        """Sets the partitions that this slice owns from now on. Returns when the change is durable and in force."""
        if (map_version, owned) == (self.state.map_version, self.state.owned):
            return
        done = asyncio.get_running_loop().create_future()
        payload = encode_ownership(map_version, owned)
        self.commit_loop.submit(Item(Kind.OWNERSHIP, payload, lambda _: done.set_result(None), done.set_exception))
        await done

    async def checkpoint_ahead(self, within_s: float) -> None:
        """Checkpoints before a stop, while the node still serves. The last checkpoint then has little to write, and the
        outage is short."""
        try:
            async with asyncio.timeout(within_s):
                await self.checkpointed()
        except TimeoutError:
            _log.info("the checkpoint ahead of the stop took longer than %g s: the stop goes on without it", within_s)

    async def checkpointed(self) -> None:
        """Waits until the store has everything that is applied now."""
        await self.checkpoints.reach(self.node.commit.applied_lsn, self.start_due_work)

    async def settled_acks(self) -> ShoalError | None:
        """Flushes acks and waits until they are durable. If a flush is under way, waits for the next one, which a tick
        begins. Returns the error if the flush failed, else None."""
        done: asyncio.Future[ShoalError | None] = asyncio.get_running_loop().create_future()
        self.node.acks.then(lambda error: None if done.done() else done.set_result(error))
        await self.commit_loop.between_records.wait()
        self.node.acks.flush()
        self.commit_loop.wake()
        return await done

    async def _tick(self) -> None:
        """Tells the node the time every TICK_MS; while the node is idle, lets the checkpoint's pages leave memory."""
        operations_seen, active_ms = 0, steady_ms()
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            await self.commit_loop.between_records.wait()
            now_ms = steady_ms()
            self.node.tick(now_ms)
            if self.node.commit.operations != operations_seen:
                operations_seen, active_ms = self.node.commit.operations, now_ms
            self.checkpoints.rest((now_ms - active_ms) / 1000)
            # For leases that ended or a delta that grew old: on an idle node nothing else checks them.
            self.start_due_work()

    async def _pump(self) -> None:
        """Runs the node's turns, PUMP_SLICE_MS at a time."""
        node, between_records = self.node, self.commit_loop.between_records
        while True:
            await self._pump_wake.wait()
            self._pump_wake.clear()
            await between_records.wait()
            began = time.perf_counter()
            slice_end = began + PUMP_SLICE_MS / 1000
            node.now_ms = steady_ms()
            while node.turn():
                if time.perf_counter() > slice_end:
                    self.start_due_work()
                    self.steps.done(began)
                    await asyncio.sleep(0)
                    await between_records.wait()
                    began = time.perf_counter()
                    slice_end = began + PUMP_SLICE_MS / 1000
            self.start_due_work()
            self.steps.done(began)
