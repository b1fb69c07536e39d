"""Drives the pure node of a slice without its loop. Each call takes one step: a batch is written, or refused by a full
disk; a record is applied; dispatch or a read has a turn.

It stands in for Broker and CommitLoop towards `requests`. Both models hear of all that happens. Long because it is all
that a broker does, in one class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, cast

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_contract.journal_record import Record
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core import limits
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import (
    Kind,
    decode_acks,
    decode_change,
    decode_due,
    decode_expire,
    decode_farewells,
    decode_ownership,
    decode_reclaim,
    decode_retries,
)
from shoal_slice_node.core.dispatch.acks_in_flight import NackTerms
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.leases import Lease
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.dispatch.unsent import UnsentLists
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.node import Node as PureNode
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.read.reading import describe_key, describe_queue, peek
from shoal_slice_node.core.rows.due_row import decode_due_key, is_delayed_id
from shoal_slice_node.core.rows.log_row import decode_log
from shoal_slice_node.core.rows.small_rows import HINT, RECLAIM_PRODUCER, RECLAIM_QUEUE
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.tables import GROUP_TABLES, ROW_TABLES, Tables
from shoal_slice_node.core.turns import Done, Source, Work, finish
from tests.fuzz.deliveries import Slot
from tests.fuzz.given import Given, Way
from tests.fuzz.owed import Bounds
from tests.fuzz.owed_transactions import Transactions
from tests.fuzz.sources import source_of
from tests.slice_node.memory_base import MemoryBase

WINDOW_BYTES = 1 << 20


def waiting_for(attachment: Attachment, key_id: bytes, first: int, to: int) -> set[int]:
    """The offsets of the parcels that wait for the attachment and have some of the offsets first <= o < to."""
    parcels = [parcel for slot, parcel in attachment.session.waiting.items() if slot[0] == key_id and parcel.is_owed]
    handle, detached = attachment.handle or 0, attachment.session.detached
    mine = [one for one in parcels if handle in one.handles and detached.owner(handle, one) is None]
    some = [one for one in mine if one.low < to and one.to > first]
    return {offset for one in some for offset in range(one.low, one.to)}


class Memory(NamedTuple):
    """The bytes of the shares of dispatch."""

    deliveries: int = 1 << 40
    attached: int = 1 << 40
    owed: int = 1 << 40


class Base(MemoryBase):
    """Keeps a checkpoint in memory. As the checkpointer does, it notes keys that lost their last binding."""

    def __init__(self) -> None:
        super().__init__()
        self.lsn = 0

    def emptied(self, delta: Delta) -> list[bytes]:
        """Takes the frozen delta in. Returns the keys noted in `local_hints`."""
        pieces = list(delta.pieces())
        self.checkpoint(delta)
        lost = {
            pair[:8]: None for shape, table, flat in pieces if (shape, table) == ("remove", "binding") for pair in flat
        }
        empty = [cast(bytes, key_id) for key_id in lost if not self.tables.binding.count(cast(bytes, key_id))]
        for key_id in empty:
            self.tables.local_hints.put(key_id, HINT)
        return empty


class Client:
    """Keeps one session as its stream sees it. `lazy`: it reads only at the end of the run. `awake`: it was told that
    there is something to send. `writing`: the memory of messages that its transport has not taken yet, in bytes.
    `stopped`: it asked for nothing more for a handle."""

    def __init__(self, session: Session, lazy: bool, epoch: int) -> None:
        self.session = session
        self.lazy = lazy
        self.awake = False
        self.writing = 0
        self.stopped = False
        self.producer = b"p%05d%010d" % (epoch, session.number)
        self.sequence = 0
        self.frames: list[tuple[int, bytes]] = []


class Watched(PureNode):
    """Tells the models of each record before dispatch hears of it."""

    def __init__(self, replica: Replica, slice_node: Node, shares: DispatchShares) -> None:
        self._slice = slice_node
        moved, passed_over = list(replica._advanced), replica._passed_over
        super().__init__(replica._engine, slice_node.epoch, slice_node.now_ms, moved, shares, passed_over=passed_over)
        self.key_walk.checkpoint_lsn = lambda: slice_node.base.lsn

    def _on_effects(self, effects: Effects) -> None:
        record = self.commit._entries[0][1]
        assert record is not None
        self._slice._applied(record, effects)
        super()._on_effects(effects)
        self._slice.on_change()


class Node:
    """Drives the pure node, which is `node`. `journal`: the records above the checkpoint, applied or not."""

    def __init__(self, memory: Memory) -> None:
        self.base = Base()
        self.memory = memory
        self.journal: list[Record] = []
        self.outcomes: dict[int, bytes | None] = {}
        self.clients: dict[int, Client] = {}
        self._now_ms = 1_000_000
        self.epoch = 0
        self.given = Given()
        names = "DONE_RANGES_MAX", "AWAY_RANGES_MAX", "BINDINGS_PER_QUEUE_MAX", "ANSWERS_KEPT_MAX"
        bounds = Bounds(*(vars(limits)[name] for name in names))
        given = self.given
        self.owed = Transactions(bounds, self, given.forget, given.bound_back, given.done)
        given.came_back, given.acked_late = self.owed.deliveries.came_back, self.owed.deliveries.settled
        self._out_since_ms: dict[object, int] = {}
        """Leases of queues with an ack timeout: when all of each was seen to have reached its consumer."""
        self.on_change: Callable[[], None] = lambda: None
        self._open()

    # Starting, and what a crash leaves.

    def _open(self) -> None:
        self.epoch += 1
        self.tables = Delta(self.base)
        self.frozen_lsn: int | None = None
        replica = Replica(self.tables, self.base.lsn)
        self.state = replica.state
        self._replay(replica)
        memory = self.memory
        shares = DispatchShares(memory.deliveries, memory.attached, memory.owed)
        self.node = Watched(replica, self, shares)
        self.dispatcher = self.node.dispatcher
        self.node.watching.begin(self.epoch)
        self.shared = self.node.new_session(WINDOW_BYTES)
        self.dispatcher.share_among_calls(self.shared)
        self._listen()

    def _replay(self, replica: Replica) -> None:
        for record in self.journal:
            effects = replica.apply(record)
            if record.lsn in self.outcomes:
                assert effects.outcome == self.outcomes[record.lsn], f"replay answers record {record.lsn} otherwise"
            else:
                self._applied(record, effects)

    def crash(self, durable: int) -> None:
        """Loses power. The first `durable` of the pending records are in the journal; no client got an answer."""
        applied, before = self.state.lsn, contents(self.tables)
        batch = self.node.commit.gather(self.now_ms)
        self.journal += [record for _, record in batch.entries if record is not None][:durable]
        self.clients.clear()
        self.given.crashed()
        self._compare_replay(applied, before)
        self._open()
        self.owed.crashed()

    def _compare_replay(self, applied_lsn: int, before: dict[str, list[object]]) -> None:
        """Checks that replay gives the tables at the crash again, whenever checkpoints were made."""
        copy = Delta(self.base)
        replica = Replica(copy, self.base.lsn)
        for record in self.journal:
            if record.lsn <= applied_lsn:
                replica.apply(record)
        again = contents(copy)
        assert again == before, f"replay differs in {[name for name in again if again[name] != before[name]]}"
        kept, rows = replica.state.kept, [decode_log(row) for id, _, row in copy.log.scan() if not is_delayed_id(id)]
        assert (kept.messages, kept.body_bytes) == (sum(r.messages for r in rows), sum(r.body_bytes for r in rows))

    def _listen(self) -> None:
        """Tells the models of acks and of consumers that leave, as they happen."""
        dispatcher, attaching = self.dispatcher, self.dispatcher.attaching
        returning = attaching.returning
        acks, nack, take_back, detach = dispatcher.acks, dispatcher.nack, returning.take_back, attaching.end_attachment
        settle, was_told, told = acks._settle, acks.was_told, [False]
        stop, close = dispatcher.stop, attaching.close

        def nacking(
            attachment: Attachment,
            key_id: bytes,
            first: int,
            to: int,
            terms: NackTerms,
            lists: UnsentLists | None = None,
        ) -> int:
            stream, life = attachment.feed.streams.get(key_id), self.owed.lives.get(attachment.feed.name)
            if stream is not None and life is not None and not attachment.feed.gone:
                at = attachment.session.number, attachment.handle
                waits = waiting_for(attachment, key_id, first, to) if terms.unsent_too and first < to else set()
                self.given.nack(life, attachment, stream.key, first, to, at, terms.unseen, waits)
            return nack(attachment, key_id, first, to, terms, lists)

        def acking(
            attachment: Attachment, key_id: bytes, first: int, to: int, only_gaps: bool = False
        ) -> tuple[int, int]:
            stream = attachment.feed.streams.get(key_id)
            life = self.owed.lives.get(attachment.feed.name)
            if stream is not None and life is not None and not attachment.feed.gone and not told[0]:
                self.given.ack(life, attachment, stream.key, first, to)
                if attachment in self.given.left:  # Named by a unary ack, before the slice has taken them back.
                    held = [(low, high) for one, low, high in stream.held(first, to) if one is attachment]
                    self.given.ack_left(life, stream.key, held)
            return settle(attachment, key_id, first, to, only_gaps)

        def telling(attachment: Attachment, key_id: bytes, first: int, to: int, messages: bool = False) -> int:
            told[0] = True  # Consumers were told of a gap: nothing is acked.
            cost = was_told(attachment, key_id, first, to, messages)
            told[0] = False
            return cost

        def stopping(session: Session, handle: int) -> None:
            if handle in session.attachments:
                self.given.stopped.add(session.attachments[handle])
            stop(session, handle)

        def taking_back(attachment: Attachment) -> None:
            self.given.leave(attachment)
            take_back(attachment)

        def detaching(session: Session, handle: int) -> None:
            if handle in session.attachments:
                self.given.detach(session.number, handle)
                self.given.left.add(session.attachments[handle])
            detach(session, handle)

        def closing(session: Session) -> None:
            for attachment in (*session.attachments.values(), *session.pullers.values()):
                self.given.leave(attachment)  # It may be given to others before the session's turn comes.
            close(session)

        attaching.close = closing  # type: ignore[method-assign]
        dispatcher.nack, dispatcher.stop = nacking, stopping  # type: ignore[method-assign]
        acks._settle, acks.was_told = acking, telling  # type: ignore[method-assign]
        returning.take_back, attaching.end_attachment = taking_back, detaching  # type: ignore[method-assign]
        self._listen_to_acks_of_lost_streams()

    def _listen_to_acks_of_lost_streams(self) -> None:
        acks = self.dispatcher.acks
        ack_anywhere = acks.ack_anywhere

        def acking_anywhere(attachment: Attachment, key_id: bytes, first: int, to: int) -> int:
            stream, row = attachment.feed.streams.get(key_id), self.state.key_by_id(key_id)
            life = self.owed.lives.get(attachment.feed.name)
            if stream is None or row is None or life is None or len(stream.done or ()) >= limits.DONE_RANGES_MAX:
                return ack_anywhere(attachment, key_id, first, to)
            begin, end = max(first, stream.cursor, row[1].low), min(to, stream.end or to, row[1].head)
            before = stream.unacked(begin, end)
            cost = ack_anywhere(attachment, key_id, first, to)
            after = {offset for low, high in stream.unacked(begin, end) for offset in range(low, high)}
            acked = {offset for low, high in before for offset in range(low, high)}
            acked -= {offset for offset in after if offset >= stream.cursor}
            self.given.ack_anywhere(life, stream.key, acked)
            return cost

        acks.ack_anywhere = acking_anywhere  # type: ignore[method-assign]

    @property
    def now_ms(self) -> int:
        return self._now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._now_ms = self.node.maintenance.now_ms = now_ms

    # For `requests`, this object is the broker and its own commit loop.

    @property
    def between_records(self) -> asyncio.Event:
        """Returns an event that is always set: records are applied in one go here."""
        whole = asyncio.Event()
        whole.set()
        return whole

    @property
    def commit_loop(self) -> Node:
        return self

    def submit(self, item: Item, source: Hashable = None) -> None:
        self.node.commit.submit(item, source)

    def add_work(self, source: Source, work: Work[object], done: Done, looks: bool = False) -> None:
        self.node.add_work(source, work, done, looks)

    @property
    def refuses(self) -> str:
        """Returns nothing: the node always takes changes."""
        return ""

    def check_takes_changes(self, frees: bool = False) -> None:
        """Raises nothing: the node always takes changes."""

    def start_due_work(self) -> None:
        """Does nothing: the run takes the steps itself."""

    def refusal(self, sequence: int, error: ShoalError) -> wire.Answer:
        return wire.Answer(sequence=sequence, error=error.to_wire())

    # For the model of what is owed: facts that the slice's answers do not tell.

    def key(self, key: bytes) -> wire.KeyDescription:
        return describe_key(self.state, key)

    def depths(self, queue: bytes) -> Mapping[bytes, int]:
        described = describe_queue(self.state, queue, 1 << 30)
        return {binding.key: binding.messages for binding in described.bindings}

    def incarnation(self, queue: bytes) -> int:
        return describe_queue(self.state, queue, 0).incarnation

    # The journal.

    @property
    def busy(self) -> bool:
        """Tells whether something is not written, not applied or not read yet."""
        return bool(self.node.commit or self.node.commit.to_apply or self.node.turns)

    def write(self, items: int) -> None:
        """Makes a batch of up to so many items durable."""
        batch = self.node.commit.gather(self.now_ms, items)
        self.journal += [record for _, record in batch.entries if record is not None]
        self.node.commit.written()

    def refuse(self, items: int) -> None:
        """Refuses a batch of up to so many items, as on a full disk. Items that need no disk go on."""
        self.node.commit.gather(self.now_ms, items)
        self.node.commit.refused(ResourceExhausted("the disk is full"))

    def apply(self, entries: int) -> None:
        commit = self.node.commit
        for _ in range(min(entries, commit.to_apply)):
            left = commit.to_apply
            while commit.to_apply == left:
                commit.step()
            self.on_change()

    def _applied(self, record: Record, effects: Effects) -> None:
        """Tells the model of an applied record."""
        self.outcomes[record.lsn] = effects.outcome
        owed = self.owed
        if record.kind == Kind.CHANGE:
            owed.begins(record.lsn, record.time_ms)
            head, data = decode_change(record.payload)
            owed.changed(head, wire.Change.FromString(data), effects.outcome, effects.refused)
            for life in owed.lives.values():
                life.queue_id = life.queue_id or self.tables.queue_by_name.get(life.name) or b""
        elif record.kind == Kind.ACKS:
            self._acks_applied(record, effects)
        elif record.kind == Kind.EXPIRE:
            owed.begins(record.lsn, record.time_ms)
            decided_lsn, expired = decode_expire(record.payload)
            names = []
            for number, (queue_id, name) in enumerate(expired):
                ended = owed.lives.get(name)
                if ended is not None and ended.queue_id == queue_id and ended.renewed_lsn <= decided_lsn:
                    names.append((number, name))
            owed.farewells.ended(owed, names, [entry and entry[1] for entry in effects.published])
        elif record.kind == Kind.FAREWELL:
            owed.begins(record.lsn, record.time_ms)
            rows = decode_farewells(record.payload)
            owed.farewells.said(owed, *rows, [entry and entry[1] for entry in effects.published])
        elif record.kind == Kind.RETRY:
            owed.begins(record.lsn, record.time_ms)
            self._retried(record, effects)
        elif record.kind == Kind.OWNERSHIP:
            owed.owned = decode_ownership(record.payload)[1]
        elif record.kind == Kind.DUE:
            owed.begins(record.lsn, record.time_ms)
            numbers = [decode_due_key(due.row_key)[::2] for due in decode_due(record.payload)]
            owed.delayed.due(owed, numbers, [entry and entry[1] for entry in effects.published])
        else:
            owed.maintained()
            for row in decode_reclaim(record.payload) if record.kind == Kind.RECLAIM else ():
                if row[:1] == RECLAIM_PRODUCER and self.tables.producer.get(row[1:17]) is None:
                    owed.answers.pop(row[1:17], None)
        if owed.dropped and not any(self.tables.reclaim.scan(RECLAIM_QUEUE)):
            owed.dropped.clear()

    def _retried(self, record: Record, effects: Effects) -> None:
        lives = {life.queue_id: life for life in self.owed.lives.values()}
        found = [
            (retry, (lives[retry.queue_id], name[0][2:]))
            for retry in decode_retries(record.payload)[1]
            if retry.queue_id in lives and (name := self.state.key_by_id(retry.key_id)) is not None
        ]
        left = {
            Slot(life.number, delivery.key, offset)
            for life in {life.number: life for _, (life, _) in found}.values()
            for delivery in finish(peek(self.state, life.queue_id, 1 << 40, 1 << 40))
            for offset in range(delivery.low, delivery.to)
        }
        deliveries = self.owed.deliveries
        deliveries.retried(self.owed, [retry for retry, _ in found], [named for _, named in found], left)
        deliveries.publish_copies(self.owed, [entry and entry[1] for entry in effects.published])

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
        """Takes up to so many turns of dispatch."""
        for _ in range(turns):
            if not self.dispatcher.turn():
                return
            self.on_change()

    def work(self, steps: int) -> None:
        """Takes up to so many steps of reads, attaches and acks."""
        for _ in range(steps):
            if not self.node.turns:
                return
            self.node.turns.step()
            self.on_change()

    def expire(self) -> None:
        """Ends leases that are over: as many as one tick takes. The others end with later ones."""
        leases = self.node.dispatcher.registry.leases
        leases.begin_open(self.now_ms)
        while leases._open or leases._sending:  # More than begin with one tick.
            leases.begin_open(self.now_ms)
        ending = [
            lease for until_ms, _, lease in leases._heap if until_ms <= self.now_ms and lease.until_ms == until_ms
        ]
        self._check_ack_timeouts(set(ending))
        timeouts = self.node.dispatcher.registry.timeouts
        timeouts.tick(self.now_ms)
        lined_up = {lease for of_session in timeouts.ending.values() for lease, _, _ in of_session}
        over: set[object] = {lease for lease in lined_up if not lease.parcel}
        while timeouts.ending:
            timeouts.turn(1)
        self.given.leases_over(over)
        self.given.withdrawn({lease for lease in lined_up if lease not in over}, self._waiting)

    def _check_ack_timeouts(self, ending: set[object]) -> None:
        """Checks that what reached a consumer with an ack timeout comes back when that is over, and not before."""
        before, self._out_since_ms = self._out_since_ms, {}
        for lease in self.given.leases():
            assert isinstance(lease, Lease)
            if lease.attachment.handle is None or self.given.on_its_way(lease):
                continue
            if lease.parcel > lease.attachment.session.sent_to:
                continue  # What was acked before it was sent is on its way still, and its lease waits for it.
            since_ms = self._out_since_ms[lease] = before.get(lease, self.now_ms)
            over = self.now_ms - since_ms >= lease.attachment.feed.ack_timeout_ms
            assert over == (lease in ending), f"what is out since {since_ms} comes back at {self.now_ms}, or does not"

    def _waiting(self, session: int, way: Way) -> int:
        client = self.clients.get(session)
        waiting = () if client is None else client.session.waiting.values()
        return sum(
            way.handle in parcel.handles and parcel.key == way.key and parcel.low <= way.offset < parcel.to
            for parcel in waiting
            if parcel.is_owed and not parcel.is_gap
        )

    def decide_retries(self) -> None:
        """Lets the node write how often messages came back, and what becomes of them."""
        self.node.maintenance.do("retry")

    def end_delays(self) -> None:
        """Begins delays of nacks, and ends those that are over."""
        self.dispatcher.returns.tick(self.now_ms)

    def end_idle_queues(self) -> None:
        """Lets the node decide which transient queues end. None of them is consumed, or was a moment ago."""
        lives = {life.queue_id: life for life in self.owed.lives.values()}
        for queue_id, life in lives.items():
            if self.dispatcher.registry.is_consumed(queue_id):
                life.idle_since_ms = self.now_ms
        before = set(self.dispatcher.transients.ending)
        self.node.maintenance.do("expire")
        for queue_id in self.dispatcher.transients.ending - before:
            idle_ms = self.now_ms - lives[queue_id].idle_since_ms
            assert idle_ms >= 1000 * lives[queue_id].expires_after_s > 0, f"{lives[queue_id].name!r} ends early"

    def say_farewells(self) -> None:
        """Lets the node decide which farewells are due. None of their queues is consumed, or was a moment ago."""
        lives = {life.queue_id: life for life in self.owed.lives.values()}
        for queue_id, life in lives.items():
            if self.dispatcher.registry.is_consumed(queue_id):
                self.owed.farewells.left_ms[life.name] = self.now_ms
        before = self.dispatcher.farewells._proposed
        self.node.maintenance.do("farewell")
        if self.dispatcher.farewells._proposed is not before:
            for queue_id in self.dispatcher.farewells._proposed:
                assert queue_id in lives, "a farewell of a queue that is not there is to be said"
                self.owed.farewells.check_time(lives[queue_id].name, self.now_ms)

    # Checkpoints.

    def freeze(self) -> None:
        if self.frozen_lsn is None:
            self.state.save_local()
            self.tables.freeze()
            self.frozen_lsn = self.state.lsn

    def checkpoint(self) -> None:
        if self.frozen_lsn is not None:
            emptied = self.base.emptied(self.tables)
            self.base.lsn, self.frozen_lsn = self.frozen_lsn, None
            self.journal = [record for record in self.journal if record.lsn > self.base.lsn]
            self.node.reclaims.note_keys(emptied)

    # Sessions.

    def open(self, window_bytes: int, lazy: bool) -> Client:
        session = self.node.new_session(window_bytes, connection="abcd"[len(self.clients) % 4])
        client = self.clients[session.number] = Client(session, lazy, self.epoch)
        return client

    def close(self, client: Client) -> None:
        session = client.session
        del self.clients[session.number]
        self.node.close_session(session, source_of(session))
        self.given.closes(session.number)

    def wake(self) -> None:
        """Tells streams that they have something to send, and closes sessions that the slice ends."""
        for number in self.dispatcher.dirty:
            client = self.clients.get(number)
            if client is not None:
                client.awake = True
        self.dispatcher.dirty.clear()
        for client in [client for client in self.clients.values() if client.session.ended_by is not None]:
            self.close(client)


def contents(tables: Tables) -> dict[str, list[object]]:
    """Returns all rows but those of a node's own tables: these depend on when checkpoints were made."""
    found: dict[str, list[object]] = {name: list(getattr(tables, name).scan()) for name in ROW_TABLES}
    for name in (*GROUP_TABLES, "log"):
        found[name] = list(getattr(tables, name).scan())
    return found
