"""Holds what an inbox has of all slices and has not handed out: a bounded number of bytes, in the order of arrival.

While it is full, slices' streams are not read, which is backpressure. Not here: what is new, and what is acked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import count, islice
from math import inf

from shoal.core.returning import Returning
from shoal.gaps import GapNews, OnGap
from shoal.inbox_delivery import InboxDelivery
from shoal.limits import GIVEN_BACK_PER_TURN, INBOX_EXCESS_BYTES, RETURNING_MAX
from shoal.messages import Delivery

Pair = tuple[int, bytes]
"""A handle, and a key."""
_Held = tuple[Delivery | GapNews, int, float]
"""A delivery, or a gap, its size in bytes, and when it came, by the event loop's clock."""


class InboxBuffer:
    """Buffers deliveries. `queues`: has the handles of the inbox's queues; a handle that left never comes back.
    `bytes_max`: above it `put` waits; the last delivery may exceed it. `on_gap`: is told of gaps that are not taken, in
    place of giving them back: a slice tells of a gap only once."""

    def __init__(self, queues: Container[int], bytes_max: int, on_gap: OnGap | None = None) -> None:
        self.bytes = 0
        """The sizes of the deliveries together."""
        self.changed = asyncio.Event()
        """Set with each delivery, and by the inbox when waiting for one may be over; clear it before waiting."""
        self._queues = queues
        self._any_left = False
        """True once a queue left the inbox."""
        self._bytes_max = bytes_max
        self._on_gap = on_gap
        self._deliveries: deque[_Held] = deque()
        """Deliveries, and gaps in their places."""
        self._oldest_s = inf
        """When the oldest of them came, or earlier, by the event loop's clock."""
        self.taken_came_s = 0.0
        """When the delivery that was taken last came, by the event loop's clock."""
        self._answers_awaited = 0
        """The number of calls that wait for an answer. Answers come behind deliveries, so the buffer may exceed its
        bound for these calls."""
        self._waiting: list[Delivery | GapNews] = []
        """What waits in `put` for room: one of each slice at most."""
        self._returning: dict[Pair, Returning] = {}
        """What messages are on their way back; the oldest first, at most RETURNING_MAX. What was on its way by then,
        and is behind them, would overtake them, so it goes back, too."""
        self._room = asyncio.Event()
        self._ending = False
        self._closed = False

    def __bool__(self) -> bool:
        """Returns whether there is a delivery, or a gap."""
        return bool(self._deliveries)

    async def put(self, delivery: Delivery | GapNews) -> None:
        """Adds a delivery. Waits while the buffer is full. Gives back what is for queues that left the inbox, and what
        is behind messages that are on their way back; once closed, all."""
        came_s = asyncio.get_running_loop().time()
        if self._full:
            await self._wait_for_room(delivery)
        if self._closed:
            self._give_back(delivery)
            return
        left = self._of_attached(delivery) if self._any_left else delivery
        if left is None or not self._keep_in_order(left):
            return
        size_bytes = left.size_bytes
        self._deliveries.append((left, size_bytes, came_s))
        self._oldest_s = min(self._oldest_s, came_s)
        self.bytes += size_bytes
        self.changed.set()

    async def _wait_for_room(self, delivery: Delivery | GapNews) -> None:
        self._waiting.append(delivery)
        try:
            while self._full:
                self._room.clear()
                await self._room.wait()
        finally:
            self._waiting.remove(delivery)

    def take(self) -> Delivery | GapNews:
        """Returns the oldest delivery, or gap, and removes it. There must be one."""
        delivery, size_bytes, self.taken_came_s = self._deliveries.popleft()
        self.bytes -= size_bytes
        self._room.set()
        return delivery

    def put_back(self, deliveries: Sequence[Delivery]) -> None:
        """Puts what is left of the delivery that was taken last back in front."""
        for delivery in reversed(deliveries):
            size_bytes = delivery.size_bytes
            self._deliveries.appendleft((delivery, size_bytes, self.taken_came_s))
            self._oldest_s = min(self._oldest_s, self.taken_came_s)
            self.bytes += size_bytes

    def give_back_of(self, handles: Container[int]) -> None:
        """Gives back what is for queues that leave the inbox. What waits for room is not in the buffer, and goes with
        it."""
        self._any_left = True
        self._returning = {pair: one for pair, one in self._returning.items() if pair[0] not in handles}
        held, self._deliveries, self.bytes = self._deliveries, deque(), 0
        for delivery, _, came_s in held:
            left = self._left(delivery, handles)
            if left is not None:
                self._deliveries.append((left, left.size_bytes, came_s))
                self.bytes += left.size_bytes
        for waiting in self._waiting:
            if isinstance(waiting, Delivery):
                waiting.leave_out(handles)
        self._room.set()

    def give_back_old(self, waits_s: Mapping[int, float], shortest_s: float, now_s: float) -> None:
        """Gives back what has waited as long as it may, by handle, and what is behind it of the same queue and key, as
        it would come before it. What is on its way behind it goes back, too, when it comes. `shortest_s` is the least
        of these times."""
        if not self._deliveries or self._oldest_s > now_s - shortest_s:
            return
        kept: deque[_Held] = deque()
        given: set[Pair] = set()
        for held in self._deliveries:
            delivery, size_bytes, came_s = held
            if not isinstance(delivery, InboxDelivery):
                kept.append(held)
                continue
            key, waited_s = delivery.key_bytes, now_s - came_s
            old = {one for one in delivery.handles if waits_s.get(one, inf) <= waited_s or (one, key) in given}
            if not old:
                kept.append(held)
                continue
            given.update((one, key) for one in old)
            self._give_back_numbered(delivery, old)
            self.bytes -= size_bytes
            if delivery.handles:
                kept.append((delivery, delivery.size_bytes, came_s))
                self.bytes += delivery.size_bytes
        self._deliveries = kept
        self._oldest_s = min((came_s for _, _, came_s in kept), default=inf)
        for pair in list(islice(self._returning, max(0, len(self._returning) - RETURNING_MAX))):
            del self._returning[pair]
        self._room.set()

    def _keep_in_order(self, delivery: Delivery | GapNews) -> bool:
        """Takes out of a delivery what was on its way when messages before it went back: that goes back, too, and a
        copy of what went back is dropped. Returns whether anything is left."""
        if not self._returning or not isinstance(delivery, InboxDelivery):
            return True
        behind: set[int] = set()
        copies: set[int] = set()
        for handle in delivery.handles:
            pair = handle, delivery.key_bytes
            returning = self._returning.get(pair)
            if returning is None:
                continue
            returning.taken(delivery.nacks_taken)
            if not returning:
                del self._returning[pair]
            elif returning.is_behind(delivery.end):
                (copies if returning.has(delivery.first, delivery.end) else behind).add(handle)
        if copies:
            delivery.forget_copy(copies)
        if behind:
            self._give_back_numbered(delivery, behind)
        return bool(delivery.handles)

    def _give_back_numbered(self, delivery: InboxDelivery, handles: Container[int]) -> None:
        """Gives a delivery back for these handles, and notes that it is on its way."""
        for handle, first, end, place in delivery.give_back_numbered(handles):
            pair = handle, delivery.key_bytes
            returning = self._returning.pop(pair, None) or Returning()
            self._returning[pair] = returning  # The newest is the last.
            returning.add(first, end, place)

    async def give_all_back(self) -> None:
        """Gives everything back. Lets other tasks run now and then."""
        for number in count(1):
            if not self._deliveries:
                return
            self._give_back(self.take())
            if number % GIVEN_BACK_PER_TURN == 0:
                await asyncio.sleep(0)

    def tell_gaps(self) -> None:
        """Tells the gaps that are before the oldest delivery."""
        while self._deliveries and isinstance(self._deliveries[0][0], GapNews):
            self._give_back(self.take())

    def end(self) -> None:
        """Lets what waits for room in, and wakes what waits for deliveries: no more are to come."""
        self._ending = True
        self._room.set()
        self.changed.set()

    def close(self) -> None:
        """Does as `end`, and gives back what comes later."""
        self._closed = True
        self.end()

    @contextlib.contextmanager
    def awaiting_answers(self) -> Iterator[None]:
        """Lets the buffer exceed its bound by INBOX_EXCESS_BYTES within the block, which waits for an answer."""
        self._answers_awaited += 1
        self._room.set()
        try:
            yield
        finally:
            self._answers_awaited -= 1

    def _give_back(self, delivery: Delivery | GapNews) -> None:
        if isinstance(delivery, GapNews):
            delivery.tell(self._on_gap)
        else:
            delivery.give_back()

    def _of_attached(self, delivery: Delivery | GapNews) -> Delivery | GapNews | None:
        return self._left(delivery, {handle for handle in delivery.handles if handle not in self._queues})

    def _left(self, delivery: Delivery | GapNews, handles: Container[int]) -> Delivery | GapNews | None:
        """Gives back what is for these handles. Returns what is left; None: nothing."""
        if not isinstance(delivery, GapNews):
            return delivery if delivery.leave_out(handles) else None
        left, taken = delivery.split(handles)
        if taken is not None:
            taken.tell(self._on_gap)
        return left

    @property
    def _full(self) -> bool:
        excess = INBOX_EXCESS_BYTES if self._answers_awaited else 0
        return self.bytes >= self._bytes_max + excess and not self._ending
