"""Answers describe and peek from the tables alone, in bounded steps. Depth is exact and costs O(bindings + done
ranges): subtractions, and a log row or two for each binding that has a backlog. The log rows in which its done ranges
begin or end are read in order, once each in a step.

A queue of few bindings is read in one step, so its figures are of one moment. A larger queue may change meanwhile; the
figures of each binding were true at some moment of the walk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from shoal_contract.errors import ResourceExhausted
from shoal_contract.limits import DESCRIBE_BINDINGS_SUBJECT
from shoal_contract.options import DURABLE, PLAIN
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.backlog import LogMeasure
from shoal_slice_node.core.apply.expiry import has_expired
from shoal_slice_node.core.apply.log_rows import LogRows
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.apply.undone import Undone, undone
from shoal_slice_node.core.dispatch.parcels import Parcel
from shoal_slice_node.core.limits import (
    CONSUMERS_PER_COST,
    DESCRIBE_BINDINGS_MAX,
    DESCRIBE_LISTED_MAX,
    DESCRIBE_RANGES_PER_BINDING,
    DESCRIBED_RANGES_PER_COST,
    READ_ROWS_PER_STEP,
)
from shoal_slice_node.core.read.binding_walk import Binding, BindingWalk
from shoal_slice_node.core.rows.detail_row import KEY_ID, count_ranges, detail_key
from shoal_slice_node.core.rows.farewell_row import after_s_of, key_of, queue_key
from shoal_slice_node.core.rows.ids import ID_BYTES, next_id
from shoal_slice_node.core.rows.key_row import NAME, decode_key
from shoal_slice_node.core.turns import Work, finish

UnackedOf = Callable[[bytes], tuple[int, bool]]
"""Returns how many messages of a key, by its id, a queue has unacked (dispatch/unacked_counts), and whether the key is
full: no consumer gets more of it until some are acked, or come back."""


class Consumption(NamedTuple):
    """Says how a queue is consumed. `attached`: by so many sessions. `pullers`: so many have pulled some of it.
    `unacked`: so many of its messages are. `of_key`: how many of each key."""

    attached: int
    pullers: int
    unacked: int
    of_key: UnackedOf


NOT_CONSUMED = Consumption(0, 0, 0, lambda _: (0, False))

ConsumptionOf = Callable[[bytes], Consumption]
"""Returns how a queue is consumed, by its id."""
FarewellDue = Callable[[bytes, int], int]
"""Returns when the farewell of a queue is due, by the queue's id and the farewell's seconds; 0: a session consumes the
queue, or it is not known."""


_DURABLE = DURABLE.to_wire()
"""The options that most queues have: not to be made again for each."""


def _due_not_known(queue_id: bytes, after_s: int) -> int:
    return 0


def describe(
    state: State, request: wire.Describe, consumption_of: ConsumptionOf, due_ms: FarewellDue = _due_not_known
) -> Work[wire.Description]:
    """Answers a Describe.

    Raises InvalidName, NotOwner; ResourceExhausted if its queues have more than DESCRIBE_BINDINGS_MAX bindings, where
    DESCRIBE_RANGES_PER_BINDING done ranges count as one.
    """
    yield from _check_cost(state, request.queues)
    yield
    description = wire.Description()
    listed = cost = 0
    for name in request.queues:
        bindings_max = DESCRIBE_LISTED_MAX - listed if request.bindings else 0
        found, cost = yield from _describe_queue(state, name, consumption_of, due_ms, bindings_max, cost)
        listed += len(found.bindings)
        description.queues.append(found)
        if cost >= READ_ROWS_PER_STEP:
            cost = 0
            yield
    for name in request.keys:
        key, key_cost = _describe_key(state, name)
        description.keys.append(key)
        cost += key_cost
        if cost >= READ_ROWS_PER_STEP:
            cost = 0
            yield
    return description


def _check_cost(state: State, names: Iterable[bytes]) -> Work[None]:
    """Checks the cost of a Describe: first by what the queues' rows say, then with what their done ranges add."""
    cost, with_details = 0, list[bytes]()
    for number, name in enumerate(names, 1):
        queue = state.load_queue(name)
        if queue is not None:
            cost += queue.bindings + queue.details
            if queue.details:
                with_details.append(queue.id)
        if number % READ_ROWS_PER_STEP == 0:
            queue = None
            yield
    _check_bindings(cost)
    rows_left = READ_ROWS_PER_STEP
    for queue_id in with_details:
        after: bytes | None = bytes(ID_BYTES)
        while after is not None:
            more, rows, after = _ranges_cost(state, queue_id, after, rows_left)
            cost += more
            _check_bindings(cost)
            rows_left -= 1 + rows
            if rows_left <= 0:
                rows_left = READ_ROWS_PER_STEP
                yield


