"""Answers describe and peek from the tables alone, in bounded steps. Depth is exact and costs O(bindings + done
ranges): subtractions, and a log row or two for each binding that has a backlog. The log rows in which its done ranges
begin or end are read once each, in order.

A queue of few bindings is read in one step, so its figures are of one moment. A larger queue may change meanwhile; the
figures of each binding were true at some moment of the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice

from shoal_contract.errors import ResourceExhausted
from shoal_contract.limits import DESCRIBE_BINDINGS_SUBJECT
from shoal_contract.options import DURABLE, PLAIN
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.backlog import LogMeasure
from shoal_slice_node.core.apply.expiry import has_expired
from shoal_slice_node.core.apply.log_rows import LogRows
from shoal_slice_node.core.apply.lookups import backlog_of
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.apply.undone import undone
from shoal_slice_node.core.dispatch.parcels import Parcel
from shoal_slice_node.core.limits import (
    DESCRIBE_BINDINGS_MAX,
    DESCRIBE_LISTED_MAX,
    DESCRIBE_RANGES_PER_BINDING,
    READ_ROWS_PER_STEP,
)
from shoal_slice_node.core.read.binding_walk import Binding, walk_bindings
from shoal_slice_node.core.rows.detail_row import KEY_ID, count_ranges, detail_key
from shoal_slice_node.core.rows.farewell_row import after_s_of, key_of, queue_key
from shoal_slice_node.core.rows.ids import ID_BYTES, next_id
from shoal_slice_node.core.rows.key_row import NAME, KeyRow, decode_key
from shoal_slice_node.core.turns import Work, finish

ConsumersOf = Callable[[bytes], tuple[int, bool]]
"""Returns how many sessions have a queue attached, by its id, and whether it is consumed: attached, or pulled from."""
FarewellDue = Callable[[bytes, int], int]
"""Returns when the farewell of a queue is due, by the queue's id and the farewell's seconds; 0: a session consumes the
queue, or it is not known."""


_DURABLE = DURABLE.to_wire()
"""The options that most queues have: not to be made again for each."""


def _due_not_known(queue_id: bytes, after_s: int) -> int:
    return 0


def describe(
    state: State, request: wire.Describe, consumers: ConsumersOf, due_ms: FarewellDue = _due_not_known
) -> Work[wire.Description]:
    """Answers a Describe.

    Raises InvalidName, NotOwner; ResourceExhausted if its queues have more than DESCRIBE_BINDINGS_MAX bindings, where
    DESCRIBE_RANGES_PER_BINDING done ranges count as one.
    """
    yield from _check_cost(state, request.queues)
    yield
    description = wire.Description()
    listed = 0
    for number, name in enumerate(request.queues):
        bindings_max = DESCRIBE_LISTED_MAX - listed if request.bindings else 0
        found = yield from _describe_queue(state, name, consumers, due_ms, bindings_max)
        listed += len(found.bindings)
        description.queues.append(found)
        if number % READ_ROWS_PER_STEP == READ_ROWS_PER_STEP - 1:
            yield
    for number, name in enumerate(request.keys):
        description.keys.append(describe_key(state, name))
        if number % READ_ROWS_PER_STEP == READ_ROWS_PER_STEP - 1:
            yield
    return description


def _check_cost(state: State, names: Iterable[bytes]) -> Work[None]:
    """Checks the cost of a Describe: first by what the queues' rows say, then with what their done ranges add."""
    queues = [queue for name in names if (queue := state.load_queue(name)) is not None]
    cost = sum(queue.bindings + queue.details for queue in queues)
    _check_bindings(cost)
    for queue in queues:
        after = bytes(ID_BYTES)
        rows = [(b"", b"")] if queue.details else []
        while rows:
            found = state.tables.detail.scan(queue.id, detail_key(queue.id, after))
            rows = list(islice(found, READ_ROWS_PER_STEP))
            cost += sum(count_ranges(row) // DESCRIBE_RANGES_PER_BINDING for _, row in rows)
            _check_bindings(cost)
            if len(rows) < READ_ROWS_PER_STEP:
                break
            after = next_id(rows[-1][0][KEY_ID])
            yield


def _check_bindings(bindings: int) -> None:
    if bindings > DESCRIBE_BINDINGS_MAX:
        raise ResourceExhausted(
            f"the queues of one describe have at least {bindings} bindings here, {DESCRIBE_RANGES_PER_BINDING} done"
            f" ranges counted as one; the limit is {DESCRIBE_BINDINGS_MAX}: ask for fewer queues at a time",
            subject=DESCRIBE_BINDINGS_SUBJECT,
            limit=DESCRIBE_BINDINGS_MAX,
            value=bindings,
        )


def describe_queue(state: State, name: bytes, consumers: int, bindings_max: int) -> wire.QueueDescription:
    """Describes one queue at one go: for tables that nothing else waits for."""
    return finish(_describe_queue(state, name, lambda _: (consumers, consumers > 0), _due_not_known, bindings_max))


def _describe_queue(
    state: State, name: bytes, consumers: ConsumersOf, due_ms: FarewellDue, bindings_max: int
) -> Work[wire.QueueDescription]:
    """Describes one queue in steps. `bindings_max`: how many bindings to list."""
    queue = state.load_queue(name)
    if queue is None:
        return wire.QueueDescription(queue=name)
    attached, consumed = consumers(queue.id)
    described = wire.QueueDescription(
        queue=name,
        exists=True,
        binding_count=queue.bindings,
        attached_sessions=attached,
        consumed=consumed,
        incarnation=queue.incarnation,
    )
    described.options.CopyFrom(_DURABLE if queue.options == DURABLE else queue.options.to_wire())
    farewell = state.tables.farewell.get(queue_key(queue.id))
    if farewell is not None:
        after_s = after_s_of(farewell)
        due = due_ms(queue.id, after_s)
        described.farewell.CopyFrom(wire.FarewellDescription(key=key_of(farewell), after_s=after_s, due_ms=due))
    cost = 0
    for batch in walk_bindings(state, queue.id):
        if not batch:
            cost = 0
            yield  # Rows were read all the same.
        for binding in batch:
            if cost >= READ_ROWS_PER_STEP:
                cost = 0
                yield
            found = state.key_by_id(binding.key_id)
            if found is None:
                continue  # Unbound since its batch was read.
            kept = binding.kept_from(found[1].low)
            messages, cost = yield from _add_backlog(state, found[1], kept, described, cost + 1)
            if len(described.bindings) < bindings_max:
                described.bindings.append(_listed(found[0][NAME], kept, messages))
    return described


def _add_backlog(
    state: State, key: KeyRow, binding: Binding, described: wire.QueueDescription, cost: int
) -> Work[tuple[int, int]]:
    """Adds what a binding still has to get. Returns the number of its messages, and what this step has cost. `cost`:
    what the step cost before."""
    upper = binding.end or key.head
    messages = backlog_of(binding.cursor, upper, binding.done)
    if not messages:
        return 0, cost
    measure = LogMeasure(state, key)
    body_bytes = -measure.bytes_below(binding.cursor)
    oldest_ms = measure.time_of(binding.done.end_of(binding.cursor))
    for low, high in binding.done.pairs():
        if cost + measure.cost >= READ_ROWS_PER_STEP:
            cost = measure.cost = 0
            measure.pause()
            yield
        body_bytes -= measure.bytes_between(low, high)
        cost += 1
    body_bytes += measure.bytes_below(upper)
    described.messages += messages
    described.body_bytes += body_bytes
    if oldest_ms and (not described.oldest_ms or oldest_ms < described.oldest_ms):
        described.oldest_ms = oldest_ms
    return messages, cost + measure.cost


def _listed(name: bytes, binding: Binding, messages: int) -> wire.BindingDescription:
    return wire.BindingDescription(
        key=name, start=binding.start, cursor=binding.cursor, end=binding.end, messages=messages
    )


def describe_key(state: State, name: bytes) -> wire.KeyDescription:
    """Describes one key. Raises InvalidName, NotOwner."""
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
        body_bytes=LogMeasure(state, key).bytes_between(key.low, key.head),
        options=None if key.options == PLAIN else key.options.to_wire(),
    )


