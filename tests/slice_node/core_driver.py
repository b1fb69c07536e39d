"""Drives the pure node, one record at a time: for tests of core and dispatch.

Sessions here take what waits for them with `take`; acks reach the tables with `flush`; `settle` ticks until nothing is
left to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from shoal_contract.chunk import encode_chunk, parse_chunk
from shoal_contract.errors import ShoalError
from shoal_contract.journal_record import Record
from shoal_contract.limits import FRAME_OPERATIONS_MAX
from shoal_contract.options import KeyOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.interest import Interest
from shoal_slice_node.core.apply.records import (
    NO_PRODUCER,
    ChangeHead,
    Kind,
    Trim,
    encode_acks,
    encode_change,
    encode_ownership,
    encode_trims,
)
from shoal_slice_node.core.dispatch.acks_in_flight import AckBatch
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.pulling import PullTerms
from shoal_slice_node.core.dispatch.served import silent_streams
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.dispatch.stretches import GAP
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.core.node.live_changes import publish_live
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import Detail, detail_key, encode_detail
from shoal_slice_node.core.rows.key_row import ID
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work, finish
from shoal_slice_node.core.verbs.changes import Checked, check_change, parse_change
from shoal_slice_node.core.verbs.engine import Engine

PARTITIONS = 4
WALL_AHEAD_MS = 1_700_000_000_001
"""The machine's clock and the one that only grows are far apart, so that no test passes if one stands for the other."""
Piece = TypeVar("Piece")
Result = TypeVar("Result")
Message = tuple[str, int, bytes]
"""Key, offset, body."""


def bodies_of(delivery: wire.Delivery) -> list[Message]:
    bodies = parse_chunk(delivery.chunk).bodies
    offsets = range(delivery.low, delivery.to)
    return [(delivery.key.decode(), offset, bodies[offset - delivery.first]) for offset in offsets]


