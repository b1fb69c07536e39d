"""The verb publish: adds chunks to the logs of keys."""

from __future__ import annotations

from typing import Final

from shoal_contract.chunk import measure_chunk
from shoal_contract.errors import Malformed, OutOfRange, ShoalError
from shoal_contract.limits import TTL_MS_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.due import delay
from shoal_slice_node.core.apply.publishes import publish
from shoal_slice_node.core.checking.columns import bounded, check_published, same
from shoal_slice_node.core.limits import APPLIED_PER_STEP
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.verb import Change, Columns, Measures, Verb


def _check(number: int, step: wire.Publishes, measures: Measures) -> int:
    operations = bounded(len(step.keys))
    same(number, "publishes", "chunks", len(step.chunks), operations)
    check_published(step.keys)
    if step.live and step.not_before_ms:
        raise Malformed(f"step {number} has live publishes with a time; they cannot wait for one", subject="live")
    if step.ttl_ms > TTL_MS_MAX:
        raise OutOfRange(
            f"ttl_ms is {step.ttl_ms}; the limit is {TTL_MS_MAX // 86_400_000} days, {TTL_MS_MAX}",
            subject="ttl_ms",
            limit=TTL_MS_MAX,
            value=min(step.ttl_ms, (1 << 63) - 1),
        )
    if step.live and step.ttl_ms:
        raise Malformed(f"step {number} has live publishes with a ttl; they are given now or never", subject="live")
    measures += map(measure_chunk, step.chunks)
    return operations


def _apply(change: Change, step: wire.Publishes) -> Work[wire.StepOutcome]:
    state, time_ms = change.state, change.time_ms
    outcome = wire.StepOutcome()
    offsets: list[int] = []
    queues: list[int] = []
    mandatory, effects, not_before_ms = step.mandatory, state.effects, step.not_before_ms
    ttl_ms = step.ttl_ms
    added_before = effects.added_messages
    for number, (key, chunk, measure) in enumerate(zip(step.keys, step.chunks, change.measures, strict=False)):
        try:
            if not_before_ms:
                first = routed = delay(state, key, chunk, measure, mandatory, not_before_ms, ttl_ms)
            else:
                first, routed = publish(state, key, chunk, measure, mandatory, time_ms, bounded=True, ttl_ms=ttl_ms)
        except ShoalError as error:
            first = routed = 0
            effects.published.append(None)
            outcome.refusals.append(change.refusal(number, error))
        offsets.append(first)
        queues.append(routed)
        if number % APPLIED_PER_STEP == 0:
            yield
    effects.counters.publishes += effects.added_messages - added_before
    effects.counters.chunks += len(offsets) - len(outcome.refusals)
    outcome.offsets.extend(offsets)
    outcome.queues.extend(queues)
    return outcome


def _columns(step: wire.Publishes) -> Columns:
    return Columns(keys=step.keys, chunks=step.chunks)


PUBLISH: Final = Verb("publish", _check, _apply, _columns, {}, atomic=True)
