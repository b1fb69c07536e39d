"""Binds and unbinds queues. Each request is all or nothing: everything is checked before anything changes.

Names were checked with the frame (core/verbs/changes). Checks that need the tables are here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from shoal_contract.errors import NoSuchQueue, ResourceExhausted
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.bind_checks import RoomInBuckets, check_done_ranges, check_offsets, is_bound
from shoal_slice_node.core.apply.effects import Bound, Joined, Left, Unbound
from shoal_slice_node.core.apply.log_rows import first_row
from shoal_slice_node.core.apply.lookups import bound_key
from shoal_slice_node.core.apply.pieces import fits_step, pieces
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import (
    AGE_BIND_COST,
    APPLIED_PER_STEP,
    BINDINGS_PER_QUEUE_MAX,
)
from shoal_slice_node.core.rows.detail_row import (
    Detail,
    count_ranges,
    cursor_and_end,
    decode_detail,
    detail_key,
    done_end_of,
    encode_detail,
    with_last_done,
    with_places,
)
from shoal_slice_node.core.rows.key_row import ID, NAME, decode_key, head_of, low_of
from shoal_slice_node.core.turns import Work


def existing_queue(state: State, name: bytes) -> Queue:
    """Returns the queue of this name. Raises NoSuchQueue."""
    queue = state.load_queue(name)
    if queue is None:
        raise no_such_queue(state, name)
    return queue


def no_such_queue(state: State, name: bytes) -> NoSuchQueue:
    """Returns the error of a request about a queue that is not here."""
    shown = state.refusals.shown(name)
    return NoSuchQueue(f"queue {shown} does not exist; declare it first", subject=shown)


class Begin(NamedTuple):
    """Says where bindings begin: at a start of the contract, with its value. `found`: what a change has found so far
    by age, by (key id, time); it stays right while the change is applied, as later messages are no older.
    `bound_before`: is told of each key, in order, whether the queue was bound to it; None: nothing asks."""

    start: int
    value: int
    found: dict[tuple[bytes, int], int]
    bound_before: list[bool] | None = None

    @property
    def keys_per_step(self) -> int:
        """Returns how many keys are bound in one step."""
        return APPLIED_PER_STEP // AGE_BIND_COST if self.start == wire.START_AGE else APPLIED_PER_STEP


AT_HEAD: Final = Begin(wire.START_UNSPECIFIED, 0, {})


def bind(state: State, name: bytes, keys: list[bytes], begin: Begin) -> Work[list[int]]:
    """Binds a queue to keys. Returns for each key the offset from which messages will be seen; if the key was bound
    before, this is the same offset again.

    A transient queue's time begins anew: its consumer comes after the bind, and the queue may not end in between.
    Raises NoSuchQueue, NotOwner, ResourceExhausted, OutOfRange.
    """
    queue = existing_queue(state, name)
    full_names = state.owned_names(keys)
    few = begin.keys_per_step
    if queue.bindings + len(full_names) <= BINDINGS_PER_QUEUE_MAX and fits_step(state, queue, full_names, few):
        _check_bind(state, queue, full_names, begin, RoomInBuckets(state, queue, len(full_names)))
        if queue.options.expires_after_s and keys:
            state.renew_transient(queue)
        return bind_resolved(state, queue, full_names, begin)
    yield from check_binding_count(state, queue, full_names)
    room = RoomInBuckets(state, queue, len(full_names))
    for names in pieces(state, queue, full_names, few):
        _check_bind(state, queue, names, begin, room)
        queue.forget_buckets()
        yield
    if queue.options.expires_after_s:
        state.renew_transient(queue)
    offsets: list[int] = []
    for names in pieces(state, queue, full_names, few):
        offsets += bind_resolved(state, queue, names, begin)
        queue.forget_buckets()
        yield
    return offsets


def check_all_bound(state: State, name: bytes, keys: list[bytes], per_step: int) -> Work[None]:
    """Checks a bind of a queue for whose bindings there is no more room in memory: it may change nothing. Raises
    NoSuchQueue, NotOwner, and ResourceExhausted without limit and value: those are the leader's, and every node refuses
    alike."""
    queue = existing_queue(state, name)
    for place, full_name in enumerate(state.owned_names(keys), 1):
        if not is_bound(state, queue, full_name):
            shown = state.refusals.shown(name)
            raise ResourceExhausted(
                f"queue {shown} is consumed, and there is no room for more bindings of it in the memory of attached"
                " queues",
                subject=shown,
            )
        if place % per_step == 0:
            queue.forget_buckets()
            yield


def _check_bind(state: State, queue: Queue, full_names: list[bytes], begin: Begin, room: RoomInBuckets) -> None:
    """Checks room in buckets, done ranges and offsets. Raises ResourceExhausted, OutOfRange."""
    room.check(full_names)
    if queue.details:
        check_done_ranges(state, queue, full_names)
    if begin.start == wire.START_OFFSET:
        check_offsets(state, queue, full_names, begin.value)


def bind_resolved(state: State, queue: Queue, full_names: list[bytes], begin: Begin = AT_HEAD) -> list[int]:
    """Binds as `bind` does, after all checks."""
    before = queue.bindings
    offsets = bind_unsaved(state, queue, full_names, begin)
    if queue.bindings > before:
        queue.save()
    return offsets


def bind_unsaved(state: State, queue: Queue, full_names: list[bytes], begin: Begin = AT_HEAD) -> list[int]:
    """Binds as `bind_resolved` does. The caller saves the queue if it has more bindings then."""
    key_get, add, queue_id = state.tables.key.get, state.add_member, queue.id
    wanted, members = queue_id in state.interest.queues, state.interest.members
    plain, told = begin.start == wire.START_UNSPECIFIED, begin.bound_before
    offsets: list[int] = []
    added = 0
    for full_name in full_names:
        row = key_get(full_name)
        if row is None:
            row = state.create_key(full_name, queue)
        key_id = row[ID]
        bucket = queue.bucket(key_id)
        offset = bucket.starts.get(key_id)
        if told is not None:
            told.append(offset is not None)
        if offset is None:
            offset = head_of(row) if plain else _start(state, row, begin)
            bucket.starts[key_id] = offset
            if queue.details:
                _rebind(state, queue, key_id, offset)
            cursor, head = bucket.cursor(key_id), head_of(row)
            if cursor < head:
                state.bind_backs.note(state.lsn, queue_id, key_id, offset, cursor, head)
            add(key_id, queue_id)
            added += 1
            if wanted:
                state.effects.bound.add(key_id)
                state.effects.events.append(Bound(queue_id, key_id, full_name[NAME], offset, head))
            if members is not None and members.wants(full_name[NAME]):
                state.effects.members.append(Joined(full_name[NAME], queue_id, queue.name))
        offsets.append(offset)
    queue.bindings += added
    return offsets


def check_binding_count(state: State, queue: Queue, full_names: list[bytes]) -> Work[None]:
    """Checks the queue's number of bindings. Keys that are bound already count once. Raises ResourceExhausted."""
    value, limit = queue.bindings + len(full_names), BINDINGS_PER_QUEUE_MAX
    if value > limit:
        new: set[bytes] = set()
        for names in pieces(state, queue, full_names, APPLIED_PER_STEP):
            new.update(name for name in names if not is_bound(state, queue, name))
            queue.forget_buckets()
            yield
        value = queue.bindings + len(new)
    if value > limit:
        raise ResourceExhausted(
            f"queue {state.refusals.shown(queue.name)} would have {value} bindings on this slice; the limit is {limit}",
            subject="bindings per queue",
            limit=limit,
            value=value,
        )