class CoreDriver:
    """`records`: all that was applied, for replays. `gaps`: what sessions were told of, in their order."""

    def __init__(self, tables: Tables | None = None, owned: bytes = b"\x01" * PARTITIONS) -> None:
        self.tables = tables or MemoryTables()
        self.engine = Engine(self.tables, Interest())
        self.state = self.engine.state
        self.records: list[Record] = []
        self.gaps: list[wire.Gap] = []
        self.now_ms = 1_000
        self.wall_ahead_ms = WALL_AHEAD_MS
        self.restart()
        self.record(Kind.OWNERSHIP, encode_ownership(1, owned))

    def restart(self, shares: DispatchShares | None = None, advanced: Sequence[bytes] = ()) -> None:
        """A node that knows nothing but what is in the tables. `advanced`: the keys that a replay of the journal finds
        changed."""
        self.node = Node(self.engine, 1, self.now_ms, advanced, shares)
        self.dispatcher = self.node.dispatcher
        self.puller = self.node.puller
        self.trimmer = self.node.trimmer

    @property
    def wall_ms(self) -> int:
        """What the machine's clock shows: `wall_ahead_ms` ahead of the one that only grows."""
        return self.now_ms + self.wall_ahead_ms

    def record(self, kind: Kind, payload: bytes, checked: Checked | None = None) -> Effects:
        found: list[Effects] = []
        self.node.commit.submit(Item(kind, payload, found.append, raises, checked))
        self.commit()
        return found[0]

    def commit(self) -> None:
        """All that is asked is written and applied."""
        commit = self.node.commit
        while commit:
            batch = commit.gather(self.wall_ms)
            self.records += [record for _, record in batch.entries if record is not None]
            commit.written()
            while commit.to_apply:
                commit.step()

    def change(self, *steps: wire.Step, head: ChangeHead | None = None, atomic: bool = False) -> wire.Outcome:
        """The outcome; raises what refused the whole frame."""
        data = wire.Change(steps=steps, atomic=atomic).SerializeToString()
        # As a session does it, where the leader must decide something: the change is parsed before.
        checked = check_change(data) if any(step.drops.if_unused for step in steps) else None
        effects = self.record(Kind.CHANGE, encode_change(head or ChangeHead(NO_PRODUCER, 0, 0), data), checked)
        if effects.refused is not None:
            raise effects.refused
        assert effects.outcome is not None
        return wire.Outcome.FromString(effects.outcome)

    def live(self, *steps: wire.Step) -> wire.Answer:
        """A change of live publishes, in its place behind what was asked before."""
        found = wire.Answer()
        self.node.commit.submit(self.live_item(found, *steps))
        self.commit()
        return found

    def live_item(self, answer: wire.Answer, *steps: wire.Step) -> Item:
        data = wire.Change(steps=steps).SerializeToString()
        checked = parse_change(data)
        assert checked.live
        work = partial(publish_live, self.node, checked, answer)
        operations = checked.operations
        return Item(0, None, lambda _: None, raises, operations=operations, work=work, work_bytes=len(data))

    def change_all(self, steps: Iterable[wire.Step]) -> None:
        """In as many frames as it takes: one step each has is one queue or key."""
        for some in _batches(steps, FRAME_OPERATIONS_MAX):
            self.change(*some)

    def declare(self, names: Iterable[str]) -> None:
        """Queues, in as many frames as it takes."""
        for some in _batches(names, FRAME_OPERATIONS_MAX):
            self.change(declare(*some))

    def session(self, window_bytes: int = 1 << 20, connection: str = "") -> Session:
        return self.node.new_session(window_bytes, connection=connection)

    def attach(self, session: Session, queue: str, handle: int = 1, messages: int = 1000, size: int = 1 << 20) -> bool:
        begun = self.dispatcher.attach(session, queue.encode(), handle, messages, size)
        return begun.life > 0 and not begun.refused

    def pump(self) -> None:
        while self.dispatcher.turn():
            pass
        self.check_served()

    def check_served(self) -> None:
        """No binding is silent, and no window is exceeded."""
        silent = [found.reason for found in silent_streams(self.dispatcher, self.dispatcher.feeds.values())]
        assert not silent, silent
        for feed in self.dispatcher.feeds.values():
            for attachment in feed.attachments.values():
                assert within_window(attachment)

    def deliveries(self, session: Session) -> list[wire.Delivery]:
        """All that the session can get now, as if its client read at once."""
        found: list[wire.Delivery] = []
        self.pump()
        self.dispatcher.reads(session)
        self.pump()
        while session.waiting:
            taken = self.dispatcher.take(session, 1 << 20)
            self.dispatcher.dirty.pop(session.number, None)
            self.gaps += taken.gaps
            found += taken.deliveries
            self.dispatcher.sent(session, taken.cost_bytes)
            self.pump()
        return found

    def take(self, session: Session) -> list[Message]:
        return [message for delivery in self.deliveries(session) for message in bodies_of(delivery)]

    def ack(self, session: Session, key: str, low: int, to: int, handle: int = 1) -> None:
        attachment = session.attachments.get(handle)
        row = self.tables.key.get(self.state.full_name(key.encode()))
        if attachment is not None and row is not None:
            self.dispatcher.ack(attachment, row[ID], low, to)

    def pull(self, session: Session, queue: str, messages: int, lease_ms: int = 0) -> list[wire.Delivery]:
        queue_id = self.tables.queue_by_name.get(queue.encode())
        assert queue_id is not None
        terms = PullTerms(messages, 0, lease_ms)
        parcels = finish(self.pumped(self.puller.pull(session, queue_id, terms, lambda: self.now_ms)))
        self.gaps += [parcel.to_gap() for parcel in parcels if parcel.is_gap]
        return [parcel.to_wire() for parcel in parcels if not parcel.is_gap]

    def pumped(self, work: Work[Result]) -> Work[Result]:
        """The same work; the pump has a turn between two steps, as it may have to load a queue."""
        while True:
            try:
                next(work)
            except StopIteration as stop:
                result: Result = stop.value
                return result
            self.dispatcher.turn()
            yield

    def end_leases(self) -> None:
        """Those that are over."""
        timeouts = self.dispatcher.registry.timeouts
        timeouts.tick(self.now_ms)
        while timeouts.ending:
            timeouts.turn(1)

    def take_acks(self, cost_max: int = 1 << 30) -> tuple[AckBatch, int]:
        """The acks of the next record, and the LSN at which they were taken."""
        acks = self.dispatcher.acks
        if not acks.flushing:
            acks.begin_flush()
        return acks.take(cost_max), self.state.lsn

    def apply_acks(self, batch: AckBatch, taken_at_lsn: int) -> None:
        effects = self.record(Kind.ACKS, encode_acks(batch.acks, taken_at_lsn))
        if effects.acks_skipped:
            self.dispatcher.acks.failed(batch)
        else:
            self.dispatcher.acks.applied(batch)

    def flush(self) -> None:
        """Acks, and gaps that left with a pull's answer, reach the tables, as a tick begins it."""
        while self.dispatcher.acks.gaps_left:
            self.dispatcher.acks.gaps_turn(1)
        while self.node.acks.flush() or self.node.commit:
            self.commit()

    def trim(self) -> list[Trim]:
        """One turn of the trimmer, and what it found applied."""
        trims = self.trimmer.turn(self.now_ms)
        if trims:
            self.record(Kind.TRIM, encode_trims(trims))
        return trims

    def maintain(self) -> bool:
        """One tick, and all that comes of it; False: no record did."""
        before = self.state.lsn
        self.node.tick(self.now_ms, self.wall_ms)
        while self.node.turn() or self.node.commit:
            self.commit()
        return self.state.lsn != before

    def settle(self) -> None:
        for _ in range(1000):
            self.now_ms += 1000
            if not self.maintain() and not self.trimmer.pending:
                return
        raise AssertionError("maintenance does not end")

    def check(self) -> None:
        problems = list(check_tables(self.tables))
        assert not problems, "\n".join(map(str, problems))


