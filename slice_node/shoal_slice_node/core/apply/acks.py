"""Applies acks: a binding's cursor moves over done messages; messages done above the cursor become done ranges.

Sessions are told what was acked long before an ACKS record says so: it is applied as far as it still has a meaning. A
change acks by itself, so its acks are refused where they have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

from shoal_contract.errors import Conflict, OutOfRange, ResourceExhausted, ShoalError
from shoal_slice_node.core.apply.binding_budget import BindingBudget
from shoal_slice_node.core.apply.binds import existing_queue, save_detail
from shoal_slice_node.core.apply.effects import AckedByChange
from shoal_slice_node.core.apply.queues import Queue
from shoal_slice_node.core.apply.records import Acked, decode_acks
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import (
    ACKED_IN_CHANGE_PER_STEP,
    CHANGE_ACKS_COST_MAX,
    DONE_RANGES_MAX,
    DONE_RANGES_PER_COST,
)
from shoal_slice_node.core.rows.detail_row import (
    Detail,
    acked_by_search,
    count_ranges,
    decode_detail,
    detail_key,
    places_of,
    with_acked,
)
from shoal_slice_node.core.rows.key_row import ID, head_of, low_of
from shoal_slice_node.core.rows.queue_cursor import move_cursor
from shoal_slice_node.core.rows.queue_row import life_of
from shoal_slice_node.core.turns import Work


def apply_acks(state: State, payload: bytes) -> None:
    """Applies the acks of an ACKS record.

    An ack for a binding that is gone, or for messages that are done already, changes nothing. The queue may have been
    bound again since the ack was taken: the ack does not count for messages that the new binding is to see again. If it
    is not known any more which those are, no ack is applied, and the leader takes all of them again.
    """
    table = state.tables.queue
    taken_at_lsn, all_acks = decode_acks(payload)
    counting = state.bind_backs.counting(all_acks, taken_at_lsn)
    state.bind_backs.acks_applied(taken_at_lsn)
    if counting is None:
        state.effects.acks_skipped = True
        return
    in_place = not state.left_out  # Else acks are cut off first (_there).
    for queue_id, acks in groupby(counting, attrgetter("queue_id")):
        row = table.get(queue_id)
        if row is None:
            continue
        waiting = list(acks)
        while in_place and waiting:
            moved = move_cursor(row, waiting[0].key_id, waiting[0].first, waiting[0].to)
            if moved is None:
                break
            state.effects.advanced.append(waiting.pop(0).key_id)
            row = moved
        if waiting:
            settle(state, Queue.decode(state.tables, queue_id, row), waiting)
        else:
            table.put(queue_id, row)


def settle(state: State, queue: Queue, acks: list[Acked]) -> None:
    """Applies acks of one queue key by key, and saves the queue: a detail row with many ranges is read and written
    once, however many acks come."""
    for key_id, ranges in groupby(acks, attrgetter("key_id")):
        _apply(state, queue, key_id, list(ranges))
    queue.save()


def _apply(state: State, queue: Queue, key_id: bytes, acks: list[Acked]) -> None:
    if _acked_in_row(state, queue, key_id, acks):
        state.effects.advanced.append(key_id)
        return
    detail, has_row = load_binding(state, queue, key_id)
    if detail is not None:
        advance(detail, _there(state, key_id, detail, acks) if state.left_out else acks)
        save_binding(state, queue, key_id, detail, has_row)
    state.effects.advanced.append(key_id)


def _acked_in_row(state: State, queue: Queue, key_id: bytes, acks: list[Acked]) -> bool:
    """Applies few acks of a binding with many done ranges, without decoding these. Returns False, and changes nothing,
    if there are few of them, if none or no backlog would be left, or if more is to be known."""
    place = detail_key(queue.id, key_id)
    row = state.tables.detail.get(place) if queue.details else None
    if row is None or state.left_out or not acked_by_search(len(acks), count_ranges(row)):
        return False
    changed = with_acked(row, [(ack.first, ack.to) for ack in acks])
    if not count_ranges(changed):
        return False
    start, cursor, end = places_of(changed)
    if end and cursor >= end:
        return False
    if not end:
        queue.bucket(key_id).put(key_id, start, cursor)
    state.tables.detail.put(place, changed)
    return True


def _there(state: State, key_id: bytes, detail: Detail, acks: list[Acked]) -> list[Acked]:
    """Returns the acks, cut off where the binding's messages end. Where a publish was left out, later messages have
    lower offsets than those that were acked: a cursor past the head would pass over messages to come."""
    found = state.key_by_id(key_id)
    end = detail.end or (found[1].head if found is not None else 0)
    return [ack._replace(to=min(ack.to, end)) for ack in acks if ack.first < end]


def load_binding(state: State, queue: Queue, key_id: bytes) -> tuple[Detail | None, bool]:
    """Returns a binding, and whether it has a detail row; None if there is no such binding."""
    row = state.tables.detail.get(detail_key(queue.id, key_id)) if queue.details else None
    if row is not None:
        return decode_detail(row), True
    bucket = queue.bucket(key_id)
    start = bucket.starts.get(key_id)
    return (None if start is None else Detail(start, bucket.cursor(key_id))), False


def save_binding(state: State, queue: Queue, key_id: bytes, detail: Detail, has_row: bool) -> None:
    """Writes what `load_binding` returned, except the queue itself."""
    if detail.ended:
        _save_ended(state, queue, key_id, detail)
        return
    queue.bucket(key_id).put(key_id, detail.start, detail.cursor)
    if has_row:
        save_detail(state, queue, key_id, detail)
    elif detail.done or detail.counts:
        queue.details += 1
        save_detail(state, queue, key_id, detail)


def ack(
    state: State,
    name: bytes,
    key: bytes,
    life: int,
    ranges: Sequence[tuple[int, int]],
    refuse: Callable[[int, ShoalError], None],
    budget: BindingBudget,
) -> Work[int]:
    """Acks ranges first <= offset < to of a binding, one request each, for a change. What was given to sessions does
    not count, as only the leader knows it: the binding must have every offset still to get. So of two consumers that
    were given the same message one alone can ack it in a change. Returns what this cost, in operations.

    `life`: the queue's, of which they are; 0: whichever it is. `budget`: what the done ranges of all bindings of the
    change may still cost. Calls `refuse` with the number of each range that is refused: NoSuchQueue, NotOwner;
    OutOfRange for offsets that the key has not given yet; Conflict where the queue has another life or is not bound, or
    some of it is done; ResourceExhausted.
    """
    cost = len(ranges)
    try:
        queue = existing_queue(state, name)
        if life not in (0, life_of(queue.id)):
            raise _other_life(state, name)
        row = state.tables.key.get(state.owned_name(key))
        if row is not None:
            cost += _spend(state, queue, row[ID], budget)
        detail, has_row = (None, False) if row is None else load_binding(state, queue, row[ID])
        if row is None or detail is None:
            raise _not_bound(state, name, key)
        kept = _kept_part(detail, low_of(row))
    except ShoalError as error:
        for number in range(len(ranges)):
            refuse(number, error)
        return cost
    key_id, head, acked = row[ID], head_of(row), 0
    for number, (first, to) in enumerate(ranges):
        if number % ACKED_IN_CHANGE_PER_STEP == ACKED_IN_CHANGE_PER_STEP - 1:
            yield
        try:
            _check_unacked(state, name, key, kept, head, first, to)
        except ShoalError as error:
            refuse(number, error)
            continue
        advance(detail, [Acked(queue.id, key_id, first, to)])
        if kept is not detail:
            advance(kept, [Acked(queue.id, key_id, first, to)])
        acked += to - first
        if queue.id in state.interest.queues:
            state.effects.events.append(AckedByChange(queue.id, key_id, first, to))
    if acked:
        save_binding(state, queue, key_id, detail, has_row)
        queue.save()
        state.effects.advanced.append(key_id)
        state.effects.counters.acks += acked
    return cost


def _kept_part(detail: Detail, low: int) -> Detail:
    """Returns a binding as it is without what is below `low`, which its key does not keep any more; the same one if
    there is nothing. The binding itself keeps its cursor: a consumer is still to be told of the gap. If it has many
    done ranges, it forgets those below `low`: they become a part of the gap."""
    if detail.cursor >= low:
        return detail
    kept = Detail(detail.start, detail.cursor, detail.end, detail.done.above(low))
    kept.raise_to(low)
    if len(detail.done) >= DONE_RANGES_MAX:
        detail.done.cut_below(low)
    return kept


def _spend(state: State, queue: Queue, key_id: bytes, budget: BindingBudget) -> int:
    """Takes from the budget what the ranges of a binding cost to read and write, and returns it. Raises
    ResourceExhausted if that is more than is left."""
    row = state.tables.detail.get(detail_key(queue.id, key_id)) if queue.details else None
    cost = 0 if row is None else count_ranges(row) // DONE_RANGES_PER_COST
    if cost > budget.remaining:
        limit = CHANGE_ACKS_COST_MAX * DONE_RANGES_PER_COST
        raise ResourceExhausted(
            f"queue {state.refusals.shown(queue.name)} has acked messages in {cost * DONE_RANGES_PER_COST} stretches"
            f" above its oldest unacked one; the acks of one change read and write at most {limit} of all their"
            " bindings: ack in several changes",
            subject="done ranges of a change",
            limit=limit,
            value=(CHANGE_ACKS_COST_MAX - budget.remaining + cost) * DONE_RANGES_PER_COST,
        )
    budget.remaining -= cost
    return cost


def _check_unacked(state: State, name: bytes, key: bytes, detail: Detail, head: int, first: int, to: int) -> None:
    """Checks that a binding has all of first <= offset < to still to get. Raises OutOfRange, Conflict,
    ResourceExhausted."""
    done = detail.done
    if to > head:
        shown = state.refusals.shown(key)
        what = f"key {shown}: offset {to - 1} is acked, and its next message gets offset {head}"
        raise OutOfRange(what, subject=shown, limit=head - 1, value=to - 1)
    if first < detail.cursor or done.within(first, to) or (detail.ended and to > detail.end):
        queue, shown = state.refusals.shown(name), state.refusals.shown(key)
        raise Conflict(
            f"queue {queue} does not have all of offsets {first} to {to - 1} of key {shown} to get: some are acked"
            " already, are not kept any more, or were not published while it was bound",
            subject=queue,
            value=first,
        )
    touches = first == detail.cursor or done.end_of(first - 1) == first or done.next_from(to) == to
    if len(done) >= DONE_RANGES_MAX and not touches:
        queue, shown = state.refusals.shown(name), state.refusals.shown(key)
        raise ResourceExhausted(
            f"what queue {queue} has acked of key {shown} above its oldest unacked message is in {len(done)} stretches;"
            f" the limit is {DONE_RANGES_MAX}: ack the oldest first",
            subject="done ranges of a binding",
            limit=DONE_RANGES_MAX,
            value=len(done) + 1,
        )


def _not_bound(state: State, name: bytes, key: bytes) -> Conflict:
    queue, shown = state.refusals.shown(name), state.refusals.shown(key)
    return Conflict(f"queue {queue} has nothing of key {shown} to get: all is acked, or it is not bound", subject=queue)


def _other_life(state: State, name: bytes) -> Conflict:
    queue = state.refusals.shown(name)
    return Conflict(f"queue {queue} was dropped and declared anew since the messages were given", subject=queue)


def advance(detail: Detail, acks: list[Acked]) -> None:
    """Marks offsets as done."""
    for ack in acks:
        if ack.first <= detail.cursor:
            detail.cursor = max(detail.cursor, ack.to)
        else:
            detail.done.add(ack.first, ack.to)
        if detail.counts:
            detail.counts.cut(ack.first, ack.to)
    detail.cursor = detail.done.end_of(detail.cursor)
    detail.done.cut_below(detail.cursor)
    if detail.counts:
        detail.counts.cut_below(detail.cursor)


def _save_ended(state: State, queue: Queue, key_id: bytes, detail: Detail) -> None:
    if detail.cursor < detail.end:
        save_detail(state, queue, key_id, detail)
        return
    state.tables.detail.delete(detail_key(queue.id, key_id))
    state.remove_ended(key_id, queue.id)
    queue.details -= 1