def _start(state: State, row: bytes, begin: Begin) -> int:
    key = decode_key(row)
    start, value = begin.start, begin.value
    if start == wire.START_EARLIEST:
        return key.low
    if start == wire.START_LAST:
        return max(key.low, key.head - value)
    if start == wire.START_AGE:
        since_ms = state.time_ms - value  # Times of records, so of rows, never go back.
        offset = begin.found.get((key.id, since_ms))
        if offset is None:
            offset = first_row(state.tables, key, lambda _, header: header.time_ms >= since_ms)
            begin.found[key.id, since_ms] = offset
        return max(key.low, offset)
    return max(key.low, value)


def _rebind(state: State, queue: Queue, key_id: bytes, start: int) -> None:
    """Makes an ended binding, if there is one, live again from `start`; its backlog below `start` stays, also what the
    key does not keep any more: its consumer is told of that gap. The time away becomes a done range. All messages from
    `start` on are seen, even those that were done before."""
    row = state.tables.detail.get(place := detail_key(queue.id, key_id))
    if row is None:
        return
    cursor, end = cursor_and_end(row)
    assert end, "a binding that is not in its bucket has ended"
    state.tables.ended.remove(key_id, queue.id)
    cursor = min(cursor, start)
    queue.bucket(key_id).put(key_id, start, cursor)
    kept = with_last_done(row, end, start) if start >= end else None
    if kept is not None and count_ranges(kept):
        state.tables.detail.put(place, with_places(kept, start, cursor, 0))
        return
    detail = decode_detail(row)
    detail.done.cut_above(start)
    if start >= end:
        detail.done.add(end, start)
    save_detail(state, queue, key_id, Detail(start, cursor, 0, detail.done, detail.counts))


