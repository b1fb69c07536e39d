"""Estimates what applying a change may take, in operations: for turns and for the bounds of batches and slices.

The check of a frame sees only the frame, and must be the same on every node: there a purge or a drop is one operation,
and FRAME_OPERATIONS_MAX counts it so. What it may really take depends on the bindings of its queue, up to the budget
that all purges, or all drops, of a record share. A price decides nothing that is journaled, so a node may compute it at
any time.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.limits import PRICED_QUEUES_MAX, RANGES_PRICE_MAX
from shoal_slice_node.core.verbs.changes import Checked
from shoal_slice_node.core.verbs.table import columns_of, verb_of
from shoal_slice_node.core.verbs.verb import Price


class GrowingQueues(Container[bytes]):
    """Knows the queues that get bindings by records that are written and not applied yet: the records of the batch that
    is being gathered and of the batch before it. The row of such a queue does not show these bindings. Names are read
    out of the changes only when a price asks for one."""

    def __init__(self) -> None:
        self._before = _Growing()
        self._now = _Growing()

    def begin_batch(self) -> None:
        """Begins a batch. The batch before the one that was gathered last is applied, and forgotten: so it is while a
        batch is applied once it is synced here. Where more may wait to be applied, more must be remembered."""
        self._before, self._now = self._now, _Growing()

    def note(self, checked: Checked) -> None:
        """Adds a change of the batch that is being gathered."""
        if checked.grows:
            self._now.unread.append(checked)

    def __contains__(self, name: object) -> bool:
        return name in self._before.names() or name in self._now.names()


class _Growing:
    """Holds the growing queues of one batch. `unread`: changes with queues that are not in `_names` yet."""

    def __init__(self) -> None:
        self.unread: list[Checked] = []
        self._names: set[bytes] = set()

    def names(self) -> set[bytes]:
        for checked in self.unread:
            for step in checked.change.steps:
                verb = verb_of(step)
                if verb is not None and verb.grows:
                    self._names.update(columns_of(step).queues)
        self.unread.clear()
        return self._names


def price(state: State, checked: Checked, growing: GrowingQueues) -> int:
    """Returns what applying a change may take, in operations: its own, the bindings that it may look at or end, and the
    done ranges of those that it binds or unbinds. A queue that does not exist costs no more than its refusal. May be
    called while a record is applied in part: each row is whole.
    """
    if not checked.ends:
        return checked.operations
    names: dict[Price, list[bytes]] = {}
    ranges = 0
    for step in checked.change.steps:
        verb = verb_of(step)
        if verb is not None and verb.ranges is not None and ranges < RANGES_PRICE_MAX:
            ranges += verb.ranges(state, getattr(step, step.WhichOneof("step") or ""))
        if verb is not None and verb.price is not None:
            names.setdefault(verb.price, []).extend(columns_of(step).queues)
    ending = sum(
        _bounded(price.shared_max, price.bindings(state.tables, queues, growing), len(queues))
        for price, queues in names.items()
    )
    return checked.operations + checked.times * (ending + min(ranges, RANGES_PRICE_MAX))


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