def peek(
    state: State, queue_id: bytes, messages_max: int, bytes_max: int, expiry_clock_ms: int = 0
) -> Work[list[wire.Delivery]]:
    """Returns the first messages of the backlog without taking them, even if they are out; not those that have expired
    at `expiry_clock_ms`, or at the time of the newest record."""
    peeking = _Peeking(state, messages_max, bytes_max, max(expiry_clock_ms, state.time_ms))
    for batch in walk_bindings(state, queue_id):
        for binding in batch:
            position = binding.cursor
            while position:
                position = peeking.take(binding, position)
                if peeking.cost >= READ_ROWS_PER_STEP:
                    peeking.cost = 0
                    yield
            if peeking.full:
                return peeking.deliveries
        yield
    return peeking.deliveries


class _Peeking:
    """Collects a peek's messages. `cost`: about what this step has cost, in the units of READ_ROWS_PER_STEP."""

    def __init__(self, state: State, messages_max: int, bytes_max: int, expiry_clock_ms: int) -> None:
        self._expiry_clock_ms = expiry_clock_ms
        self.deliveries: list[wire.Delivery] = []
        self.cost = 0
        self._state = state
        self._messages_left = messages_max
        self._bytes_left = bytes_max

    @property
    def full(self) -> bool:
        return self._messages_left <= 0 or self._bytes_left <= 0

    def take(self, binding: Binding, low: int) -> int:
        """Collects what the binding still has to get from `low` on, until there is no room or the step ends. Returns
        the offset from which there may be more; 0: there is no more."""
        self.cost += 1
        there = self._state.key_by_id(binding.key_id)
        if there is None:
            return 0  # Unbound since its batch was read.
        full_name, key = there
        rows = LogRows(self._state.tables.log, key)
        for found in undone(rows, max(low, key.low), binding.end or key.head, binding.done):
            if self.full:
                return 0
            if has_expired(found.stored.header.expires_ms, self._expiry_clock_ms):
                self.cost += 1
                if self.cost + rows.cost >= READ_ROWS_PER_STEP:
                    self.cost += rows.cost
                    return found.to
                continue
            to = min(found.to, found.low + self._messages_left)
            first, chunk = rows.chunk_for(found.stored, found.low, to)
            header = found.stored.header
            of_chunk = full_name[NAME], first, found.low, to, chunk, header.time_ms
            parcel = Parcel(*of_chunk, 0, expires_ms=header.expires_ms)
            delivery = parcel.to_wire()
            self._messages_left -= to - found.low
            self._bytes_left -= delivery.ByteSize()
            self.deliveries.append(delivery)
            self.cost += 1
            if self.cost + rows.cost >= READ_ROWS_PER_STEP:
                self.cost += rows.cost
                return to
        self.cost += rows.cost
        return 0
