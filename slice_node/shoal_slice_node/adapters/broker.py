"""The broker of one slice, which is a node's leading role: wires the core to the node's data, and runs the loops that
drive it. It is made when the node leads, and dropped when it leads no longer; the data stays (node_data).

Belongs here: starting, stopping, which part calls which. Not here: gRPC (session_stream, slice_service), etcd
(claiming).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from shoal_contract.errors import Fenced, ResourceExhausted, ShoalError, Unavailable
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.limits import ABORT_S
from shoal_runtime.places import Places
from shoal_runtime.process_memory import own_bytes
from shoal_runtime.tasks import OnFailure, Tasks
from shoal_runtime.unread import Unread
from shoal_slice_node.adapters import clock
from shoal_slice_node.adapters.accepting import Accepting
from shoal_slice_node.adapters.answer_room import AnswerRoom
from shoal_slice_node.adapters.checkpoints import forget_emptied
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.clock_watch import ClockWatch
from shoal_slice_node.adapters.commit_loop import CommitLoop, Hooks
from shoal_slice_node.adapters.courier import Courier
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.journal_room import JournalRoom
from shoal_slice_node.adapters.kept_frames import KeptFrames
from shoal_slice_node.adapters.lead import Lead
from shoal_slice_node.adapters.limits import (
    ABORT_CROWDED_S,
    BRIEF_ANSWERS_BYTES,
    DELIVERY_COPIES,
    DISPATCH_REST_MS,
    IDLE_TICK_MS,
    PUMP_SLICE_MS,
    READS_REST_MS,
    SESSION_BYTES_DEFAULT,
    SESSION_BYTES_MAX,
    SNAPSHOTS,
    TICK_MS,
)
from shoal_slice_node.adapters.long_work import LongWork
from shoal_slice_node.adapters.node_data import NodeData
from shoal_slice_node.adapters.pull_lines import PullLines
from shoal_slice_node.adapters.steps import StepWatch
from shoal_slice_node.adapters.watch_writes import WatchWrites
from shoal_slice_node.adapters.watchman import Watchman
from shoal_slice_node.adapters.write_turns import WriteTurns
from shoal_slice_node.adapters.writers import Writers
from shoal_slice_node.core.apply.records import Kind, encode_ownership
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.memory import MemoryPlan
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.turns import Done, Source, Work
from shoal_slice_node.processes.limits import IDLE_MS

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """Holds the broker's options. `memory`: how the process's memory budget is divided."""

    memory: MemoryPlan
    own_bytes: Callable[[], int] = own_bytes
    """Returns the memory that the process holds, in bytes."""


class Broker:
    """Drives one slice over the node's data, as long as `lead` lasts. `node` makes all decisions; `commit_loop` and
    tasks drive it."""

    def __init__(
        self, data: NodeData, lead: Lead, on_failure: OnFailure, options: BrokerOptions, unread: Unread | None = None
    ) -> None:
        """`unread`: that of the servers which will serve it; None: one of its own."""
        self.data = data
        self.store, self.journal = data.store, data.journal
        self.checkpoints, self.archiving = data.checkpoints, data.archiving
        self.lead = lead
        self.options = options
        self.steps = StepWatch()
        self.clock = ClockWatch()
        memory = options.memory
        deliveries_bytes = memory.deliveries_bytes // DELIVERY_COPIES
        shares = DispatchShares(deliveries_bytes, memory.attached_bytes, memory.owed_bytes)
        half, quarter = memory.pending_bytes // 2, memory.pending_bytes // 4
        self.large_frames = FrameRoom(half)
        self.node = data.replica.lead(lead.epoch, steady_ms(), shares, self.large_frames.give)
        self.answers = AnswerRoom(memory.answers_bytes, BRIEF_ANSWERS_BYTES)
        self.pull_lines, self.long_work = PullLines(), LongWork()
        self.kept_frames = KeptFrames(quarter, quarter, half, self.large_frames, self.answers)
        self.checkpoints.on_emptied = self.node.reclaims.note_keys
        self.node.key_walk.checkpoint_lsn = lambda: self.store.checkpoint_lsn
        self.node.maintenance.holds_back = lambda: bool(self.checkpoints.freeing_refusal)
        self.node.watching.begin(secrets.randbits(63))
        self.watch_wakers: dict[int, Callable[[], None]] = {}
        """Wakes the stream of each watch, by its number, when it may have something to be told."""
        self.watch_writes = WatchWrites()
        self.snapshots = Places("snapshots of counts", SNAPSHOTS)
        """For pages that watches gather: as with lists, each keeps a few names of each partition in memory."""
        self.dispatcher = self.node.dispatcher
        self.writers = Writers()
        self.write_turns = WriteTurns()
        self.journal_room = JournalRoom(self.journal, data.in_journal_thread)
        room = self.journal_room
        hooks = Hooks(
            self.start_due_work,
            self.checkpoints.throttle,
            self.check_may_answer,
            room.refused,
            room.taken,
            lambda: room.short,
        )
        self.commit_loop = CommitLoop(
            self.node.commit,
            self.large_frames,
            self.journal,
            data.in_journal_thread,
            hooks,
            memory.pending_bytes,
            self.steps,
        )
        self.watchman = Watchman(
            self.dispatcher,
            self.writers,
            self.watch_writes,
            self.answers,
            memory.budget_bytes,
            self.commit_loop.between_records,
            options.own_bytes,
            unread or Unread(),
        )
        letters = (self.dispatcher.letters, self.dispatcher.farewells.letters)
        self.courier = Courier(letters, self.commit_loop.between_records, self.check_may_answer, self.steps)
        self._pump_wake = asyncio.Event()
        self._tasks = Tasks("broker", on_failure)

    @property
    def state(self) -> State:
        return self.node.state

    def start(self) -> None:
        self._tasks.start("commit", self._commit())
        self._tasks.start("pump", self._pump())
        self._tasks.start("ticks", self._tick())
        self._tasks.start("journal room", self.journal_room.run())
        self._tasks.start("memory", self.watchman.run())
        self._tasks.start("letters", self.courier.run())

    async def stop(self, settle_s: float = 0) -> None:
        """Stops the leading role; returns when nothing of it runs, and no write to the journal is under way.
        `settle_s`: acks that were taken first have so long to become durable."""
        if settle_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(settle_s):
                    await self.settled_acks()
        await self._tasks.close()

    def give_back(self, error: ShoalError) -> None:
        """Gives the tables back to the node's data, after `stop`. What was asked and is not answered fails with
        `error`. What the journal has and the tables have not, the replica has to apply."""
        self.checkpoints.on_emptied = forget_emptied
        self.data.replica = Replica.after(self.node, error)

    async def _commit(self) -> None:
        """Runs the commits. A lease that may be over ends the lead, and is no failure. Raises Corrupt."""
        try:
            await self.commit_loop.run()
        except Fenced as error:
            self.lead.end(error)

    # Checks of what may be done now.

    def check_may_answer(self) -> None:
        """Checks that this node may answer; called before anything is sent to a client. Raises Fenced once the lease
        may be over."""
        if self.lead.remaining_s <= 0:
            raise Fenced(
                "this node's lease may be over: it answers nothing more, the outcome is unknown", subject="lease"
            )

    def check_takes_changes(self, frees: bool = False) -> None:
        """Raises ResourceExhausted while no change could ever become a checkpoint. `frees`: it frees room, so more of
        it are taken."""
        refusal = self.checkpoints.freeing_refusal if frees else self.checkpoints.refusal
        if refusal:
            raise ResourceExhausted(f"this slice takes no changes now: {refusal}", subject="checkpoint")

    @property
    def refuses(self) -> str:
        """Returns, as a sentence, why changes are refused; "" while they are taken."""
        return self.journal_room.trouble or self.checkpoints.refusal

    @property
    def trouble(self) -> str:
        """Returns, as a sentence, what is wrong: changes are refused, checkpoints fail, the archive takes nothing, or
        the clock is behind; "" if nothing is."""
        archive = "" if self.archiving is None else self.archiving.trouble
        return self.refuses or self.checkpoints.trouble or archive or self.clock.trouble

    # Sessions.

    def check_takes_sessions(self) -> None:
        """Raises ResourceExhausted while the process holds much more than its budget."""
        if self.watchman.memory_short is not None:
            raise self.watchman.memory_short.with_traceback(None)  # Else it keeps the frames of all that were told.

    def open_session(
        self,
        window_bytes: int,
        connection: str,
        wake: Callable[[], None],
        end: Callable[[], None],
        owner: bytes = b"",
    ) -> Session:
        """Opens a session with a window of `window_bytes` (0: the default; at most SESSION_BYTES_MAX). `wake`, `end`,
        `connection`: see Writers. `owner`: see Session. Raises ResourceExhausted while the process holds much more than
        its budget."""
        self.check_takes_sessions()
        window_bytes = min(window_bytes or SESSION_BYTES_DEFAULT, SESSION_BYTES_MAX)
        session = self.node.new_session(window_bytes, owner, connection)
        self.writers.open(session, connection, wake, end)
        return session

    def open_shared_session(self) -> Session:
        """Opens the session that all unary calls share. It has no stream, so nothing wakes it."""
        session = self.node.new_session(SESSION_BYTES_DEFAULT)
        self.dispatcher.share_among_calls(session)
        return session

    def close_session(self, session: Session, source: Source, written_bytes: int = 0) -> None:
        """Closes a session. `written_bytes`: the memory of deliveries that its transport holds; it counts until
        `transport_freed` is told of it."""
        self.dispatcher.shares.hold_written(written_bytes)
        self.writers.close(session)
        self.commit_loop.between(lambda: self.node.close_session(session, source))
        self.pull_lines.forget(source)
        self.long_work.forget(source)
        self.start_due_work()

    def transport_freed(self, written_bytes: int) -> None:
        """Notes that the transport of a session that was closed holds nothing any more."""
        self.dispatcher.shares.let_go_written(written_bytes)
        self.start_due_work()

    def abort_s(self, written_bytes: int) -> float:
        """Returns the seconds that the client of a session which ends may take to read what was written.
        `written_bytes`: see `close_session`."""
        return ABORT_CROWDED_S if written_bytes and self.dispatcher.shares.line.waiting else ABORT_S

    def refusal(self, sequence: int, error: ShoalError) -> wire.Answer:
        """Returns the answer for a frame that was refused as a whole, and counts the refusal."""
        self.state.counters.refuse(error.code)
        return wire.Answer(sequence=sequence, error=error.to_wire())

    def add_work(self, source: Source, work: Work[object], done: Done, looks: bool = False) -> None:
        """Does `work` in turns with other work: see Node.add_work."""
        self.node.add_work(source, work, done, looks)
        self._pump_wake.set()

    def start_due_work(self) -> None:
        """Wakes the sessions that have something to send. Starts the pump if work waits for it, and begins a checkpoint
        if one is due. Must be called after all that may bring such work: an ack, an attach, new room in a session."""
        self.writers.wake(self.dispatcher.dirty)
        if self.node.watching.dirty:
            self._wake_watches()
        self.commit_loop.wake()
        if not self._pump_wake.is_set() and self.node.has_turns:
            self._pump_wake.set()
        if self.commit_loop.between_records.is_set():
            self.checkpoints.consider()

    def _wake_watches(self) -> None:
        dirty = self.node.watching.dirty
        for number in dirty:
            waker = self.watch_wakers.get(number)
            if waker is not None:
                waker()
        dirty.clear()

    async def set_owned(self, map_version: int, owned: bytes) -> None:
        """Sets the partitions that this slice owns from now on. Returns when the change is durable and in force."""
        if (map_version, owned) == (self.state.map_version, self.state.owned):
            return
        done: asyncio.Future[ShoalError | None] = asyncio.get_running_loop().create_future()

        def told(error: ShoalError | None) -> None:
            if not done.done():  # The caller may have gone.
                done.set_result(error)

        payload = encode_ownership(map_version, owned)
        self.commit_loop.submit(Item(Kind.OWNERSHIP, payload, lambda _: told(None), told))
        error = await done
        if error is not None:
            raise error

    async def checkpoint_ahead(self, within_s: float) -> None:
        """Checkpoints before a stop, while the node still serves. The last checkpoint then has little to write, and the
        outage is short."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        await self.checkpointed()
                        return
                    except Unavailable:
                        await self.checkpoints.next_end()
        _log.info("the checkpoint ahead of the stop took longer than %g s: the stop goes on without it", within_s)

    async def checkpointed(self) -> None:
        """Waits until the store has everything that is applied now. Raises Unavailable if a checkpoint fails."""
        await self.checkpoints.reach(self.node.commit.applied_lsn, self.start_due_work)

    async def settled_acks(self, feeds: Collection[Feed] | None = None) -> ShoalError | None:
        """Flushes acks and waits until those of these feeds (None: all) are durable. If a flush is under way, waits for
        the next one, which a tick begins. Returns the error if the flush failed, else None."""
        done: asyncio.Future[ShoalError | None] = asyncio.get_running_loop().create_future()
        self.node.acks.then(lambda error: None if done.done() else done.set_result(error), feeds)
        await self.commit_loop.between_records.wait()
        self.node.acks.flush()
        self.commit_loop.wake()
        return await done

    @property
    def _is_used(self) -> bool:
        """Returns whether somebody has a session or a watch."""
        return bool(self.writers or self.watch_wakers)

    async def _tick(self) -> None:
        """Tells the node the time every TICK_MS, or IDLE_TICK_MS while nobody has a session and nothing is written;
        then lets the checkpoint's pages leave memory."""
        operations_seen, active_ms = 0, steady_ms()
        pause_ms = TICK_MS
        while True:
            await asyncio.sleep(pause_ms / 1000)
            await self.commit_loop.between_records.wait()
            began, now_ms = time.perf_counter(), steady_ms()
            self.node.tick(now_ms, clock.wall_ms())
            self.clock.look(clock.wall_ms(), self.state.time_ms)
            self.courier.look()
            if self.node.commit.operations != operations_seen:
                operations_seen, active_ms = self.node.commit.operations, now_ms
            self.checkpoints.rest((now_ms - active_ms) / 1000)
            # For leases that ended or a delta that grew old: on an idle node nothing else checks them.
            self.start_due_work()
            self.steps.done(began)
            pause_ms = IDLE_TICK_MS if now_ms - active_ms > IDLE_MS and not self._is_used else TICK_MS

    async def _pump(self) -> None:
        """Runs the node's turns, PUMP_SLICE_MS at a time."""
        node, between_records = self.node, self.commit_loop.between_records
        accepting = Accepting(lambda: self.watchman.unread.calls_begun)
        while True:
            await self._pump_wake.wait()
            self._pump_wake.clear()
            await between_records.wait()
            began = time.perf_counter()
            slice_end = began + PUMP_SLICE_MS / 1000
            node.tell_time(steady_ms(), clock.wall_ms())
            while node.turn():
                if time.perf_counter() > slice_end:
                    self.start_due_work()
                    self.steps.done(began)
                    await accepting.rest(DISPATCH_REST_MS if node.dispatcher.has_work else READS_REST_MS)
                    await between_records.wait()
                    began = time.perf_counter()
                    slice_end = began + PUMP_SLICE_MS / 1000
                    node.tell_time(steady_ms(), clock.wall_ms())
            self.start_due_work()
            self.steps.done(began)
