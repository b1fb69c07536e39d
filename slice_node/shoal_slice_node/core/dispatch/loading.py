"""A queue's feed from the tables: every binding with its cursor and done ranges."""

from __future__ import annotations

from collections.abc import Iterator

from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.queues import Queue
from shoal_slice_node.core.rows.detail_row import Detail, decode_detail
from shoal_slice_node.core.state import State


def load_feed(state: State, queue: Queue) -> Feed:
    """O(bindings). Streams with a backlog are lagging."""
    feed = Feed(queue.id, queue.name)
    details = dict(details_of(state, queue))
    for key_id, _, cursor in queue.entries():
        _add(state, feed, key_id, cursor, details.get(key_id))
    for key_id, detail in details.items():
        if detail.ended:
            _add(state, feed, key_id, detail.cursor, detail)
    return feed


def details_of(state: State, queue: Queue) -> Iterator[tuple[bytes, Detail]]:
    """(key id, detail) of the few bindings that have one."""
    if queue.details:
        for row_key, row in state.tables.detail.scan(queue.id):
            yield row_key[8:], decode_detail(row)


def _add(state: State, feed: Feed, key_id: bytes, cursor: int, detail: Detail | None) -> None:
    found = state.key_by_id(key_id)
    assert found is not None, f"queue {feed.queue_id.hex()} is bound to key {key_id.hex()}, which is not there"
    full_name, key = found
    stream = Stream(feed, key_id, full_name[2:], cursor, detail.end if detail else 0)
    if detail and detail.done:
        stream.done = detail.done
    feed.streams[key_id] = stream
    if cursor < (stream.end or key.head):
        feed.set_lagging(stream)
