"""The verb bind: binds queues to keys.

The leader alone knows which queues are in memory, as they are consumed, and that there is no room for more of their
bindings. It decides that when the record is written (core/node/limited_binds.py), and then writes LimitedBinds, which
every node refuses alike.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Final

from shoal_contract.errors import Malformed
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.binds import Begin, bind, check_all_bound
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.checking.columns import check_memberships
from shoal_slice_node.core.limits import AGE_BIND_COST, APPLIED_PER_STEP
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.queue_size import ranges_cost
from shoal_slice_node.core.verbs.verb import Change, Columns, Measures, Verb

_STARTS: Final = frozenset(wire.Start.values())


def _check(number: int, step: wire.Binds, _: Measures) -> int:
    if step.start not in _STARTS:
        raise Malformed(f"step {number} (binds) has start {step.start}, unknown here", subject="start")
    return check_memberships(number, "binds", step)


def _apply(change: Change, step: wire.Binds) -> Work[wire.StepOutcome]:
    return _bind(change, step, frozenset())


def _bind(change: Change, step: wire.Binds, no_room: Set[bytes]) -> Work[wire.StepOutcome]:
    state = change.state
    if step.start == wire.START_OFFSET:
        return (yield from _bind_at(change, step, no_room))
    begin = Begin(step.start, step.start_value, change.found_by_age)

    def request(queue: bytes, keys: list[bytes]) -> Work[list[int]]:
        if queue in no_room:
            yield from check_all_bound(state, queue, keys, APPLIED_PER_STEP)
        return (yield from bind(state, queue, keys, begin))

    outcome, done = yield from change.each_membership(step, request, begin.keys_per_step)
    state.effects.counters.binds += done
    return outcome


def _looks(step: wire.Binds) -> int:
    """Returns what a bind by age takes more: it looks at log rows of each key, once for a change."""
    return (AGE_BIND_COST - 1) * len(set(step.keys)) if step.start == wire.START_AGE else 0


def _bind_at(change: Change, step: wire.Binds, no_room: Set[bytes]) -> Work[wire.StepOutcome]:
    """Binds from an offset, and notes which keys were bound before."""
    state = change.state
    bound_before: list[int] = []
    place = 0

    def request(queue: bytes, keys: list[bytes]) -> Work[list[int]]:
        nonlocal place
        first, place = place, place + len(keys)
        if queue in no_room:
            yield from check_all_bound(state, queue, keys, APPLIED_PER_STEP)
        bound: list[bool] = []
        begin = Begin(step.start, step.start_value, change.found_by_age, bound)
        offsets = yield from bind(state, queue, keys, begin)
        bound_before.extend(at for at, was_bound in enumerate(bound, first) if was_bound)
        return offsets

    outcome, done = yield from change.each_membership(step, request, APPLIED_PER_STEP)
    outcome.bound_before.extend(bound_before)
    state.effects.counters.binds += done
    return outcome


def _columns(step: wire.Binds) -> Columns:
    offsets = [step.start_value] * len(step.keys) if step.start == wire.START_OFFSET else None
    return Columns(step.queues, step.keys, step.key_counts or None, offsets)


BIND: Final = Verb(
    "bind", _check, _apply, _columns, {2: None}, grows=True, ranges=ranges_cost, looks=_looks, atomic=True
)


def _check_limited(number: int, step: wire.LimitedBinds, measures: Measures) -> int:
    return _check(number, step.binds, measures)


def _apply_limited(change: Change, step: wire.LimitedBinds) -> Work[wire.StepOutcome]:
    return _bind(change, step.binds, frozenset(step.no_room))


def _looks_limited(step: wire.LimitedBinds) -> int:
    return _looks(step.binds)


def _ranges_limited(state: State, step: wire.LimitedBinds) -> int:
    return ranges_cost(state, step.binds)


def _columns_limited(step: wire.LimitedBinds) -> Columns:
    """Names the queues that the step may bind: those without room are bound already, or refused."""
    binds, no_room = step.binds, frozenset(step.no_room)
    kept = wire.Binds(start=binds.start, start_value=binds.start_value)
    place = 0
    for queue, count in zip(binds.queues, binds.key_counts or [1] * len(binds.queues), strict=True):
        if queue not in no_room:
            kept.queues.append(queue)
            kept.key_counts.append(count)
            kept.keys.extend(binds.keys[place : place + count])
        place += count
    return _columns(kept)


LIMITED_BIND: Final = Verb(
    "bind",
    _check_limited,
    _apply_limited,
    _columns_limited,
    {1: {2: None}},
    grows=True,
    ranges=_ranges_limited,
    looks=_looks_limited,
    atomic=True,
    by_slice=True,
)