def _ranges_cost(state: State, queue_id: bytes, after: bytes, rows_max: int) -> tuple[int, int, bytes | None]:
    """Returns what the done ranges of up to `rows_max` bindings add to the cost of a Describe, how many these are, and
    the key id from which on there may be more; None: there are none."""
    cost = rows = 0
    for row_key, row in islice(state.tables.detail.scan(queue_id, detail_key(queue_id, after)), rows_max):
        rows += 1
        cost += count_ranges(row) // DESCRIBE_RANGES_PER_BINDING
        after = next_id(row_key[KEY_ID])
    return cost, rows, after if rows == rows_max else None


def _check_bindings(bindings: int) -> None:
    if bindings > DESCRIBE_BINDINGS_MAX:
        raise ResourceExhausted(
            f"the queues of one describe have at least {bindings} bindings here, {DESCRIBE_RANGES_PER_BINDING} done"
            f" ranges counted as one; the limit is {DESCRIBE_BINDINGS_MAX}: ask for fewer queues at a time",
            subject=DESCRIBE_BINDINGS_SUBJECT,
            limit=DESCRIBE_BINDINGS_MAX,
            value=bindings,
        )


def describe_queue(state: State, name: bytes, bindings_max: int) -> wire.QueueDescription:
    """Describes one queue at one go, as if nothing consumed it: for tables that nothing else waits for."""
    return finish(_describe_queue(state, name, lambda _: NOT_CONSUMED, _due_not_known, bindings_max, 0))[0]


def _describe_queue(
    state: State, name: bytes, consumption_of: ConsumptionOf, due_ms: FarewellDue, bindings_max: int, cost: int
) -> Work[tuple[wire.QueueDescription, int]]:
    """Describes one queue in steps. `bindings_max`: how many bindings to list. `cost`: what this step cost before.
    Returns the queue's description, and what the last step has cost."""
    queue = state.load_queue(name)
    if queue is None:
        return wire.QueueDescription(queue=name), cost + 1
    consumption = consumption_of(queue.id)
    described = wire.QueueDescription(
        queue=name,
        exists=True,
        binding_count=queue.bindings,
        attached_sessions=consumption.attached,
        consumed=bool(consumption.attached or consumption.pullers),
        unacked=consumption.unacked,
        incarnation=queue.incarnation,
    )
    described.options.CopyFrom(_DURABLE if queue.options == DURABLE else queue.options.to_wire())
    farewell = state.tables.farewell.get(queue_key(queue.id))
    if farewell is not None:
        after_s = after_s_of(farewell)
        due = due_ms(queue.id, after_s)
        described.farewell.CopyFrom(wire.FarewellDescription(key=key_of(farewell), after_s=after_s, due_ms=due))
    cost += 1 + (consumption.attached + consumption.pullers) // CONSUMERS_PER_COST
    walk, queue, unacked_of = BindingWalk(state, queue.id, queue, cost), None, consumption.of_key
    while not walk.over:
        if not (yield from _add_next(state, walk, described, unacked_of, bindings_max)):
            walk.pause()
            yield
    return described, walk.cost


def _add_next(
    state: State, walk: BindingWalk, described: wire.QueueDescription, unacked_of: UnackedOf, bindings_max: int
) -> Work[bool]:
    """Adds what the next binding still has to get, in steps, and lists it. Returns whether this step may go on with the
    one behind it. No binding is kept from one step to the next, nor what was read of its log: that may have a chunk
    of megabytes."""
    binding = walk.next()
    if binding is None:
        return walk.over
    found = state.key_by_id(binding.key_id)
    if found is None:
        return True  # It is vanishing.
    name, key = found
    binding = binding.kept_from(key.low)
    upper = binding.end or key.head
    messages = binding.backlog(upper)
    if len(described.bindings) < bindings_max:
        described.bindings.append(_listed(name[NAME], binding, messages, *unacked_of(binding.key_id)))
    if not messages:
        return True
    position = binding.end_of_done(binding.cursor)
    measure = LogMeasure(state, key)
    oldest_ms = measure.time_of(position)
    described.messages += messages
    if oldest_ms and (not described.oldest_ms or oldest_ms < described.oldest_ms):
        described.oldest_ms = oldest_ms
    while binding is not None and position < upper:
        body_bytes, position, cost = _undone_bytes(measure, binding, position, upper)
        described.body_bytes += body_bytes
        walk.cost += cost
        if position < upper:
            walk.pause()
            measure.pause()
            binding = None
            yield
            binding = walk.again()
            if binding is not None:
                position = binding.end_of_done(max(position, binding.cursor))
    return True


def _undone_bytes(measure: LogMeasure, binding: Binding, position: int, upper: int) -> tuple[int, int, int]:
    """Returns the body bytes of what a binding has not done from `position` on, up to a number of done ranges; up to
    where these are all; and what it cost. `position` is not done."""
    body_bytes, before = 0, measure.cost
    ranges = binding.done_from(position, DESCRIBED_RANGES_PER_COST * READ_ROWS_PER_STEP)
    for number, (low, high) in enumerate(ranges, 1):
        if low >= upper:
            break
        body_bytes += measure.bytes_between(position, low)
        position = high
        of_ranges, of_rows = number // DESCRIBED_RANGES_PER_COST, measure.cost - before
        if max(of_ranges, of_rows) >= READ_ROWS_PER_STEP:
            return body_bytes, position, of_ranges + of_rows
    if position < upper:
        body_bytes += measure.bytes_between(position, upper)
    return body_bytes, upper, len(ranges) // DESCRIBED_RANGES_PER_COST + measure.cost - before


