"""What a change may leave traces in: tables, counters, totals, dispatch, the leader's lists; all as plain values."""

from __future__ import annotations

from typing import Any

from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.invariants.checksums import checksums
from shoal_slice_node.core.node.node import Node
from shoal_slice_node.core.tables.tables import LOCAL_TABLES, Tables
from shoal_slice_node.core.turns import finish


def tables_of(tables: Tables, *, without: tuple[str, ...] = ()) -> list[Any]:
    """The checksums of the tables, and the rows of those that have none."""
    found: list[Any] = [one for one in finish(checksums(tables)) if one.table not in without]
    return found + [sorted(getattr(tables, name).scan()) for name in LOCAL_TABLES]


def totals_of(state: State) -> list[Any]:
    counters = state.counters
    counted = {name: found for name in dir(counters) if isinstance(found := getattr(counters, name), int)}
    return [counted, dict(counters.refused), state.kept.messages, state.kept.body_bytes]


def stream_of(stream: Stream) -> tuple[Any, ...]:
    done = stream.done.pairs() if stream.done is not None else []
    out = [(one.first, one.to, one.body_bytes, one.attachment.session.number, one.times) for one in stream.out]
    given_back = list(stream.returned or ())
    return stream.cursor, stream.next, stream.end, stream.lagging, stream.acks_under_way, done, out, given_back


def dispatch_of(dispatcher: Dispatcher) -> list[Any]:
    registry, found = dispatcher.registry, list[Any]()
    for queue_id, feed in sorted(registry.feeds.items()):
        streams = {key_id: stream_of(stream) for key_id, stream in feed.streams.items()}
        attached = [(one.session.number, one.handle, one.messages, one.body_bytes) for one in feed.attachments.values()]
        pulled = [(one.session.number, one.messages, one.body_bytes) for one in feed.pullers.values()]
        found.append((queue_id, feed.loading, streams, attached, pulled, list(feed.lagging), list(feed.unflushed)))
    by_key = {key_id: list(streams) for key_id, streams in registry.by_key.items()}
    ready = [feed.queue_id for feed in registry.ready]
    sessions = {number: list(session.waiting) for number, session in registry.dirty.items()}
    return [*found, by_key, ready, sessions, sorted(registry.awaited), list(dispatcher.growing.spreads)]


def traces_of(node: Node, *, without: tuple[str, ...] = ()) -> list[Any]:
    """`without`: tables that are left out."""
    trimmer = node.trimmer
    noted = [list(trimmer.noted), trimmer.pending, list(node.reclaims._noted)]
    tables = tables_of(node.state.tables, without=without)
    return [tables, totals_of(node.state), dispatch_of(node.dispatcher), noted]
