"""Applies Imports, the step of a bulk load: a queue that does not exist is made and bound at once; others are bound.

Each queue's part of a step is all or nothing. A step that is applied twice changes nothing the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

from shoal_contract.errors import OutOfRange, ShoalError
from shoal_contract.options import DURABLE
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.bind_checks import RoomInBuckets, check_done_ranges, check_offsets
from shoal_slice_node.core.apply.binds import AT_HEAD, Begin, bind_unsaved, check_binding_count
from shoal_slice_node.core.apply.effects import Joined
from shoal_slice_node.core.apply.pieces import pieces
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.records import ChangeHead
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import IMPORTED_PER_STEP
from shoal_slice_node.core.rows.key_row import ID, NAME, head_of
from shoal_slice_node.core.rows.producer_row import decode_producer
from shoal_slice_node.core.rows.small_rows import decode_partition
from shoal_slice_node.core.turns import Work

Refuse = Callable[[int, ShoalError], wire.Refusal]
_Piece: TypeAlias = list[tuple[int, list[bytes]]]
"""What one step checks or binds: starts, ascending, each with the full names of its keys; 0: from now on."""


def check_next_chunk(state: State, head: ChangeHead) -> None:
    """Raises OutOfRange if chunks before this one are missing: they were not written, because the disk was full."""
    row = state.tables.producer.get(head.producer)
    last = 0 if row is None else decode_producer(row).last
    if head.sequence != last + 1:
        raise OutOfRange(
            f"chunk {head.sequence} of the run may not come yet: the last was {last}",
            subject="chunk",
            limit=last + 1,
            value=head.sequence,
        )


def apply_imports(state: State, step: wire.Imports, refuse: Refuse) -> Work[wire.StepOutcome]:
    """Applies a step. The outcome counts the queues and bindings made. `refuse(number of the queue, error)` gives the
    refusal to report."""
    keys, starts = list(step.keys), list(step.starts)
    outcome = wire.StepOutcome()
    queues_made = bindings_made = position = 0
    for number, (name, count) in enumerate(zip(step.queues, step.key_counts, strict=True)):
        end = position + count
        try:
            made, bound = yield from _import_queue(state, name, keys[position:end], starts[position:end])
            queues_made += made
            bindings_made += bound
        except ShoalError as error:
            outcome.refusals.append(refuse(number, error))
        position = end
        yield
    outcome.queues_made = queues_made
    outcome.bindings_made = bindings_made
    return outcome


def _import_queue(state: State, name: bytes, keys: list[bytes], starts: Sequence[int]) -> Work[tuple[bool, int]]:
    """Imports a queue's part of a step, in steps: everything is checked first. Returns whether the queue was made, and
    how many bindings. Raises NotOwner, OutOfRange, ResourceExhausted."""
    full_names = state.owned_names(keys)
    found = state.load_queue(name)
    queue = found or Queue(state.tables, b"", name, DURABLE, state.new_incarnation(name))
    yield from check_binding_count(state, queue, full_names)
    if any(starts):
        pairs = sorted(zip(starts, full_names, strict=True))
        starts, full_names = [start for start, _ in pairs], [name for _, name in pairs]
    else:
        starts = ()
    room = RoomInBuckets(state, queue, len(full_names))
    if starts or queue.details or not room.is_sure:
        for number, piece in enumerate(_pieces(state, queue, full_names, starts)):
            if number:
                yield
            _check(state, queue, piece, room)
            queue.forget_buckets()
    if found is None:
        state.place_queue(queue)
    before = queue.bindings
    for number, piece in enumerate(_pieces(state, queue, full_names, starts)):
        if number:
            yield
        _bind(state, queue, piece, is_new=found is None)
    if found is None and not queue.bindings:
        queue.save()
    return found is None, queue.bindings - before


def _pieces(state: State, queue: Queue, full_names: list[bytes], starts: Sequence[int]) -> Iterator[_Piece]:
    """Yields what one step checks or binds. `starts`: ascending, one for each name; none: all are 0."""
    place = 0
    for names in pieces(state, queue, full_names, IMPORTED_PER_STEP):
        first, place = place, place + len(names)
        if starts:
            pairs = zip(starts[first:place], names, strict=True)
            yield [(start, [name for _, name in run]) for start, run in groupby(pairs, lambda pair: pair[0])]
        else:
            yield [(0, names)]


def _check(state: State, queue: Queue, piece: _Piece, room: RoomInBuckets) -> None:
    """Raises ResourceExhausted, OutOfRange."""
    for start, names in piece:
        room.check(names)
        if queue.details:
            check_done_ranges(state, queue, names)
        if start:
            check_offsets(state, queue, _old_or_elsewhere(state, names, start), start, exact=True)


def _bind(state: State, queue: Queue, piece: _Piece, is_new: bool) -> None:
    """Binds what is checked, and saves the queue once."""
    before = queue.bindings
    for start, names in piece:
        if is_new and not (start or queue.extra_buckets):
            _bind_new(state, queue, names)
        else:
            bind_unsaved(state, queue, names, Begin(wire.START_OFFSET, start, {}) if start else AT_HEAD)
    if queue.bindings > before:
        queue.save()
    queue.forget_buckets()


def _old_or_elsewhere(state: State, full_names: list[bytes], start: int) -> list[bytes]:
    """Returns the names without those of keys that do not exist and would begin at `start` anyhow."""
    tables = state.tables

    def would_begin(full_name: bytes) -> bool:
        return decode_partition(tables.partition.get(full_name[:2])).floor + 1 == start

    return [name for name in full_names if tables.key.get(name) is not None or not would_begin(name)]


def _bind_new(state: State, queue: Queue, full_names: list[bytes]) -> None:
    """Binds as `bind_unsaved` does with start `now`, for a queue that was just placed: no session has it, and it has
    one bucket and no details. This is the hot path of imports."""
    key_get, add, queue_id = state.tables.key.get, state.tables.binding.add, queue.id
    starts, members = queue.first_bucket.starts, state.interest.members
    for full_name in full_names:
        row = key_get(full_name) or state.create_key(full_name)
        key_id = row[ID]
        if key_id not in starts:
            starts[key_id] = head_of(row)
            add(key_id, queue_id)
            if members is not None and members.wants(full_name[NAME]):
                state.effects.members.append(Joined(full_name[NAME], queue_id, queue.name))
    queue.bindings = len(starts)
