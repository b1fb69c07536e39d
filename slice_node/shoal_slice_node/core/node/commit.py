"""Commits in groups: requests gather into batches of journal records; a batch that is durable is applied, in order.

Sources (connections, and the node itself) are served in turn. Items without a payload (attach,
pull, describe, live publishes) take their place among the others, so that a session sees its own changes.

One batch is written at a time: `gather` returns it, `written` or `refused` says what became of it, and `step` applies
what is durable while the next batch is written. Not here: writing (the driver), what records mean (engine).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from shoal_contract.errors import ShoalError
from shoal_contract.journal_record import Record, encode_header
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import Kind, decode_change, encode_change
from shoal_slice_node.core.fair_queue import FairQueue
from shoal_slice_node.core.limits import (
    APPLIED_WHOLE_MAX,
    BATCH_BYTES_MAX,
    BATCH_OPERATIONS_MAX,
    FAIR_BYTES_PER_OPERATION,
    NEW_RANGE_BYTES,
    NEW_RANGES_UNPRICED_MAX,
)
from shoal_slice_node.core.turns import Work, finish
from shoal_slice_node.core.verbs.changes import Checked
from shoal_slice_node.core.verbs.engine import Engine
from shoal_slice_node.core.verbs.prices import GrowingQueues, price

_log = logging.getLogger(__name__)

NODE: Hashable = "node"
"""The source of the node's own items."""
_NOTHING = Effects()
_FREEING = frozenset((Kind.ACKS, Kind.TRIM, Kind.RECLAIM, Kind.OWNERSHIP, Kind.EXPIRE, Kind.DUE))
"""The node's own records that are written although there is little room: they let go of more than they take. RETRY and
FAREWELL wait: they copy messages."""
_SETTLING = frozenset((Kind.ACKS, Kind.RETRY, Kind.CHANGE))
"""The records that may make done ranges, if no check says what is in them."""


@dataclass(slots=True)
class Item:
    """Describes one request. `payload` None: it is not journaled. Exactly one of `applied` and `failed` is called.
    `large_bytes`: what it takes of the room for large frames."""

    kind: int
    payload: bytes | None
    applied: Callable[[Effects], None]
    failed: Callable[[ShoalError], None]
    checked: Checked | None = None
    operations: int = 1
    """The operations that applying it may take: as far as known while it waits; looked up anew when it is written, if
    that may have changed."""
    large_bytes: int = 0
    make: Callable[[Item], bytes | None] | None = None
    """Makes the payload of this item as late as possible: when the record is written. Returns None if nothing is left
    to write. It is called once, and is None then."""
    work: Callable[[], Work[Effects]] | None = None
    """What an item without a payload does in its place, in steps, before `applied` is called."""
    work_bytes: int = 0
    """The bytes that `work` holds until it is done."""
    attaches_before: Callable[[bytes], bool] | None = None
    """Says whether the same session asked before to attach a queue, and that is not done yet; None: it has not."""
    priced_at: int | None = None
    """How many done ranges had been made, at most, when `operations` was looked up; None: it was not."""

    def rewrite(self, change: wire.Change) -> None:
        """Puts a change, with what the leader decided, in the place of the client's."""
        assert self.checked is not None and self.payload is not None
        head, _ = decode_change(self.payload)
        self.checked = self.checked._replace(change=change)
        self.payload = encode_change(head, change.SerializeToString())


Entry = tuple[Item, Record | None]


class Batch(NamedTuple):
    """Describes one group commit. `data`: what the journal must append, records `first_lsn` to `last_lsn`; b"":
    nothing. `sources`: the sources of its items. `short`: why it has only what frees room; None: it has all kinds.
    `held`: the items that are refused for that."""

    entries: list[Entry]
    data: bytes
    first_lsn: int
    last_lsn: int
    sources: set[Hashable]
    short: ShoalError | None
    held: list[Item]


