"""Estimates what applying a change may take, in operations: for turns and for the bounds of batches and slices.

The check of a frame sees only the frame, and must be the same on every node: there a purge or a drop is one operation,
and FRAME_OPERATIONS_MAX counts it so. What it may really take depends on the bindings of its queue, up to the budget
that all purges, or all drops, of a record share. A price decides nothing that is journaled, so a node may compute it at
any time.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal_slice_node.core.checking.frames import Checked
from shoal_slice_node.core.limits import (
    DONE_RANGES_MAX,
    DONE_RANGES_PER_APPLIED,
    DROP_BINDINGS_MAX,
    PRICED_QUEUES_MAX,
    PURGE_BINDINGS_MAX,
    RECLAIM_QUEUE_COST,
)
from shoal_slice_node.core.rows.queue_row import bindings_and_details
from shoal_slice_node.core.tables.tables import Tables


class GrowingQueues:
    """Knows the queues that get bindings by records that are written and not applied yet: the records of the batch that
    is being gathered and of the batch before it. The row of such a queue does not show these bindings. Names are read
    out of the changes only when a price asks for one."""

    def __init__(self) -> None:
        self._before = _Growing()
        self._now = _Growing()

    def begin_batch(self) -> None:
        """Begins a batch. The batch before the one that was gathered last is applied, and forgotten."""
        self._before, self._now = self._now, _Growing()

    def note(self, checked: Checked) -> None:
        """Adds a change of the batch that is being gathered."""
        if checked.grows:
            self._now.unread.append(checked)

    def __contains__(self, name: bytes) -> bool:
        return name in self._before.names() or name in self._now.names()


class _Growing:
    """Holds the growing queues of one batch. `unread`: changes with queues that are not in `_names` yet."""

    def __init__(self) -> None:
        self.unread: list[Checked] = []
        self._names: set[bytes] = set()

    def names(self) -> set[bytes]:
        for checked in self.unread:
            for step in checked.change.steps:
                if step.HasField("binds"):
                    self._names.update(step.binds.queues)
                elif step.HasField("imports"):
                    self._names.update(step.imports.queues)
        self.unread.clear()
        return self._names


def price(tables: Tables, checked: Checked, growing: GrowingQueues) -> int:
    """Returns what applying a change may take, in operations: its own, and the bindings that it may look at or end. A
    queue that does not exist costs no more than its refusal. May be called while a record is applied in part: each row
    is whole.
    """
    if not checked.ends:
        return checked.operations
    purged: list[bytes] = []
    dropped: list[bytes] = []
    for step in checked.change.steps:
        if step.HasField("purges"):
            purged += step.purges.queues
        elif step.HasField("drops"):
            dropped += step.drops.queues
    purging = _bounded(PURGE_BINDINGS_MAX, _purges(tables, purged, growing), len(purged))
    dropping = _bounded(DROP_BINDINGS_MAX, _drops(tables, dropped, growing), len(dropped))
    return checked.operations + purging + dropping


def _bounded(budget: int, bindings: Iterable[int], queues: int) -> int:
    """Returns the sum of `bindings`, or `budget` if that is less. If there are many queues, it reads no row and returns
    `budget`."""
    if queues > PRICED_QUEUES_MAX:
        return budget
    total = 0
    for some in bindings:
        total += some
        if total >= budget:
            return budget
    return total


def _purges(tables: Tables, names: Iterable[bytes], growing: GrowingQueues) -> Iterable[int]:
    """Yields what each purge may look at. The queue's row does not say how many done ranges its details have: the
    maximum is assumed."""
    for name in names:
        if name in growing:
            yield PURGE_BINDINGS_MAX
        else:
            bindings, details = _bindings_and_details(tables, name)
            yield bindings + details * (DONE_RANGES_MAX // DONE_RANGES_PER_APPLIED)


def _drops(tables: Tables, names: Iterable[bytes], growing: GrowingQueues) -> Iterable[int]:
    """Yields what each drop may end at once: no more than a bucket of bindings and as many details."""
    for name in names:
        if name in growing:
            yield RECLAIM_QUEUE_COST
        else:
            yield min(sum(_bindings_and_details(tables, name)), RECLAIM_QUEUE_COST)


def _bindings_and_details(tables: Tables, name: bytes) -> tuple[int, int]:
    queue_id = tables.queue_by_name.get(name)
    row = None if queue_id is None else tables.queue.get(queue_id)
    return (0, 0) if row is None else bindings_and_details(row)
