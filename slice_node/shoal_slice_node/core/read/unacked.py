"""Tells which queues of a frame of acks still have some of the named messages to get or to ack.

A client asks it for acks whose stream was lost before the answer. Belongs here: looking. Not here: taking the acks
(dispatch/acks_in_flight), waiting until they are durable (node/ack_flush): what this finds acked may not be journaled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import ACKED_PER_STEP, BINDING_READ_COST, DONE_RANGES_COPIED_PER_COST
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.detail_row import count_ranges, cursor_and_end, detail_key, done_end_of
from shoal_slice_node.core.rows.key_row import ID, head_of, low_of
from shoal_slice_node.core.rows.queue_row import life_of
from shoal_slice_node.core.turns import Work

_NO_QUEUE = b""
"""Stands for a queue without a part on this slice, or for an earlier life of one."""


def still_unacked(
    state: State, feeds: Mapping[bytes, Feed], session: Session, acks: Sequence[tuple[wire.Ack, bytes]], seen: int
) -> Work[list[int]]:
    """Returns the places (see `Unacked` of the contract) of those that have some named message still unacked. `acks`:
    each with its key's full name. `seen`: how many resets the client had seen when it made the frame."""
    found: list[int] = []
    place, left = 0, ACKED_PER_STEP
    for ack, full_name in acks:
        for queue_id in _queues(state, session, ack, seen):
            unacked, cost = True, 1
            if queue_id is not None:
                unacked, cost = _look(state, feeds, queue_id, full_name, ack.low, ack.to)
            if unacked:
                found.append(place)
            place += 1
            left -= cost
            if left <= 0:
                left = ACKED_PER_STEP
                yield
    return found


def _queues(state: State, session: Session, ack: wire.Ack, seen: int) -> Iterator[bytes | None]:
    """Yields the ids of the queues that the ack names. None: the session has no such handle."""
    for handle in ack.handles:
        attachment = session.attachments.get(handle)
        if attachment is not None:
            yield attachment.feed.queue_id if attachment.resets_before <= seen else _NO_QUEUE
        else:
            yield _NO_QUEUE if handle in session.awaited else None
    for queue_id in parts_named(state, ack):
        yield queue_id or _NO_QUEUE


def parts_named(state: State, ack: wire.Ack) -> Iterator[bytes | None]:
    """Yields for each queue that an ack names by its name the id of the part that is meant. None: the queue has none,
    or is in another life now."""
    for queue, life in zip(ack.queues, ack.lives or repeat(0), strict=False):  # Lengths are checked (check_ack).
        queue_id = state.tables.queue_by_name.get(queue)
        yield None if queue_id is None or life not in (0, life_of(queue_id)) else queue_id


def _look(
    state: State, feeds: Mapping[bytes, Feed], queue_id: bytes, full_name: bytes, low: int, to: int
) -> tuple[bool, int]:
    """Returns whether a binding has some offset low <= o < to still unacked, and what the look cost, in acks. The
    tables have all acks of a binding that dispatch has no stream of."""
    row = state.tables.key.get(full_name)
    if row is None:
        return False, 1
    low, to = max(low, low_of(row)), min(to, head_of(row))
    feed = feeds.get(queue_id)
    stream = None if feed is None else feed.streams.get(row[ID])
    if stream is not None:
        return _has_unacked(stream.cursor, stream.end, stream.done, low, to), 1
    if feed is not None and not feed.loading:
        return False, 1
    return _look_in_tables(state, queue_id, row[ID], low, to)


def _look_in_tables(state: State, queue_id: bytes, key_id: bytes, low: int, to: int) -> tuple[bool, int]:
    queue = state.load_queue_by_id(queue_id)
    if queue is None:
        return False, 1
    row = state.tables.detail.get(detail_key(queue_id, key_id)) if queue.details else None
    if row is None:
        bucket = queue.bucket(key_id)
        found = key_id in bucket.starts and _has_unacked(bucket.cursor(key_id), 0, None, low, to)
        return found, BINDING_READ_COST
    cursor, end = cursor_and_end(row)
    first, to = max(low, cursor), min(to, end) if end else to
    cost = BINDING_READ_COST + count_ranges(row) // DONE_RANGES_COPIED_PER_COST
    return first < to and done_end_of(row, first) < to, cost


def _has_unacked(cursor: int, end: int, done: Ranges | None, low: int, to: int) -> bool:
    first, to = max(low, cursor), min(to, end) if end else to
    if done is not None and first < to:
        first = done.end_of(first)
    return first < to