def save_detail(state: State, queue: Queue, key_id: bytes, detail: Detail) -> None:
    """Writes a detail row that `queue.details` counts already; deletes it where a live binding needs none. The caller
    saves the queue."""
    if detail.ended or detail.done or detail.counts:
        state.tables.detail.put(detail_key(queue.id, key_id), encode_detail(detail))
    else:
        state.tables.detail.delete(detail_key(queue.id, key_id))
        queue.details -= 1


def unbind(state: State, name: bytes, keys: list[bytes], discard: bool) -> Work[list[int]]:
    """Unbinds a queue from keys. Returns for each key the first offset that will not be seen; 0 if it was not bound.

    Raises NoSuchQueue, NotOwner.
    """
    queue = existing_queue(state, name)
    full_names = state.owned_names(keys)
    if fits_step(state, queue, full_names, APPLIED_PER_STEP):
        return _unbind(state, queue, full_names, discard)
    offsets: list[int] = []
    for names in pieces(state, queue, full_names, APPLIED_PER_STEP):
        offsets += _unbind(state, queue, names, discard)
        queue.forget_buckets()
        yield
    return offsets


def _unbind(state: State, queue: Queue, full_names: list[bytes], discard: bool) -> list[int]:
    key_get = state.tables.key.get
    offsets: list[int] = []
    removed, details = 0, queue.details
    for full_name in full_names:
        row = key_get(full_name)
        if row is None:
            offsets.append(0)
            continue
        key_id = row[ID]
        if key_id in queue.bucket(key_id).starts:
            offsets.append(end_binding(state, queue, key_id, row, discard))
            removed += 1
        else:
            offsets.append(0)
            if discard and queue.details:
                discard_ended(state, queue, key_id)
    if removed or details != queue.details:
        queue.bindings -= removed
        queue.save()
    return offsets


def end_binding(state: State, queue: Queue, key_id: bytes, key_row: bytes, discard: bool) -> int:
    """Takes one binding out of its bucket; without `discard` its backlog stays, as an ended binding, if the key keeps
    some of it. Returns its end. The caller saves the queue."""
    bucket = queue.bucket(key_id)
    start, cursor, head = bucket.starts[key_id], bucket.cursor(key_id), head_of(key_row)
    bucket.pop(key_id)
    state.remove_member(key_id, queue.id)
    place = detail_key(queue.id, key_id)
    row = state.tables.detail.get(place) if queue.details else None
    kept_from = max(cursor, low_of(key_row))
    if row is not None:
        kept_from = done_end_of(row, kept_from)
    keeps = kept_from < head and not discard
    if keeps:
        queue.details += row is None
        kept = encode_detail(Detail(start, cursor, head)) if row is None else with_places(row, start, cursor, head)
        state.tables.detail.put(place, kept)
        state.tables.ended.add(key_id, queue.id)
    elif row is not None:
        _delete_detail(state, queue, key_id)
    if cursor < head:
        state.effects.advanced.append(key_id)
    if queue.id in state.interest.queues:
        state.effects.events.append(Unbound(queue.id, key_id, head if keeps else 0))
    if state.interest.members is not None:
        key = bound_key(state.tables, key_id)[0][NAME]
        if state.interest.members.wants(key):
            state.effects.members.append(Left(key, queue.id))
    return head


def _delete_detail(state: State, queue: Queue, key_id: bytes) -> None:
    state.tables.detail.delete(detail_key(queue.id, key_id))
    queue.details -= 1


def discard_ended(state: State, queue: Queue, key_id: bytes) -> None:
    """Drops the backlog of an ended binding, if there is one."""
    row = state.tables.detail.get(detail_key(queue.id, key_id))
    if row is None:
        return
    _delete_detail(state, queue, key_id)
    state.remove_ended(key_id, queue.id)
    state.effects.advanced.append(key_id)
    if queue.id in state.interest.queues:
        state.effects.events.append(Unbound(queue.id, key_id, 0))