def within_window(attachment: Attachment) -> bool:
    """Whether it has no more messages than its window allows; one that was stopped has none. A gap may be larger, and
    closes it until it is told."""
    if attachment.messages <= attachment.window_messages or not attachment.window_messages:
        return True
    out = (one for stream in attachment.feed.streams.values() for one in stream.out)
    gaps = sum(one.to - one.first for one in out if one.attachment is attachment and one.times == GAP)
    return attachment.messages - gaps <= attachment.window_messages


def raises(error: ShoalError) -> None:
    raise error


def _batches(items: Iterable[Piece], size: int) -> Iterator[list[Piece]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


def declare(*queues: str, expires_after_s: int = 0) -> wire.Step:
    options = wire.Declares(queues=[queue.encode() for queue in queues])
    options.options.expires_after_s = expires_after_s
    return wire.Step(declares=options)


def bind(queue: str, *keys: str, start: wire.Start.ValueType = wire.START_UNSPECIFIED, value: int = 0) -> wire.Step:
    names = [key.encode() for key in keys]
    binds = wire.Binds(queues=[queue.encode()], key_counts=[len(keys)], keys=names, start=start, start_value=value)
    return wire.Step(binds=binds)


def unbind(queue: str, *keys: str, discard: bool = False) -> wire.Step:
    names = [key.encode() for key in keys]
    return wire.Step(unbinds=wire.Unbinds(queues=[queue.encode()], key_counts=[len(keys)], keys=names, discard=discard))


def publish(
    key: str, *bodies: bytes, mandatory: bool = False, not_before_ms: int = 0, live: bool = False, ttl_ms: int = 0
) -> wire.Step:
    publishes = wire.Publishes(keys=[key.encode()], chunks=[encode_chunk(bodies)], mandatory=mandatory)
    publishes.not_before_ms, publishes.live, publishes.ttl_ms = not_before_ms, live, ttl_ms
    return wire.Step(publishes=publishes)


def configure(key: str, options: KeyOptions) -> wire.Step:
    return wire.Step(configures=wire.Configures(keys=[key.encode()], options=options.to_wire()))


def farewell(*queues: str, key: str = "", body: bytes = b"", after_s: int = 0) -> wire.Step:
    """Gives queues a farewell; without a key: takes theirs back."""
    step = wire.Farewells(queues=[queue.encode() for queue in queues], after_s=after_s)
    if key:
        step.keys.extend([key.encode()] * len(queues))
        step.chunks.extend([encode_chunk([body])] * len(queues))
    return wire.Step(farewells=step)


def drop(*queues: str) -> wire.Step:
    return drop_if(*queues)


def drop_if(*queues: str, unused: bool = False, empty: bool = False) -> wire.Step:
    names = [queue.encode() for queue in queues]
    return wire.Step(drops=wire.Drops(queues=names, if_unused=unused, if_empty=empty))


def purge(*queues: str, positions: Sequence[int] = ()) -> wire.Step:
    return wire.Step(purges=wire.Purges(queues=[queue.encode() for queue in queues], positions=positions))


def acks(*named: tuple[str, str, int, int]) -> wire.Step:
    """Queue, key, and the offsets low <= o < to."""
    step = wire.TransactionAcks(lows=[low for *_, low, _ in named], tos=[to for *_, to in named])
    step.queues.extend(queue.encode() for queue, *_ in named)
    step.keys.extend(key.encode() for _, key, *_ in named)
    return wire.Step(acks=step)


def with_done(core: CoreDriver, queue: str, keys: list[str], pairs: list[tuple[int, int]]) -> None:
    """Each binding of the queue has these done ranges, from its cursor on."""
    found = core.state.load_queue(queue.encode())
    assert found is not None
    for key in keys:
        key_id = (core.tables.key.get(core.state.full_name(key.encode())) or b"")[ID]
        bucket = found.bucket(key_id)
        detail = Detail(bucket.starts[key_id], bucket.cursor(key_id), 0, Ranges(pairs))
        core.tables.detail.put(detail_key(found.id, key_id), encode_detail(detail))
        found.details += 1
    found.save()
    core.check()


def every_second(count: int) -> list[tuple[int, int]]:
    return [(offset, offset + 1) for offset in range(2, 2 + 2 * count, 2)]
