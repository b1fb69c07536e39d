"""A slice without its loop: core, dispatch and the adapters that need no asyncio, wired as the broker wires them. Each
call takes one step: a batch is written, or refused by a full disk; a record is applied; dispatch or a read has a turn.

It stands in for Broker, CommitLoop and Writers towards `requests`, AckFlush and Maintenance. Both models are told of
all that happens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple, cast

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_contract.journal_record import Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.ack_flush import AckFlush
from shoal_slice_node.adapters.commit_loop import Item
from shoal_slice_node.adapters.maintenance import Maintenance
from shoal_slice_node.core import limits
from shoal_slice_node.core.delta import Delta
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.dispatch.feeds import Attachment
from shoal_slice_node.core.dispatch.pulling import Puller
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.engine import Engine
from shoal_slice_node.core.frames import Checked
from shoal_slice_node.core.reading import describe_key, describe_queue
from shoal_slice_node.core.reclaim_list import ReclaimList
from shoal_slice_node.core.records import Kind, decode_acks, decode_change, decode_ownership, decode_reclaim
from shoal_slice_node.core.rows.log_row import decode_log
from shoal_slice_node.core.rows.small_rows import CANDIDATE, KEPT, RECLAIM_KEY, RECLAIM_PRODUCER, RECLAIM_QUEUE
from shoal_slice_node.core.tables import GROUP_TABLES, ROW_TABLES, Tables
from shoal_slice_node.core.trimmer import Trimmer
from shoal_slice_node.core.turns import Done, Source, Turns, Work
from shoal_slice_node.core.watch import Watch
from tests.fuzz.given import Given
from tests.fuzz.owed import Bounds, Owed
from tests.fuzz.sources import made, source_of
from tests.slice_node.memory_base import MemoryBase

_NOTHING = Effects()
WINDOW_BYTES = 1 << 20


class Memory(NamedTuple):
    """Bytes of the shares of dispatch."""

    deliveries: int = 1 << 40
    attached: int = 1 << 40
    owed: int = 1 << 40


class Base(MemoryBase):
    """A checkpoint in memory: as the checkpointer does, it notes keys that lost their last binding."""

    def __init__(self) -> None:
        super().__init__()
        self.lsn = 0

    def emptied(self, delta: Delta) -> list[bytes]:
        """Takes the frozen delta in. Returns the rows put into `reclaim`."""
        pieces = list(delta.pieces())
        self.checkpoint(delta)
        lost = {
            pair[:8]: None for shape, table, flat in pieces if (shape, table) == ("remove", "binding") for pair in flat
        }
        rows = [
            RECLAIM_KEY + cast(bytes, key_id) for key_id in lost if not self.tables.binding.count(cast(bytes, key_id))
        ]
        for row in rows:
            self.tables.reclaim.put(row, CANDIDATE)
        return rows


class Client:
    """One session as its stream sees it. `lazy`: reads only at the end of the run. `awake`: it was told that there is
    something to send. `writing`: memory of what its transport has not taken yet."""

    def __init__(self, session: Session, lazy: bool) -> None:
        self.session = session
        self.lazy = lazy
        self.awake = False
        self.writing = 0
        self.producer = b"p%015d" % session.number
        self.sequence = 0
        self.frames: list[tuple[int, bytes]] = []


class Node:
    """`journal`: records above the checkpoint, applied or not. `written`: durable and not applied. `pending`: not
    written."""

    def __init__(self, memory: Memory) -> None:
        self.base = Base()
        self.memory = memory
        self.journal: list[Record] = []
        self.outcomes: dict[int, bytes | None] = {}
        self.pending: deque[Item] = deque()
        self.written: deque[tuple[Item, Record | None]] = deque()
        self.clients: dict[int, Client] = {}
        self.now_ms = 1_000_000
        self.epoch = 0
        self.sessions = 0
        self.given = Given()
        names = "DONE_RANGES_MAX", "AWAY_RANGES_MAX", "BINDINGS_PER_QUEUE_MAX", "ANSWERS_KEPT_MAX"
        bounds = Bounds(*(vars(limits)[name] for name in names))
        self.owed = Owed(bounds, self, self.given.forget, self.given.bound_back)
        self.on_change: Callable[[], None] = lambda: None
        self._open()

    # Starting, and what a crash leaves.

    def _open(self) -> None:
        self.epoch += 1
        self.tables = Delta(self.base)
        self.frozen_lsn: int | None = None
        engine = self.engine = Engine(self.tables, Watch())
        state = self.state = engine.state
        state.lsn = self.base.lsn
        moved = self._replay()
        memory = self.memory
        dispatcher = self.dispatcher = Dispatcher(
            state, DispatchShares(memory.deliveries, memory.attached, memory.owed)
        )
        self.puller = Puller(state, dispatcher)
        self.trimmer = Trimmer(state)
        self.trimmer.moved(moved, self.now_ms)
        self.turns = Turns()
        self.reclaims = ReclaimList(self.tables.reclaim)
        self.acks = AckFlush(cast(Any, self), dispatcher)
        self.maintenance = Maintenance(
            cast(Any, self), state, self.acks, self.reclaims, self.puller, self.trimmer, cast(Any, None), lambda: None
        )
        self.shared = self._session(WINDOW_BYTES)
        self._listen()

    def _replay(self) -> list[bytes]:
        moved: dict[bytes, None] = {}
        for record in self.journal:
            effects = self.engine.apply(record)
            moved.update(dict.fromkeys(effects.moved))
            if record.lsn in self.outcomes:
                assert effects.outcome == self.outcomes[record.lsn], f"replay answers record {record.lsn} otherwise"
            else:
                self._applied(record, effects)
        return list(moved)

    def crash(self, durable: int) -> None:
        """Power is lost: of what is pending the first `durable` records are in the journal, and nobody was told."""
        applied, before = self.state.lsn, contents(self.tables)
        self._append([item for item in map(made, self.pending) if item.payload is not None][:durable])
        self.pending.clear()
        self.written.clear()
        self.clients.clear()
        self.given.crashed()
        self._compare_replay(applied, before)
        self._open()
        self.owed.crashed()

    def _compare_replay(self, applied_lsn: int, before: dict[str, list[object]]) -> None:
        """The tables at the crash come again, whatever was checkpointed when."""
        copy = Delta(self.base)
        engine = Engine(copy)
        engine.state.lsn = self.base.lsn
        for record in self.journal:
            if record.lsn <= applied_lsn:
                engine.apply(record)
        again = contents(copy)
        assert again == before, f"replay differs in {[name for name in again if again[name] != before[name]]}"
        kept, rows = engine.state.kept, [decode_log(row) for _, _, row in copy.log.scan()]
        assert (kept.messages, kept.body_bytes) == (sum(r.messages for r in rows), sum(r.body_bytes for r in rows))

    def _listen(self) -> None:
        """The models hear of acks and of consumers that leave, as they happen."""
        dispatcher, attaching = self.dispatcher, self.dispatcher.attaching
        ack, take_back, detach = dispatcher.ack, attaching.take_back, attaching.detach

        def acking(attachment: Attachment, key_id: bytes, first: int, to: int) -> int:
            stream = attachment.feed.streams.get(key_id)
            life = self.owed.lives.get(attachment.feed.name)
            if stream is not None and life is not None and not attachment.feed.gone:
                self.given.ack(life, attachment, stream.key, first, to)
            return ack(attachment, key_id, first, to)

        def taking_back(attachment: Attachment) -> None:
            self.given.leave(attachment)
            take_back(attachment)

        def detaching(session: Session, handle: int) -> None:
            if handle in session.attachments:
                self.given.detach(session.number, handle)
                self.given.left.add(session.attachments[handle])
            detach(session, handle)

        dispatcher.ack, attaching.take_back, attaching.detach = acking, taking_back, detaching  # type: ignore[method-assign]

    # Towards `requests` it is the broker, and its own commit loop.

    @property
    def between_records(self) -> asyncio.Event:
        """Records are applied at one go here."""
        whole = asyncio.Event()
        whole.set()
        return whole

    @property
    def commit(self) -> Node:
        return self

    @property
    def applied_lsn(self) -> int:
        return self.state.lsn

    def submit(self, item: Item, source: Hashable = None) -> None:
        self.pending.append(item)

    def add_work(self, source: Source, work: Work[object], done: Done) -> None:
        self.turns.add(source, work, done)

    def check_takes_changes(self) -> None:
        """Always."""

    def after_event(self) -> None:
        """Steps are taken anyhow."""

    def refusal(self, sequence: int, error: ShoalError) -> wire.Answer:
        return wire.Answer(sequence=sequence, error=error.to_wire())

    # Towards the model of what is owed it answers what answers do not tell.

    def key(self, key: bytes) -> wire.KeyDescription:
        return describe_key(self.state, key)

    def depths(self, queue: bytes) -> Mapping[bytes, int]:
        described = describe_queue(self.state, queue, 0, 1 << 30)
        return {binding.key: binding.messages for binding in described.bindings}

    def incarnation(self, queue: bytes) -> int:
        return describe_queue(self.state, queue, 0, 0).incarnation

    # The journal.

    def write(self, items: int) -> None:
        """A batch of so many is durable."""
        batch = [made(self.pending.popleft()) for _ in range(min(items, len(self.pending)))]
        records = iter(self._append([item for item in batch if item.payload is not None]))
        self.written += [(item, None if item.payload is None else next(records)) for item in batch]

    def _append(self, items: list[Item]) -> list[Record]:
        last = self.journal[-1].lsn if self.journal else self.base.lsn
        records = [
            Record(item.kind, 0, lsn, self.epoch, self.now_ms, item.payload or b"")
            for lsn, item in enumerate(items, last + 1)
        ]
        self.journal += records
        return records

    def refuse(self, items: int) -> None:
        """A batch of so many meets a full disk: what needs no disk goes on."""
        batch = [made(self.pending.popleft()) for _ in range(min(items, len(self.pending)))]
        self.written += [(item, None) for item in batch if item.payload is None]
        for item in batch:
            if item.payload is not None:
                item.failed(ResourceExhausted("the disk is full"))

    def apply(self, entries: int) -> None:
        for _ in range(min(entries, len(self.written))):
            item, record = self.written.popleft()
            effects = _NOTHING if record is None else self._apply(record, item.checked)
            item.applied(effects)
            self.on_change()

    def _apply(self, record: Record, checked: Checked | None) -> Effects:
        effects = self.engine.apply(record, checked)
        self._applied(record, effects)
        if effects.events or effects.created or effects.dropped:
            self.dispatcher.applied(effects)
        if effects.reclaim:
            self.reclaims.note(effects.reclaim)
        if effects.moved:
            self.trimmer.moved(effects.moved, self.now_ms)
        self.on_change()
        return effects

    def _applied(self, record: Record, effects: Effects) -> None:
        """Tells the model."""
        self.outcomes[record.lsn] = effects.outcome
        owed = self.owed
        if record.kind == Kind.CHANGE:
            owed.lsn, owed.time_ms = record.lsn, record.time_ms
            head, data = decode_change(record.payload)
            owed.changed(head, wire.Change.FromString(data), effects.outcome, effects.refused)
            for life in owed.lives.values():
                life.queue_id = life.queue_id or self.tables.queue_by_name.get(life.name) or b""
        elif record.kind == Kind.ACKS:
            self._acks_applied(record, effects)
        elif record.kind == Kind.OWNERSHIP:
            owed.owned = decode_ownership(record.payload)[1]
        else:
            owed.maintained()
            for row in decode_reclaim(record.payload) if record.kind == Kind.RECLAIM else ():
                if row[:1] == RECLAIM_PRODUCER and self.tables.producer.get(row[1:17]) is None:
                    owed.answers.pop(row[1:17], None)
        if owed.dropped and not any(self.tables.reclaim.scan(RECLAIM_QUEUE)):
            owed.dropped.clear()

    def _acks_applied(self, record: Record, effects: Effects) -> None:
        if effects.acks_skipped:
            return
        lives = {life.queue_id: life for life in self.owed.lives.values()}
        taken_at_lsn, acks = decode_acks(record.payload)
        for queue_id, key_id, first, to in acks:
            life, found = lives.get(queue_id), self.state.key_by_id(key_id)
            if life is not None and found is not None:
                self.owed.acks_applied(life, found[0][2:], first, to, taken_at_lsn)

    # Turns.

    def turn(self, turns: int) -> None:
        """Steps of dispatch."""
        for _ in range(turns):
            if not self.dispatcher.turn():
                return
            self.on_change()

    def work(self, steps: int) -> None:
        """Steps of reads, attaches and acks."""
        for _ in range(steps):
            if not self.turns:
                return
            self.turns.step()
            self.on_change()

    def expire(self) -> None:
        """Leases that are over end."""
        heap = self.puller.leases._heap
        over: set[object] = {lease for until_ms, _, lease in heap if until_ms <= self.now_ms}
        while self.puller.expire(self.now_ms):
            pass
        self.given.leases_over(over)

    # Checkpoints.

    def freeze(self) -> None:
        if self.frozen_lsn is None:
            self.state.kept.save()
            self.tables.freeze()
            self.frozen_lsn = self.state.lsn

    def checkpoint(self) -> None:
        if self.frozen_lsn is not None:
            emptied = self.base.emptied(self.tables)
            self.base.lsn, self.frozen_lsn = self.frozen_lsn, None
            self.journal = [record for record in self.journal if record.lsn > self.base.lsn]
            self.reclaims.note(emptied)

    # Sessions.

    def _session(self, window_bytes: int) -> Session:
        self.sessions += 1
        return Session(self.sessions, window_bytes)

    def open(self, window_bytes: int, lazy: bool) -> Client:
        session = self._session(window_bytes)
        client = self.clients[session.number] = Client(session, lazy)
        return client

    def close(self, client: Client) -> None:
        session = client.session
        del self.clients[session.number]
        self.turns.drop(source_of(session))
        self.dispatcher.close(session)
        self.given.ways.pop(session.number, None)

    def wake(self) -> None:
        """Streams are told that they have something to send, or that the slice ends them."""
        for number in self.dispatcher.dirty:
            client = self.clients.get(number)
            if client is not None:
                client.awake = True
        self.dispatcher.dirty.clear()
        for client in [client for client in self.clients.values() if client.session.ended_by is not None]:
            self.close(client)


def contents(tables: Tables) -> dict[str, list[object]]:
    """All rows, but for hints of where to look: those depend on when checkpoints were made."""
    found: dict[str, list[object]] = {name: list(getattr(tables, name).scan()) for name in ROW_TABLES}
    found["reclaim"] = [row for row in tables.reclaim.scan() if row[0][:1] != RECLAIM_KEY]
    found["meta"] = [row for row in tables.meta.scan() if row[0] != KEPT]
    for name in (*GROUP_TABLES, "log"):
        found[name] = list(getattr(tables, name).scan())
    return found
