"""Queues items of many sources and serves the sources in turn, by cost: a flood from one source does not come before
the next item of another.

Method: deficit round robin (Shreedhar and Varghese, Efficient Fair Queueing Using Deficit Round Robin, SIGCOMM 1995).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

from shoal_slice_node.core.limits import FAIR_QUANTUM

Item = TypeVar("Item")


class _Lane(Generic[Item]):
    """Keeps one source's items with their costs and sizes. `credit`: the cost it may still take in this round."""

    __slots__ = ("bytes", "credit", "items")

    def __init__(self) -> None:
        self.items: deque[tuple[Item, int, int]] = deque()
        self.credit = FAIR_QUANTUM
        self.bytes = 0


class FairQueue(Generic[Item]):
    """Serves sources in turn; one source's items keep their order. `bytes`: the sizes of all waiting items. `of_all`: a
    source that works for all others, and gets as much as half of them."""

    def __init__(self, of_all: Hashable = None) -> None:
        self._of_all = of_all
        self._lanes: OrderedDict[Hashable, _Lane[Item]] = OrderedDict()
        self.bytes = 0

    def __bool__(self) -> bool:
        return bool(self._lanes)

    @property
    def sources(self) -> int:
        """Returns the number of sources that have items here."""
        return len(self._lanes)

    def bytes_of(self, source: Hashable) -> int:
        """Returns the sizes of one source's waiting items."""
        lane = self._lanes.get(source)
        return 0 if lane is None else lane.bytes

    def put(self, source: Hashable, item: Item, cost: int, size_bytes: int) -> None:
        lane = self._lanes.get(source)
        if lane is None:
            lane = self._lanes[source] = _Lane()
        lane.items.append((item, cost, size_bytes))
        lane.bytes += size_bytes
        self.bytes += size_bytes

    def take(self) -> tuple[Hashable, Item]:
        """Takes out the next item; returns its source and the item. Must not be called while the queue is empty."""
        lanes = self._lanes
        while True:
            source = next(iter(lanes))
            lane = lanes[source]
            cost = lane.items[0][1]
            if lane.credit < cost:
                lane.credit += FAIR_QUANTUM * (max(1, len(lanes) // 2) if source == self._of_all else 1)
                lanes.move_to_end(source)
                continue
            item, cost, size_bytes = lane.items.popleft()
            lane.credit -= cost
            lane.bytes -= size_bytes
            self.bytes -= size_bytes
            if not lane.items:
                del lanes[source]
            return source, item

    def charge(self, source: Hashable, cost: int) -> None:
        """Notes that an item taken from this source costs `cost` more than it was put in with: the source's other items
        wait longer."""
        lane = self._lanes.get(source)
        if lane is not None:
            lane.credit -= cost

    def clear(self) -> list[Item]:
        """Takes out everything."""
        items = [item for lane in self._lanes.values() for item, _, _ in lane.items]
        self._lanes.clear()
        self.bytes = 0
        return items
