"""Decides for drops of unused queues which queues are in use, when their record is written.

`apply` must not ask dispatch, so the record says it: IN_USE stands for the incarnation of each queue that a session
consumes, or of which a session has pulled messages that are not acked; and of those that the dropping session itself
asked to attach before, though that may have its turn later. The others are as good as dropped. Until their
record is applied, or refused, no session may begin to consume them: to attach and pull they are not there any more.
A queue that a session waits for meanwhile, or has tried to pull from, counts as used by the drops that come then: else
drops that are refused, one after the other, would keep it silent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import TypeVar

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.drop_conditions import IN_USE
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.limits import WANTED_MAX, WANTED_MS
from shoal_slice_node.core.node.commit import Item

Found = TypeVar("Found")


class UnusedDrops:
    """Decides, with what dispatch knows. `now_ms` tells the time of a clock that only grows."""

    def __init__(self, dispatcher: Dispatcher, now_ms: Callable[[], int]) -> None:
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self._wanted: OrderedDict[bytes, int] = OrderedDict()
        """Names of queues that a pull asked for while their drop was being written -> until when they count as used.
        The one that was asked for last is the last."""

    def want(self, name: bytes) -> None:
        """Notes that a pull got nothing of a queue, because its drop is being written."""
        self._wanted[name] = self._now_ms() + WANTED_MS
        self._wanted.move_to_end(name)
        if len(self._wanted) > WANTED_MAX:
            self._wanted.popitem(last=False)

    def decide(self, item: Item) -> None:
        """Writes the decisions into the item of a change that is about to be journaled."""
        assert item.checked is not None
        change = wire.Change()
        change.CopyFrom(item.checked.change)
        ending: list[bytes] = []
        for step in change.steps:
            if step.WhichOneof("step") == "drops" and step.drops.if_unused:
                self._decide_step(step.drops, item.attaches_before, ending)
        self._dispatcher.end_soon(ending)
        item.rewrite(change)
        item.applied = partial(self._then, ending, item.applied)
        item.failed = partial(self._then, ending, item.failed)

    def _decide_step(
        self, drops: wire.Drops, attaches_before: Callable[[bytes], bool] | None, ending: list[bytes]
    ) -> None:
        incarnations: list[int] = []
        for queue, incarnation in zip(drops.queues, drops.incarnations or repeat(0), strict=False):
            used = self._is_used(queue) or (attaches_before is not None and attaches_before(queue))
            incarnations.append(IN_USE if used else incarnation)
            if not used and not self._is_another(queue, incarnation):
                ending.append(queue)
        if IN_USE in incarnations:
            drops.incarnations[:] = incarnations

    def _is_used(self, name: bytes) -> bool:
        dispatcher = self._dispatcher
        if dispatcher.is_awaited(name) or self._wanted.get(name, -1) >= self._now_ms():
            return dispatcher.state.tables.queue_by_name.get(name) is not None
        return dispatcher.is_consumed(name)

    def _is_another(self, name: bytes, incarnation: int) -> bool:
        """Returns whether the queue is not the one that is to be dropped: the drop will be refused."""
        queue = self._dispatcher.state.load_queue(name) if incarnation else None
        return queue is not None and queue.incarnation not in (0, incarnation)

    def _then(self, ending: list[bytes], answer: Callable[[Found], None], found: Found) -> None:
        """Lets sessions consume again what was not dropped, and answers."""
        self._dispatcher.no_longer_ending(ending)
        answer(found)
