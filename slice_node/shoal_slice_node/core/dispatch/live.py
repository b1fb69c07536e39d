"""Gives live chunks to the sessions that consume a key's queues now: nothing is stored, so nothing is given again.

A queue gets a live chunk in its place among the key's stored ones, or not at all: a stream that is behind its key loses
it. It takes no window, and is not acked. Its bytes are under way to its session until they are sent; a session without
room for them loses it. Not here: which streams are reached when (growing), look-ups in the tables (node/live_changes).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.out_of_line import next_for_live
from shoal_slice_node.core.dispatch.parcels import Parcel, parcel_bytes
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.streams import Stream


class LiveChunk(NamedTuple):
    """Describes a live publish. `head`: the key's head at that moment; a stream that is level with the key then, and
    only such a stream, gets the chunk. `key_id` b"": the key keeps nothing."""

    key_id: bytes
    key: bytes
    head: int
    messages: int
    time_ms: int
    chunk: bytes


def give_live(registry: Registry, live: LiveChunk, streams: Iterable[Stream]) -> None:
    """Gives a live chunk to those of the streams that are level with their key: one parcel for each session."""
    parcels: dict[int, Parcel] = {}
    for stream in streams:
        if stream.next == live.head and not (stream.lagging and stream.returned):
            parcel = _give(registry, live, stream.feed, parcels)
            if parcel is not None:
                stream.join_parcel(parcel.number)


def give_live_directly(registry: Registry, live: LiveChunk, feed: Feed) -> None:
    """Gives a live chunk to a queue whose direct key was never used: it has no stream yet."""
    _give(registry, live, feed, {})


def _give(registry: Registry, live: LiveChunk, feed: Feed, parcels: dict[int, Parcel]) -> Parcel | None:
    cost_bytes = parcel_bytes(live.chunk, live.key)
    attachment = None if feed.gone else next_for_live(feed, cost_bytes)  # Streams of a dropped queue leave in turns.
    if attachment is None:
        return None
    session = attachment.session
    parcel = parcels.get(session.number)
    if parcel is None:
        parcel = parcels[session.number] = registry.live_parcel(
            session, live.key_id, live.key, live.messages, live.chunk, live.time_ms
        )
    assert attachment.handle is not None
    registry.add_handle(session, parcel, attachment.handle)
    return parcel