def _listed(name: bytes, binding: Binding, messages: int, unacked: int, full: bool) -> wire.BindingDescription:
    start, cursor, end = binding.start, binding.cursor, binding.end
    return wire.BindingDescription(
        key=name, start=start, cursor=cursor, end=end, messages=messages, unacked=unacked, full=full
    )


def describe_key(state: State, name: bytes) -> wire.KeyDescription:
    """Describes one key. Raises InvalidName, NotOwner."""
    return _describe_key(state, name)[0]


def _describe_key(state: State, name: bytes) -> tuple[wire.KeyDescription, int]:
    """Returns what it cost as well."""
    row = state.tables.key.get(state.full_name(name))
    if row is None:
        return wire.KeyDescription(key=name), 1
    key = decode_key(row)
    measure = LogMeasure(state, key)
    described = wire.KeyDescription(
        key=name,
        exists=True,
        head=key.head,
        low=key.low,
        queues=state.tables.binding.count(key.id),
        body_bytes=measure.bytes_between(key.low, key.head),
        options=None if key.options == PLAIN else key.options.to_wire(),
    )
    return described, 1 + measure.cost


def peek(
    state: State, queue_id: bytes, messages_max: int, bytes_max: int, expiry_clock_ms: int = 0
) -> Work[list[wire.Delivery]]:
    """Returns the first messages of the backlog without taking them, even if they are out; not those that have expired
    at `expiry_clock_ms`, or at the time of the newest record."""
    found = yield from peek_if_brief(state, queue_id, messages_max, bytes_max, expiry_clock_ms, 1 << 62)
    assert found is not None
    return found


def peek_if_brief(
    state: State, queue_id: bytes, messages_max: int, bytes_max: int, expiry_clock_ms: int, brief_bytes: int
) -> Work[list[wire.Delivery] | None]:
    """Does as `peek`; but returns None if the messages take more than `brief_bytes`."""
    walk = BindingWalk(state, queue_id)
    peeking = _Peeking(state, walk, messages_max, bytes_max, max(expiry_clock_ms, state.time_ms), brief_bytes)
    while not (walk.over or peeking.full):
        position = peeking.take_next()
        while walk.spent:
            walk.pause()
            yield
            if position:
                position = peeking.take_more(position)
    return None if peeking.is_too_large else peeking.deliveries


class _Peeking:
    """Collects a peek's messages, binding by binding of a walk. No binding is kept from one step to the next."""

    def __init__(
        self,
        state: State,
        walk: BindingWalk,
        messages_max: int,
        bytes_max: int,
        expiry_clock_ms: int,
        brief_bytes: int,
    ) -> None:
        self.is_too_large = False
        self._brief_left = brief_bytes
        self._expiry_clock_ms = expiry_clock_ms
        self.deliveries: list[wire.Delivery] = []
        self._walk = walk
        self._state = state
        self._messages_left = messages_max
        self._bytes_left = bytes_max

    @property
    def full(self) -> bool:
        return self._messages_left <= 0 or self._bytes_left <= 0 or self.is_too_large

    def take_next(self) -> int:
        """Collects what the next binding still has to get, until there is no room or the step has cost enough. Returns
        the offset from which there may be more of it; 0: there is no more."""
        binding = self._walk.next()
        return 0 if binding is None else self._take(binding, binding.cursor)

    def take_more(self, low: int) -> int:
        """Goes on with the binding of before the pause, from `low` on; otherwise as `take_next`."""
        binding = self._walk.again()
        return 0 if binding is None else self._take(binding, max(low, binding.cursor))

    def _take(self, binding: Binding, low: int) -> int:
        there = self._state.key_by_id(binding.key_id)
        if there is None:
            return 0  # It is vanishing.
        full_name, key = there
        rows, walk = LogRows(self._state.tables.log, key), self._walk
        before = walk.cost
        for found in undone(rows, max(low, key.low), binding.end or key.head, binding.done()):
            if self.full:
                return 0
            to = found.to
            if not has_expired(found.stored.header.expires_ms, self._expiry_clock_ms):
                to = min(to, found.low + self._messages_left)
                self._add(full_name[NAME], rows, found, to)
            before += 1
            walk.cost = before + rows.cost
            if walk.spent:
                return to
        return 0

    def _add(self, name: bytes, rows: LogRows, found: Undone, to: int) -> None:
        first, chunk = rows.chunk_for(found.stored, found.low, to)
        header = found.stored.header
        parcel = Parcel(name, first, found.low, to, chunk, header.time_ms, 0, expires_ms=header.expires_ms)
        delivery = parcel.to_wire()
        size_bytes = delivery.ByteSize()
        self._brief_left -= size_bytes
        if self._brief_left < 0:
            self.is_too_large = True
            return
        self._messages_left -= to - found.low
        self._bytes_left -= size_bytes
        self.deliveries.append(delivery)