class Commit:
    """Gathers items into batches, and applies durable ones. `applied_lsn`: everything up to it is durable and in the
    tables. `committed_lsn`: everything up to it may be applied. Nothing waits for it yet: `written` frees a batch as
    soon as this node has synced it, so replication must change both. `operations`: those since this leader began,
    with reads."""

    def __init__(
        self,
        engine: Engine,
        epoch: int,
        on_effects: Callable[[Effects], None],
        let_go: Callable[[int], None] = lambda size_bytes: None,
        decide: Callable[[Item], None] = lambda item: None,
    ) -> None:
        """Begins with nothing to write. `on_effects` hears of each record before its item does. `let_go` gives back so
        many bytes of the room for large frames. `decide` adds what only the leader knows to a change that needs it."""
        self.applied_lsn = self.committed_lsn = engine.state.lsn
        self.operations = 0
        self._engine = engine
        self._epoch = epoch
        self._on_effects = on_effects
        self._let_go = let_go
        self._decide = decide
        self._next_lsn = self.applied_lsn + 1
        self._time_ms = engine.state.time_ms
        self._pending: FairQueue[Item] = FairQueue(NODE)
        self._growing = GrowingQueues()
        self._writing: Batch | None = None
        self._entries: deque[Entry] = deque()
        """Entries that may be applied; the first may be applied in part already."""
        self._work: Work[Effects] | None = None
        """The rest of the record that is applied in part, or of an item's own work."""
        self._ranges_made = 0
        """How many done ranges the records may have made that this leader applied."""
        self._failure: ShoalError | None = None
        """Why no item is taken any more."""

    # What is asked.

    def __bool__(self) -> bool:
        """Returns whether something waits to be gathered."""
        return bool(self._pending)

    @property
    def time_ms(self) -> int:
        """Returns the time of the batch that was gathered last."""
        return self._time_ms

    @property
    def pending_bytes(self) -> int:
        return self._pending.bytes

    @property
    def ended(self) -> bool:
        return self._failure is not None

    def pending_bytes_of(self, source: Hashable) -> int:
        return self._pending.bytes_of(source)

    def submit(self, item: Item, source: Hashable = NODE) -> None:
        """Takes an item to be journaled and applied. An item without a payload only has its turn among the others."""
        if self._failure is not None:
            self._fail((item,), self._failure)
            return
        self._price(item)
        size_bytes = len(item.payload or b"") + item.work_bytes
        self._pending.put(source, item, max(item.operations, size_bytes // FAIR_BYTES_PER_OPERATION), size_bytes)

    def _price(self, item: Item) -> None:
        """Looks up what is in no operation: what a purge or a drop may end, done ranges. May be called while a record
        is applied in part: it reads single rows."""
        checked = item.checked
        if checked is None or not checked.ends:
            return
        known = checked.only_ranges and item.priced_at is not None
        if known and self._ranges_made - (item.priced_at or 0) < NEW_RANGES_UNPRICED_MAX:
            return
        item.priced_at = self._ranges_made
        item.operations = price(self._engine.state, checked, self._growing)

    # What is to be written.

    def gather(self, wall_ms: int, items_max: int | None = None, short: ShoalError | None = None) -> Batch:
        """Returns the next batch, which is being written from here on. Must not be called while another batch is being
        written. `wall_ms`: the time for its records; record times never go back. `items_max`: no more than so many
        items. `short`: only what frees room is taken, and the rest is refused with this error."""
        assert self._writing is None
        held: list[Item] = []
        entries: list[Entry] = []
        data: list[bytes] = []
        size = operations = 0
        first_lsn = self._next_lsn
        time_ms = self._time_ms = max(self._time_ms, wall_ms)
        pending, sources = self._pending, set[Hashable]()
        # So that `end` finds these items, should gathering fail.
        self._writing = Batch(entries, b"", first_lsn, first_lsn - 1, sources, short, held)
        self._growing.begin_batch()
        while pending and size < BATCH_BYTES_MAX and operations < BATCH_OPERATIONS_MAX and len(entries) != items_max:
            source, item = pending.take()
            sources.add(source)
            if item.large_bytes:
                self._let_go(item.large_bytes)
                item.large_bytes = 0
            if short is not None and not _frees(item):
                held.append(item)
                continue
            entries.append((item, None))
            expected = item.operations
            if item.make is not None:
                make, item.make = item.make, None
                item.payload = make(item)
            self._price(item)
            pending.charge(source, item.operations - expected)
            if item.checked is not None:
                self._growing.note(item.checked)
                if item.checked.leader_decides or item.checked.grows:
                    self._decide(item)
            if item.payload is None:
                if item.work is not None:
                    size += item.work_bytes
                    operations += item.operations
                continue
            record = Record(item.kind, 0, self._next_lsn, self._epoch, time_ms, item.payload)
            self._next_lsn += 1
            data += encode_header(item.kind, record.lsn, self._epoch, time_ms, item.payload), item.payload
            size += len(item.payload)
            operations += item.operations
            entries[-1] = item, record
        self._writing = Batch(entries, b"".join(data), first_lsn, self._next_lsn - 1, sources, short, held)
        return self._writing

    def written(self) -> None:
        """Notes that the batch that was being written is durable here: it may be applied."""
        assert self._writing is not None
        batch, self._writing = self._writing, None
        self.committed_lsn = batch.last_lsn
        self._entries += batch.entries
        _refuse_held(batch)

    def refused(self, error: ShoalError) -> None:
        """Notes that nothing of the batch was written, because the disk is full. Items that need no disk go on."""
        assert self._writing is not None
        batch, self._writing = self._writing, None
        self._next_lsn = batch.first_lsn
        self._entries += [entry for entry in batch.entries if entry[1] is None]
        for item, record in batch.entries:
            if record is not None:
                item.failed(error)
        _refuse_held(batch)

    # What is applied.

    @property
    def to_apply(self) -> int:
        """Returns the number of items that may be applied, or answered, and are not yet."""
        return len(self._entries)

    @property
    def next_operations(self) -> int:
        """Returns the operations that applying the next of these items may take."""
        return self._entries[0][0].operations

    @property
    def whole(self) -> bool:
        """Returns whether no record, and no item's work, is done in part. Else no other code may look at the tables, or
        at dispatch."""
        return self._work is None

    def step(self) -> None:
        """Applies the next item that may be applied: a small one at once, else one step, under about a millisecond.

        Raises Corrupt for a record that cannot be applied. The tables are then of no use: `whole` is False for good.
        """
        item, record = self._entries[0]
        if record is None and item.work is None:
            self._answer(item, _NOTHING)
            return
        if self._work is None:
            self._work = self._work_of(item, record)
        try:
            if item.operations < APPLIED_WHOLE_MAX:
                effects = finish(self._work)
            else:
                next(self._work)
                return
        except StopIteration as stop:
            effects = stop.value
        self._work = None
        self._applied(item, record, effects)
        self._answer(item, effects)

    def _work_of(self, item: Item, record: Record | None) -> Work[Effects]:
        if record is not None:
            return self._engine.in_steps(record, item.checked)
        assert item.work is not None
        return item.work()

    def finish_record(self) -> None:
        """Finishes a record that is applied in part, without an answer to its item: for code that stops the node."""
        if self._work is not None:
            work, self._work = self._work, None
            item, record = self._entries[0]
            self._applied(item, record, finish(work))

    def _applied(self, item: Item, record: Record | None, effects: Effects) -> None:
        if record is None:
            return
        self.applied_lsn = record.lsn
        if record.kind in _SETTLING if item.checked is None else item.checked.settles:
            self._ranges_made += len(record.payload) // NEW_RANGE_BYTES
        self._engine.state.tail.applied(item.operations, len(record.payload))
        self._on_effects(effects)

    def _answer(self, item: Item, effects: Effects) -> None:
        self.operations += item.operations
        self._entries.popleft()
        try:
            item.applied(effects)
        except Exception:
            _log.exception(
                "what waited for records up to %d failed by a fault of the slice; the records are applied: please"
                " report it with what follows",
                self.applied_lsn,
            )

    # The end.

    def end(self, error: ShoalError, later: ShoalError) -> None:
        """Ends the node's commits: items that are not answered yet fail with `error`, later ones with `later`."""
        self._failure = later
        writing, held = ([], []) if self._writing is None else (self._writing.entries, self._writing.held)
        items = [item for item, _ in (*self._entries, *writing)] + held + self._pending.clear()
        self._entries.clear()
        self._writing = None
        self._fail(items, error)

    def _fail(self, items: Iterable[Item], error: ShoalError) -> None:
        for item in items:
            if item.large_bytes:
                self._let_go(item.large_bytes)
                item.large_bytes = 0
            item.failed(error)


def _frees(item: Item) -> bool:
    """Returns whether an item needs no room in the journal, or frees more than it needs."""
    if item.checked is not None:
        return item.checked.frees
    return item.kind in _FREEING or (item.payload is None and item.make is None)


def _refuse_held(batch: Batch) -> None:
    for item in batch.held:
        assert batch.short is not None
        item.failed(batch.short)
