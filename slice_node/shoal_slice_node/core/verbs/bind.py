"""The verb bind: binds queues to keys."""

from __future__ import annotations

from typing import Final

from shoal_contract.errors import Malformed
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.binds import bind
from shoal_slice_node.core.checking.columns import check_memberships
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.verb import Change, Columns, Measures, Verb

_STARTS: Final = frozenset(wire.Start.values())


def _check(number: int, step: wire.Binds, _: Measures) -> int:
    if step.start not in _STARTS:
        raise Malformed(f"step {number} (binds) has start {step.start}, unknown here", subject="start")
    return check_memberships(number, "binds", step)


def _apply(change: Change, step: wire.Binds) -> Work[wire.StepOutcome]:
    state, start, value = change.state, step.start, step.start_value
    if start == wire.START_OFFSET:
        return (yield from _bind_at(change, step))
    outcome, done = yield from change.each_membership(step, lambda queue, keys: bind(state, queue, keys, start, value))
    state.effects.counters.binds += done
    return outcome


def _bind_at(change: Change, step: wire.Binds) -> Work[wire.StepOutcome]:
    """Binds from an offset, and notes which keys were bound before."""
    state, value = change.state, step.start_value
    bound_before: list[int] = []
    place = 0

    def request(queue: bytes, keys: list[bytes]) -> Work[list[int]]:
        nonlocal place
        first, place = place, place + len(keys)
        offsets = yield from bind(state, queue, keys, wire.START_OFFSET, value)
        bound_before.extend(at for at, offset in enumerate(offsets, first) if offset < 0)
        return [abs(offset) for offset in offsets]

    outcome, done = yield from change.each_membership(step, request)
    outcome.bound_before.extend(bound_before)
    state.effects.counters.binds += done
    return outcome


def _columns(step: wire.Binds) -> Columns:
    offsets = [step.start_value] * len(step.keys) if step.start == wire.START_OFFSET else None
    return Columns(step.queues, step.keys, step.key_counts or None, offsets)


BIND: Final = Verb("bind", _check, _apply, _columns, {2: None}, grows=True, atomic=True)
