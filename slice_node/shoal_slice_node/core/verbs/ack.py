"""The verb ack: acks messages as a part of a change. Acks that sessions send by themselves are no change: they go to
dispatch, and ACKS records gather them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final

from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.acks import ack
from shoal_slice_node.core.checking.columns import bounded, check_published, same
from shoal_slice_node.core.checking.session_frames import check_queue_names
from shoal_slice_node.core.limits import (
    APPLIED_PER_STEP,
    CHANGE_ACKS_COST_MAX,
    DONE_RANGES_MAX,
    DONE_RANGES_PER_APPLIED,
)
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.queue_size import bindings_and_details
from shoal_slice_node.core.verbs.verb import Change, Columns, GrowingNames, Measures, Price, Verb

_DETAIL_COST: Final = DONE_RANGES_MAX // DONE_RANGES_PER_APPLIED
"""What reading and writing a binding's done ranges may take, in operations."""


def _check(number: int, step: wire.TransactionAcks, _: Measures) -> int:
    operations = bounded(max(len(step.queues), len(step.keys), len(step.lows), len(step.tos)))
    for column, found in (("keys", step.keys), ("lows", step.lows), ("tos", step.tos)):
        same(number, "acks", column, len(found), len(step.queues))
    check_queue_names(step.queues)
    check_published(step.keys)
    for low, to in zip(step.lows, step.tos, strict=True):
        if not 0 < low < to:
            raise Malformed(
                f"step {number} (acks) has offsets from {low} up to, not including, {to}: it needs 1 or more, and they"
                " begin at 1",
                subject="lows",
                value=low,
            )
    return operations


def _costs(tables: Tables, names: Iterable[bytes], growing: GrowingNames) -> Iterable[int]:
    """Yields what the done ranges of each queue's bindings may take: the queue's row does not say how many there
    are."""
    for name, _ in groupby(names):
        yield _DETAIL_COST if name in growing or bindings_and_details(tables, name)[1] else 0


def _apply(change: Change, step: wire.TransactionAcks) -> Work[wire.StepOutcome]:
    """Acks the requests of one binding that stand in a row together: its done ranges are read and written once."""
    outcome = wire.StepOutcome()
    position = looked_at = 0
    for (queue, key), requests in groupby(zip(step.queues, step.keys, step.lows, step.tos, strict=True), _binding):
        ranges = [(low, to) for _, _, low, to in requests]
        begin = position

        def refuse(number: int, error: ShoalError, begin: int = begin) -> None:
            outcome.refusals.append(change.refusal(begin + number, error))

        looked_at += ack(change.state, queue, key, ranges, refuse)
        position += len(ranges)
        if looked_at >= APPLIED_PER_STEP:
            looked_at = 0
            yield
    return outcome


def _binding(request: tuple[bytes, bytes, int, int]) -> tuple[bytes, bytes]:
    return request[0], request[1]


def _columns(step: wire.TransactionAcks) -> Columns:
    messages = [to - low for low, to in zip(step.lows, step.tos, strict=False)]
    return Columns(step.queues, step.keys, offsets=step.lows, messages=messages)


ACK: Final = Verb(
    "ack",
    _check,
    _apply,
    _columns,
    {3: None, 4: None},
    price=Price(CHANGE_ACKS_COST_MAX, _costs),
    atomic=True,
)
