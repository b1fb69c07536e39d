"""The verb ack: acks messages as a part of a change. Acks that sessions send by themselves are no change: they go to
dispatch, and ACKS records gather them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter
from typing import Final

from shoal_contract.errors import Malformed, ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.acks import ack
from shoal_slice_node.core.checking.columns import bounded, check_published, same
from shoal_slice_node.core.checking.session_frames import check_queue_names
from shoal_slice_node.core.limits import (
    APPLIED_PER_STEP,
    CHANGE_ACKS_PRICE_MAX,
    DONE_RANGES_MAX,
    DONE_RANGES_PER_COST,
)
from shoal_slice_node.core.tables.tables import Tables
from shoal_slice_node.core.turns import Work
from shoal_slice_node.core.verbs.queue_size import bindings_and_details
from shoal_slice_node.core.verbs.verb import Change, Columns, GrowingNames, Measures, Price, Verb

_DETAIL_COST: Final = DONE_RANGES_MAX // DONE_RANGES_PER_COST
"""What reading and writing a binding's done ranges may take, in operations."""


def _check(number: int, step: wire.TransactionAcks, _: Measures) -> int:
    operations = bounded(max(len(step.queues), len(step.keys), len(step.lows), len(step.tos), len(step.lives)))
    for column, found in (("keys", step.keys), ("lows", step.lows), ("tos", step.tos)):
        same(number, "acks", column, len(found), len(step.queues))
    if step.lives:
        same(number, "acks", "lives", len(step.lives), len(step.queues))
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
    """Acks the requests of one binding together, wherever they stand in the step: its done ranges are read and written
    once. What one binding's acks do does not depend on another's; refusals keep the order of the requests."""
    bindings: dict[tuple[bytes, bytes, int], list[int]] = {}
    lives = step.lives or [0] * len(step.queues)
    for number, binding in enumerate(zip(step.queues, step.keys, lives, strict=True)):
        bindings.setdefault(binding, []).append(number)
    refused: list[tuple[int, ShoalError]] = []
    looked_at = 0
    for (queue, key, life), numbers in bindings.items():
        ranges = [(step.lows[number], step.tos[number]) for number in numbers]

        def refuse(place: int, error: ShoalError, numbers: list[int] = numbers) -> None:
            error.__context__ = None
            # Its traceback has a frame with the binding's row and ranges, and that has `refused`: a circle.
            refused.append((numbers[place], error.with_traceback(None)))

        looked_at += yield from ack(change.state, queue, key, life, ranges, refuse, change.acking)
        if looked_at >= APPLIED_PER_STEP:
            looked_at = 0
            yield
    refused.sort(key=itemgetter(0))
    return wire.StepOutcome(refusals=[change.refusal(number, error) for number, error in refused])


def _columns(step: wire.TransactionAcks) -> Columns:
    messages = [to - low for low, to in zip(step.lows, step.tos, strict=False)]
    return Columns(step.queues, step.keys, offsets=step.lows, messages=messages)


ACK: Final = Verb(
    "ack",
    _check,
    _apply,
    _columns,
    {3: None, 4: None, 5: None},
    price=Price(CHANGE_ACKS_PRICE_MAX, _costs),
    atomic=True,
    frees=True,
    settles=True,
)
