"""Describes reads that were checked, and tells beforehand which of them are likely to take long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import islice
from typing import NamedTuple

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import (
    DONE_RANGES_PER_COST,
    MIDDLING_BINDINGS_MAX,
    QUICK_BINDINGS_MAX,
    SIZED_DETAILS_MAX,
    SIZED_QUEUES_MAX,
)
from shoal_slice_node.core.rows.detail_row import count_ranges
from shoal_slice_node.core.rows.queue_row import bindings_and_details
from shoal_slice_node.core.turns import Work


class Length(IntEnum):
    """Says among which reads one waits for room; the quicker ones go first. QUICK: it is likely to take some 5 ms.
    LARGE: as long, but it is known that its answer is not brief, so it waits for the room of a large one. MIDDLING:
    some 20 to 60 ms. LONG: more, perhaps seconds."""

    QUICK = 0
    LARGE = 1
    MIDDLING = 2
    LONG = 3


class Read(NamedTuple):
    """Describes a read that was checked. `whole`: begins it. `within`: begins it as well; but its result is None, and
    it has taken nothing, if it is not done within so many steps. `length`: returns what is likely. `may_be_tried`:
    where nothing waits, trying costs less than it may gain: it may find something soon, though the queue is large.
    `brief`: begins it as a quick one; its result is None, too, and it has taken nothing, if the answer would take more
    than about so many bytes. `queue_pulled`: from which it takes messages; b"": it only looks."""

    whole: Callable[[], Work[wire.Answer]]
    within: Callable[[int], Work[wire.Answer | None]]
    brief: Callable[[int], Work[wire.Answer | None]]
    length: Callable[[], Length]
    may_be_tried: bool
    queue_pulled: bytes = b""


def length_of(state: State, names: Sequence[bytes]) -> Length:
    """Returns how long a look at all bindings of these queues takes, as far as the first SIZED_QUEUES_MAX tell, and the
    number of the others. DONE_RANGES_PER_COST done ranges count as a binding, as far as the first SIZED_DETAILS_MAX
    detail rows tell."""
    cost, rows_left = max(0, len(names) - SIZED_QUEUES_MAX), SIZED_DETAILS_MAX
    for name, _ in zip(names, range(SIZED_QUEUES_MAX), strict=False):
        queue_id = state.tables.queue_by_name.get(name)
        row = None if queue_id is None else state.tables.queue.get(queue_id)
        if queue_id is None or row is None:
            continue
        bindings, details = bindings_and_details(row)
        cost += bindings + details
        if details and rows_left and cost <= MIDDLING_BINDINGS_MAX:
            some = [count_ranges(row) for _, row in islice(state.tables.detail.scan(queue_id, queue_id), rows_left)]
            rows_left -= len(some)
            cost += sum(some) * max(details, len(some)) // (max(1, len(some)) * DONE_RANGES_PER_COST)
    if cost <= QUICK_BINDINGS_MAX:
        return Length.QUICK
    return Length.MIDDLING if cost <= MIDDLING_BINDINGS_MAX else Length.LONG
