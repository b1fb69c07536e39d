"""Walks over all bindings of a queue, a bounded number at a time: those that ended with a backlog, then the live ones,
bucket by bucket.

Between two steps the queue may change: its buckets split and join. So the live ones come in the order of their hashes'
bits, the last bit first: whatever the number of buckets, each holds a stretch of this order, and the walk keeps no more
than where it is. (So does SCAN of Redis, https://redis.io/docs/latest/commands/scan/.) Every binding that stays as it
is comes exactly once; one that ends, or is bound again, may be left out, or come twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias
from zlib import crc32

from shoal_slice_node.core.apply.lookups import done_of, kept_part
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import LOAD_DETAILS_PER_STEP, WALKED_RANGES_PER_STEP
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import count_ranges, decode_detail, detail_key
from shoal_slice_node.core.rows.ids import ID_BYTES, next_id

_HASH_BITS = 32
_REVERSED = bytes([int(f"{byte:08b}"[::-1], 2) for byte in range(256)])
"""Maps a byte to that with its bits in the opposite order."""

_NONE_DONE = Ranges()

_Place: TypeAlias = tuple[int, bytes]
"""A place in the walk: the reversed hash, and the key id where hashes are equal."""


class Binding(NamedTuple):
    """Describes one binding of the walk. `end` 0: still bound."""

    key_id: bytes
    start: int
    cursor: int
    end: int
    done: Ranges

    def kept_from(self, low: int) -> Binding:
        """Returns the binding as it is for a key that keeps messages from `low` on."""
        if low <= self.cursor:
            return self
        cursor, done = kept_part(low, self.cursor, self.done)
        return self._replace(cursor=cursor, done=done)


def walk_bindings(state: State, queue_id: bytes) -> Iterator[list[Binding]]:
    """Yields batches of bindings, with up to WALKED_RANGES_PER_STEP done ranges and those of one binding more. If the
    queue is dropped on the way, no more bindings follow."""
    yield from _ended(state, queue_id)
    last: _Place = (0, b"")
    while last[0] >> _HASH_BITS == 0 and (queue := state.load_queue_by_id(queue_id)) is not None:
        found, last = _some_of(state, queue, last)
        yield found


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


def _some_of(state: State, queue: Queue, last: _Place) -> tuple[list[Binding], _Place]:
    """Returns bindings of one bucket that come behind `last`, and up to where these are all. A whole bucket comes in
    its own order: that of the binds, where nothing has moved."""
    number, first, end = bucket_at(last[0], queue.extra_buckets + 1)
    bucket = queue.numbered_bucket(number)
    found: list[Binding] = []
    if last == (first, b"") and not queue.details:
        for key_id, start in bucket.starts.items():
            found.append(Binding(key_id, start, bucket.cursor(key_id), 0, _NONE_DONE))
        return found, (end, b"")
    ranges = 0
    for place in sorted([(_reversed(crc32(key_id)), key_id) for key_id in bucket.starts]):
        if place <= last:
            continue
        if ranges >= WALKED_RANGES_PER_STEP:
            return found, last
        key_id = place[1]
        done = done_of(state.tables, queue, key_id)
        ranges += len(done)
        found.append(Binding(key_id, bucket.starts[key_id], bucket.cursor(key_id), 0, done))
        last = place
    return found, (end, b"")


def _ended(state: State, queue_id: bytes) -> Iterator[list[Binding]]:
    after = bytes(ID_BYTES)
    while (queue := state.load_queue_by_id(queue_id)) is not None and queue.details:
        found: list[Binding] = []
        ranges = count = 0
        rows = state.tables.detail.scan(queue_id, detail_key(queue_id, after))
        for row_key, row in islice(rows, LOAD_DETAILS_PER_STEP):
            count += 1  # noqa: SIM113 - it is read after the loop
            key_id = row_key[ID_BYTES:]
            after = next_id(key_id)
            detail = decode_detail(row)
            if detail.ended:
                found.append(Binding(key_id, detail.start, detail.cursor, detail.end, detail.done))
            ranges += count_ranges(row)
            if ranges >= WALKED_RANGES_PER_STEP:
                break
        else:
            if count < LOAD_DETAILS_PER_STEP:
                yield found
                return
        yield found
