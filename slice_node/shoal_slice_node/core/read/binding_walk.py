"""Walks over all bindings of a queue, a bounded number at a time: those that ended with a backlog, then the live ones,
bucket by bucket.

Between two steps the queue may change: its buckets split and join. So the live ones come in the order of their hashes'
bits, the last bit first: whatever the number of buckets, each holds a stretch of this order, and the walk keeps no more
than where it is. (So does SCAN of Redis, https://redis.io/docs/latest/commands/scan/.) Those of one bucket come in the
order of the binds, if they are not very many. Every binding that stays as it is comes exactly once; one that ends, or
is bound again, may be left out, or come twice.

Thousands of walks may stand at a time, so nothing large is kept from one step to the next: a binding's done ranges may
take half a megabyte, decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import READ_ROWS_PER_STEP, WALKED_IDS_MAX, WALKED_RANGES_PER_COST
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import (
    KEY_ID,
    count_done_offsets,
    count_ranges,
    decode_detail,
    detail_key,
    done_end_of,
    done_ranges_above,
    places_of,
)
from shoal_slice_node.core.rows.ids import ID_BYTES, next_id
from shoal_slice_node.core.rows.queue_row import Bucket

_HASH_BITS = 32
_REVERSED = bytes([int(f"{byte:08b}"[::-1], 2) for byte in range(256)])
"""Maps a byte to that with its bits in the opposite order."""

_SORTED_PER_COST: Final = 16
"""Places that are sorted for one unit of cost."""

_Place: TypeAlias = tuple[int, bytes]
"""A place in the walk: the reversed hash, and the key id where hashes are equal."""


class Binding(NamedTuple):
    """Describes one binding. `end` 0: still bound. `row`: its row of table `detail`, with its done ranges; b"": it has
    none. What lies below the cursor counts nowhere."""

    key_id: bytes
    start: int
    cursor: int
    end: int
    row: bytes

    def kept_from(self, low: int) -> Binding:
        """Returns the binding as it is for a key that keeps messages from `low` on."""
        return self if low <= self.cursor else self._replace(cursor=low)

    def done(self) -> Ranges:
        """Returns its done ranges, decoded anew each time."""
        if not self.row:
            return Ranges()
        done = decode_detail(self.row).done
        done.cut_below(self.cursor)
        return done

    def end_of_done(self, offset: int) -> int:
        """Returns the end of the done range that holds `offset`, else `offset`."""
        return done_end_of(self.row, offset) if self.row else offset

    def done_from(self, offset: int, count: int) -> list[tuple[int, int]]:
        """Returns up to `count` done ranges that begin above `offset`, ascending."""
        return done_ranges_above(self.row, offset, count) if self.row else []

    def backlog(self, end: int) -> int:
        """Returns how many messages below `end` it still has to get."""
        done = count_done_offsets(self.row, self.cursor) if self.row else 0
        return max(0, end - self.cursor - done)


class BindingWalk:
    """Walks over the bindings of a queue, in steps: `next` until it returns None, then `pause`, and in a later step
    again, until it is `over`. In a pause it keeps where it is, and the ids of up to WALKED_IDS_MAX bindings.

    `queue`: the queue, if it was read in this step. `cost`: about what this step has cost so far, in the units of
    READ_ROWS_PER_STEP; callers add their own.
    """

    def __init__(self, state: State, queue_id: bytes, queue: Queue | None = None, cost: int = 0) -> None:
        self.cost = cost
        self.over = False
        self._state = state
        self._queue_id = queue_id
        self._moved = False
        """True if it went on in this step: each step brings it further."""
        self._queue = queue
        """The queue as it is in this step."""
        self._ended_after: bytes | None = bytes(ID_BYTES)
        """The key id from which on ended bindings may follow; None: those were all."""
        self._details: Iterator[tuple[bytes, bytes]] | None = None
        """Reads table `detail` from there on, in this step."""
        self._last: _Place = (0, b"")
        """Where it is among the live ones."""
        self._places: list[_Place] = []
        """Those of a bucket that follow in this step, the next one last."""
        self._few: list[bytes] = []
        """The ids of a whole bucket's bindings that follow, in the order of the binds, the next one last."""
        self._bucket: Bucket | None = None
        """The bucket of this step's last binding."""
        self._at: tuple[bytes, int, int] = (b"", 0, 0)
        """Key id, start and end of the binding that was returned last."""

    @property
    def spent(self) -> bool:
        """Returns whether the step has cost enough."""
        return self.cost >= READ_ROWS_PER_STEP

    def next(self) -> Binding | None:
        """Returns the next binding; None: the step has cost enough, or the walk is over. If the queue is dropped on the
        way, no more bindings follow."""
        while not (self.over or (self.spent and self._moved)):
            queue = self._load()
            if queue is None:
                self.over = True
                break
            found = self._next_live(queue) if self._ended_after is None else self._next_ended(queue)
            if found is not None:
                self._at = (found.key_id, found.start, found.end)
                return found
        return None

    def pause(self) -> None:
        """Forgets what was read, before others may change it. The caller must forget its binding, too."""
        self.cost = 0
        self._moved = False
        self._queue = self._bucket = None
        self._details = None
        self._places = []

    def again(self) -> Binding | None:
        """Returns the binding of before the pause as it is now; None: it has ended, or is another one."""
        queue = self._load()
        if queue is None:
            return None
        key_id, start, end = self._at
        if not end:
            found = self._live(queue, key_id)
            return found if found is not None and found.start == start else None
        row = self._state.tables.detail.get(detail_key(queue.id, key_id))
        found = None if row is None else self._of_row(key_id, row)
        return found if found is not None and (found.start, found.end) == (start, end) else None

    def _load(self) -> Queue | None:
        if self._queue is None:
            self.cost += 1
            self._queue = self._state.load_queue_by_id(self._queue_id)
        return self._queue

    def _next_ended(self, queue: Queue) -> Binding | None:
        assert self._ended_after is not None
        if self._details is None:
            rows = self._state.tables.detail.scan(queue.id, detail_key(queue.id, self._ended_after))
            self._details = rows if queue.details else iter(())
        read = next(self._details, None)
        if read is None:
            self._ended_after = self._details = None
            return None
        key_id, row = read[0][KEY_ID], read[1]
        self._ended_after = next_id(key_id)
        self._moved = True
        found = self._of_row(key_id, row)
        return found if found.end else None

    def _of_row(self, key_id: bytes, row: bytes) -> Binding:
        """Returns the binding that a row of table `detail` says all of: an ended one."""
        self.cost += _cost_of(row)
        return Binding(key_id, *places_of(row), row)

    def _next_live(self, queue: Queue) -> Binding | None:
        if self._few:
            self._moved = True
            return self._live(queue, self._few.pop())
        if self._places:
            self._moved = True
            self._last = self._places.pop()
            return self._live(queue, self._last[1])
        if self._last[0] >> _HASH_BITS:
            self.over = True
            return None
        number, first, end = bucket_at(self._last[0], queue.extra_buckets + 1)
        self._bucket = bucket = queue.numbered_bucket(number)
        self.cost += number > 0  # The first one is part of the queue's row.
        if self._last == (first, b"") and len(bucket.starts) <= WALKED_IDS_MAX:
            self._few = list(bucket.starts)
            self._few.reverse()
            self._last = (end, b"")
            return None
        self.cost += len(bucket.starts) // _SORTED_PER_COST
        places = [(_reversed(crc32(key_id)), key_id) for key_id in bucket.starts]
        self._places = sorted([place for place in places if place > self._last], reverse=True)
        if not self._places:
            self._moved = True
            self._last = (end, b"")
        return None

    def _live(self, queue: Queue, key_id: bytes) -> Binding | None:
        bucket = self._bucket
        start = None if bucket is None else bucket.starts.get(key_id)
        if bucket is None or start is None:
            bucket = self._bucket = queue.bucket(key_id)
            start = bucket.starts.get(key_id)
            if start is None:
                self.cost += 1
                return None
        row = (self._state.tables.detail.get(detail_key(queue.id, key_id)) or b"") if queue.details else b""
        self.cost += _cost_of(row) if row else 1
        return Binding(key_id, start, bucket.cursors.get(key_id, start), 0, row)


def bucket_at(place: int, buckets: int) -> tuple[int, int, int]:
    """Returns the number of the bucket that holds the reversed hash `place`, its first one, and the first behind it."""
    level_bits = buckets.bit_length() - 1
    hashed = _reversed(place)
    number = hashed & ((2 << level_bits) - 1)
    if number >= buckets:
        number -= 1 << level_bits
    # One that was split on this level, or came by that, is told by one bit more than the others.
    bits = level_bits + (number >> level_bits > 0 or number + (1 << level_bits) < buckets)
    width = 1 << (_HASH_BITS - bits)
    first = place // width * width
    return number, first, first + width


def _reversed(hashed: int) -> int:
    return int.from_bytes(hashed.to_bytes(4, "little").translate(_REVERSED), "big")


def _cost_of(row: bytes) -> int:
    return 1 + count_ranges(row) // WALKED_RANGES_PER_COST
