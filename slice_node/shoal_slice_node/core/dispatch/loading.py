"""Loads a queue's feed from the tables, in bounded steps: every binding with its cursor and done ranges.

A feed takes part as soon as it is made. Changes between two steps reach existing streams as events. The loader makes
the stream of a binding without one later, or `add_stream` does when an event names the binding; both read the tables,
which have the change. A split moves entries to a higher bucket, where the loader meets them again; after a join of
buckets the loader begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import islice

from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.limits import BUCKET_ENTRIES_MEAN, DONE_RANGES_PER_COST, LOAD_DETAILS_PER_STEP
from shoal_slice_node.core.rows.detail_row import KEY_ID, count_ranges, decode_detail, detail_key
from shoal_slice_node.core.rows.ids import next_id
from shoal_slice_node.core.rows.key_row import NAME

_RANGES_COST_PER_STEP = 2 * BUCKET_ENTRIES_MEAN
"""The most that done ranges may cost in one step: as much as two buckets. A bucket with more takes several steps."""

OnStream = Callable[[Stream], None]


def load_streams(
    state: State, feed: Feed, on_stream: OnStream, queue: Queue | None = None
) -> Generator[int, None, None]:
    """Makes the streams that the feed lacks, and then ends `loading`. Yields the cost of each step, in bindings.

    `queue`: the queue as the tables have it, if the first step is done at once; else the first step loads it.
    """
    number = seen = 0
    queue = queue or state.load_queue_by_id(feed.queue_id)
    while queue is not None:
        if queue.extra_buckets < seen:
            number = 0
        seen = queue.extra_buckets
        if number > seen:
            break
        keys = list(queue.numbered_bucket(number).starts)
        cost = 0
        for key_id in keys:
            if key_id in feed.streams:
                continue
            if cost > _RANGES_COST_PER_STEP:
                break  # The rest of the bucket next time.
            cost += _add(state, feed, queue, key_id, on_stream)
        else:
            number += 1
            if number > seen and not queue.details:
                break
        yield len(keys) + 1 + cost
        queue = state.load_queue_by_id(feed.queue_id)
    if queue is not None and queue.details:
        yield from _load_ended(state, feed, on_stream)
    feed.loaded()


def _load_ended(state: State, feed: Feed, on_stream: OnStream) -> Generator[int, None, None]:
    after = bytes(8)
    while (queue := state.load_queue_by_id(feed.queue_id)) is not None and queue.details:
        count = cost = 0
        rows = state.tables.detail.scan(queue.id, detail_key(queue.id, after))
        for row_key, _ in islice(rows, LOAD_DETAILS_PER_STEP):
            count += 1
            after = next_id(row_key[KEY_ID])
            if row_key[KEY_ID] not in feed.streams:
                cost += _add(state, feed, queue, row_key[KEY_ID], on_stream)
            if cost > _RANGES_COST_PER_STEP:
                break  # The next step looks for the rest.
        else:
            if count < LOAD_DETAILS_PER_STEP:
                return
        yield count + cost


def add_stream(state: State, feed: Feed, key_id: bytes, on_stream: OnStream) -> None:
    """Makes the stream of one binding as the tables have it, if the binding exists."""
    queue = state.load_queue_by_id(feed.queue_id)
    if queue is not None:
        _add(state, feed, queue, key_id, on_stream)


def _add(state: State, feed: Feed, queue: Queue, key_id: bytes, on_stream: OnStream) -> int:
    """Makes one stream, if the binding exists. Returns what its done ranges cost, in bindings."""
    row = state.tables.detail.get(detail_key(queue.id, key_id)) if queue.details else None
    detail = None if row is None else decode_detail(row)
    bucket = queue.bucket(key_id)
    if detail is not None:
        cursor = detail.cursor
    elif key_id in bucket.starts:
        cursor = bucket.cursor(key_id)
    else:
        return 0
    found = state.key_by_id(key_id)
    assert found is not None, f"queue {feed.queue_id.hex()} is bound to key {key_id.hex()}, which is not there"
    full_name, key = found
    end, done = (0, None) if detail is None else (detail.end, detail.done or None)
    stream = Stream(feed, key_id, full_name[NAME], cursor, end, done)
    if detail is not None and detail.counts:
        stream.load_counts(detail.counts)
    feed.add_stream(stream)
    if cursor < (stream.end or key.head):
        feed.set_lagging(stream)
    on_stream(stream)
    return 0 if row is None else count_ranges(row) // DONE_RANGES_PER_COST
