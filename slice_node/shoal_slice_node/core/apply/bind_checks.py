"""Checks what a bind needs in the tables, key by key, before anything changes: room, done ranges, offsets.

Each check is the same however many keys are checked in one step. Not here: the number of bindings of a queue (binds).
"""

from __future__ import annotations

from shoal_contract.errors import OutOfRange, ResourceExhausted
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import AWAY_RANGES_MAX, BUCKET_ENTRIES_MAX, BUCKET_ENTRIES_MEAN
from shoal_slice_node.core.rows.detail_row import count_done, detail_key
from shoal_slice_node.core.rows.key_row import ID, NAME, decode_key
from shoal_slice_node.core.rows.queue_row import bucket_number


def is_bound(state: State, queue: Queue, full_name: bytes) -> bool:
    row = state.tables.key.get(full_name)
    return row is not None and row[ID] in queue.bucket(row[ID]).starts


class RoomInBuckets:
    """Checks that no bucket gets more bindings than it may have, for one request of `count` keys, piece by piece.

    A key that is bound already stays as it is; one that does not exist gets an id for which there is room
    (State.create_key). Keys are counted as they will lie, once the queue has more buckets; where many of a request are
    bound already, these will be fewer, and a bucket may get up to twice as many.
    """

    def __init__(self, state: State, queue: Queue, count: int) -> None:
        self._state = state
        self._queue = queue
        buckets = queue.extra_buckets + 1
        if queue.bindings < BUCKET_ENTRIES_MAX:
            buckets = max(buckets, -(-(queue.bindings + count) // BUCKET_ENTRIES_MEAN))
        self._buckets = 0 if queue.bindings + count <= BUCKET_ENTRIES_MAX else buckets
        """How many there will be; 0: they have room."""
        self._new: dict[int, set[bytes]] = {}
        """Maps a bucket to the keys of the request that come to it."""

    @property
    def is_sure(self) -> bool:
        """Returns whether there is room, whatever the keys."""
        return not self._buckets

    def check(self, full_names: list[bytes]) -> None:
        """Checks some of the keys. Raises ResourceExhausted."""
        if self.is_sure:
            return
        for full_name in full_names:
            row = self._state.tables.key.get(full_name)
            if row is not None:
                self._check(full_name, row[ID])

    def _check(self, full_name: bytes, key_id: bytes) -> None:
        queue, state = self._queue, self._state
        new = self._new.setdefault(bucket_number(key_id, self._buckets), set())
        new.add(key_id)
        if queue.entries_beside(key_id) + len(new) <= BUCKET_ENTRIES_MAX:
            return
        starts = queue.bucket(key_id).starts
        new.difference_update([one for one in new if one in starts])
        value = len(starts) + len(new)
        if not new or value <= BUCKET_ENTRIES_MAX:
            return
        name, key = state.refusals.shown(queue.name), state.refusals.shown(full_name[NAME])
        raise ResourceExhausted(
            f"queue {name} has {len(starts)} bindings in the row where that of key {key} would be, and may have"
            f" {BUCKET_ENTRIES_MAX}: this request would make it {value}. Unbind some of its keys, or bind another queue"
            " to that key",
            subject="bindings in a row of a queue",
            limit=BUCKET_ENTRIES_MAX,
            value=value,
        )


def check_done_ranges(state: State, queue: Queue, full_names: list[bytes]) -> None:
    """Checks that no binding gets too many done ranges: each time away adds one to a binding with a backlog. A key that
    is bound already is not checked: it stays as it is.

    Raises ResourceExhausted.
    """
    for full_name in full_names:
        row = state.tables.key.get(full_name)
        detail_row = None if row is None else state.tables.detail.get(detail_key(queue.id, row[ID]))
        if detail_row is None or count_done(detail_row) < AWAY_RANGES_MAX or is_bound(state, queue, full_name):
            continue
        name, key = state.refusals.shown(queue.name), state.refusals.shown(full_name[NAME])
        raise ResourceExhausted(
            f"what queue {name} still has to get of key {key} is in {AWAY_RANGES_MAX} stretches, as"
            " many as may be: consume some of it, purge the queue, or unbind the key with discard",
            subject="done ranges of a binding",
            limit=AWAY_RANGES_MAX,
            value=AWAY_RANGES_MAX + 1,
        )


def check_offsets(state: State, queue: Queue, full_names: list[bytes], offset: int, exact: bool = False) -> None:
    """Checks that `offset` is no higher than each key's next one. An offset below a key's low is taken for the
    low; with `exact` it is refused. A key that is bound already stays as it is. Raises OutOfRange."""
    for full_name in full_names:
        row = state.tables.key.get(full_name)
        key = None if row is None else decode_key(row)
        if key and key.id in queue.bucket(key.id).starts:
            continue
        low, head = (key.low, key.head) if key else (0, 0)
        if key is None or offset > head or (exact and offset < low):
            kept = f"{low} to {head}" if key else "none: the key has no messages"
            shown = state.refusals.shown(full_name[NAME])
            raise OutOfRange(
                f"key {shown}: offset {offset} asked for; there are {kept}",
                subject=shown,
                limit=head if offset > head else low,
                value=offset,
            )
