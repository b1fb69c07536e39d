"""Describe and peek: answers from the tables alone. Depth is exact and costs O(bindings): subtractions, and one log row
for each binding that has a backlog."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from shoal_contract.chunk import parse_chunk
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.loading import details_of
from shoal_slice_node.core.dispatch.sessions import Parcel
from shoal_slice_node.core.queues import Queue
from shoal_slice_node.core.ranges import Ranges
from shoal_slice_node.core.rows.key_row import KeyRow, decode_key
from shoal_slice_node.core.rows.log_row import LogRow, chunk_of, decode_log
from shoal_slice_node.core.state import State


class _Backlog:
    """What one queue still has to get, summed over its bindings."""

    def __init__(self) -> None:
        self.messages = 0
        self.body_bytes = 0
        self.oldest_ms = 0

    def add(self, messages: int, body_bytes: int, oldest_ms: int) -> None:
        self.messages += messages
        self.body_bytes += body_bytes
        if oldest_ms and (not self.oldest_ms or oldest_ms < self.oldest_ms):
            self.oldest_ms = oldest_ms


def describe_queue(state: State, name: bytes, attached_sessions: int, bindings_max: int) -> wire.QueueDescription:
    """`bindings_max`: how many to list."""
    queue = state.load_queue(name)
    if queue is None:
        return wire.QueueDescription(queue=name)
    described = wire.QueueDescription(
        queue=name, exists=True, binding_count=queue.bindings, attached_sessions=attached_sessions
    )
    described.options.expires_after_s = queue.expires_after_s
    backlog = _Backlog()
    for binding in _bindings(state, queue, backlog):
        if len(described.bindings) < bindings_max:
            described.bindings.append(binding)
    described.messages = backlog.messages
    described.body_bytes = backlog.body_bytes
    described.oldest_ms = backlog.oldest_ms
    return described


def _bindings(state: State, queue: Queue, backlog: _Backlog) -> list[wire.BindingDescription]:
    details = dict(details_of(state, queue))
    described = []
    for key_id, start, cursor in queue.entries():
        done = details[key_id].done if key_id in details else Ranges()
        described.append(_binding(state, key_id, start, cursor, 0, done, backlog))
    for key_id, detail in details.items():
        if detail.ended:
            described.append(_binding(state, key_id, detail.start, detail.cursor, detail.end, detail.done, backlog))
    return described


def _binding(
    state: State, key_id: bytes, start: int, cursor: int, end: int, done: Ranges, backlog: _Backlog
) -> wire.BindingDescription:
    found = state.key_by_id(key_id)
    assert found is not None, f"bound to key {key_id.hex()}, which is not there"
    full_name, key = found
    upper = end or key.head
    messages = upper - cursor - done.offsets()
    if messages:
        body_bytes = _bytes_between(state, key, cursor, upper)
        body_bytes -= sum(_bytes_between(state, key, low, high) for low, high in done.pairs())
        backlog.add(messages, body_bytes, _time_of(state, key, done.end_of(cursor)))
    return wire.BindingDescription(key=full_name[2:], start=start, cursor=cursor, end=end, messages=messages)


def _row_at(state: State, key: KeyRow, offset: int) -> tuple[int, LogRow, bytes] | None:
    """(first, header, row) of the row that holds `offset`, else of the next there is; None at the head."""
    if offset >= key.head:
        return None
    for first, row in islice(state.tables.log.read(key.id, key.low, offset), 2):
        header = decode_log(row)
        if first + header.messages > offset:
            return first, header, row
    return None


def _bytes_below(state: State, key: KeyRow, offset: int) -> int:
    """Body bytes of the key before `offset`."""
    found = _row_at(state, key, offset)
    if found is None:
        return key.body_bytes
    first, header, row = found
    if offset <= first:
        return header.body_bytes_before
    bodies = parse_chunk(chunk_of(row)).bodies
    return header.body_bytes_before + sum(map(len, bodies[: offset - first]))


def _bytes_between(state: State, key: KeyRow, low: int, high: int) -> int:
    return _bytes_below(state, key, high) - _bytes_below(state, key, low)


def _time_of(state: State, key: KeyRow, offset: int) -> int:
    found = _row_at(state, key, offset)
    return 0 if found is None else found[1].time_ms


def describe_key(state: State, name: bytes) -> wire.KeyDescription:
    """Raises InvalidName, NotOwner."""
    row = state.tables.key.get(state.full_name(name))
    if row is None:
        return wire.KeyDescription(key=name)
    key = decode_key(row)
    return wire.KeyDescription(
        key=name,
        exists=True,
        head=key.head,
        low=key.low,
        queues=state.tables.binding.count(key.id),
        body_bytes=_bytes_between(state, key, key.low, key.head),
    )


def peek(state: State, queue: Queue, messages_max: int, bytes_max: int) -> list[wire.Delivery]:
    """The first messages of the backlog, taken by nobody, whoever has them out."""
    deliveries: list[wire.Delivery] = []
    details = dict(details_of(state, queue))
    spans = [(key_id, cursor, 0) for key_id, _, cursor in queue.entries()]
    spans += [(key_id, detail.cursor, detail.end) for key_id, detail in details.items() if detail.ended]
    for key_id, cursor, end in spans:
        done = details[key_id].done if key_id in details else Ranges()
        found = state.key_by_id(key_id)
        assert found is not None
        full_name, key = found
        for delivery in _undone(state, full_name[2:], key, cursor, end or key.head, done):
            count = delivery.to - delivery.low
            if messages_max <= 0 or bytes_max <= 0:
                return deliveries
            if count > messages_max:
                delivery.to -= count - messages_max
            messages_max -= count
            bytes_max -= delivery.ByteSize()
            deliveries.append(delivery)
    return deliveries


def _undone(state: State, name: bytes, key: KeyRow, cursor: int, end: int, done: Ranges) -> Iterator[wire.Delivery]:
    """One at a time: a backlog may be of any size."""
    rows = state.tables.log.read(key.id, key.low, cursor) if cursor < end else iter(())
    for first, row in rows:
        header = decode_log(row)
        low, row_end = max(first, cursor), min(first + header.messages, end)
        while low < row_end:
            low = done.end_of(low)
            to = min(row_end, done.next_from(low) or row_end)
            if low < to:
                yield Parcel(name, first, low, to, chunk_of(row), header.time_ms, 0).to_wire()
            low = max(to, low)
        if row_end >= end:
            return
