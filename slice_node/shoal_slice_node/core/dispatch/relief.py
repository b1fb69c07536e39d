"""Makes room where done ranges take memory that is not there: acks in changes made them, and others cannot attach their
queues. Of the connection whose sessions consume the queues with most of them the session with most ends, whatever each
queue has.

The ranges of a queue are shared among the sessions that consume it. For some queues no session can end: unary calls
pulled from them, or nothing consumes them, and something rests. Together these queues weigh as one connection. When
that is the heaviest, the queue with the most ranges among them is given up: its leases or delays end. Where they have
more than half of the share, they go down to that: leases and delays may last for long, and others find no room
meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from heapq import heapify, heappop, heappush
from itertools import count

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_slice_node.core.dispatch.attachment import Attachment
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.registry import Registry
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.limits import PULLED_RANGES_PART, RANGE_BYTES


class Relief:
    """Looks for what is to end, and ends it, in steps. `looks`: the look under way."""

    def __init__(
        self, registry: Registry, end: Callable[[Session, ShoalError], None], give_up_pull: Callable[[Attachment], None]
    ) -> None:
        """`end` ends a session; what it consumes comes back once its stream knows. `give_up_pull` takes back what a
        session pulled from a queue."""
        self._registry = registry
        self._room = registry.range_room
        self._end = end
        self._give_up_pull = give_up_pull
        self.looks: deque[Generator[int, None, None]] = deque()

    def begin(self) -> None:
        """Begins a look, if there is a need and none is under way. Where there is none, what was refused is no reason
        for a later one."""
        if self.looks:
            return
        if self._room.is_overdrawn:
            self.looks.append(self._look())
        else:
            self._room.begin_anew()

    def turn(self, cost_max: int) -> None:
        """Goes on with the look under way, until it has cost so much, in things looked at."""
        for cost in self.looks[0]:
            cost_max -= cost
            if cost_max <= 0:
                return
        self.looks.popleft()
        self._room.begin_anew()

    def _look(self) -> Generator[int, None, None]:
        """Weighs connections by the bytes of ranges, and ends sessions of those with the most: as many as it takes,
        besides those that have ended already. Yields costs."""
        room, found = self._room, _Found()
        for feed in list(room.feeds):  # 8 ms where a million queues have ranges.
            yield 1 + found.weigh(feed)
        heaviest = found.heaviest()
        left_bytes = room.excess_bytes - found.going_bytes
        ranges_bytes, part_bytes = room.ranges_bytes, room.part_bytes
        loose_max_bytes = self._registry.shares.attached.limit_bytes // PULLED_RANGES_PART
        while heaviest:
            negative_bytes, number, sessions = heappop(heaviest)
            if left_bytes <= 0 and (sessions is not None or -negative_bytes <= loose_max_bytes):
                return
            if sessions is not None:
                session, size_bytes = sessions.pop()
                if session.ended_by is None and not session.closed:
                    self._end(session, _too_many(size_bytes, ranges_bytes, part_bytes))
                left_bytes -= size_bytes
                if sessions:
                    heappush(heaviest, (negative_bytes + size_bytes, number, sessions))
            elif found.loose:
                negative_feed_bytes, _, feed = heappop(found.loose)
                yield from self._give_up(feed)
                left_bytes += negative_feed_bytes
                heappush(heaviest, (negative_bytes - negative_feed_bytes, number, None))
            yield 1

    def _give_up(self, feed: Feed) -> Generator[int, None, None]:
        """Takes back what unary calls pulled from a queue; then, if nothing consumes it, ends delays: what rested is
        given again. Yields costs."""
        for attachment in [puller for puller in feed.pullers.values() if puller.session.is_of_calls]:
            self._give_up_pull(attachment)
        for stream in list(feed.streams.values()) if feed.resting else ():
            for resting in list(stream.resting or ()):
                if feed.consumed or feed.gone:
                    return
                self._registry.returns.end_delay(stream, resting)
                yield 1
            yield 1


def _too_many(size_bytes: int, ranges_bytes: int, part_bytes: int) -> ResourceExhausted:
    """Returns the error of a session that ends for the ranges of what it consumes, which take `size_bytes` of the
    `ranges_bytes` that all take."""
    what = "memory of done ranges, bytes"
    return ResourceExhausted(
        f"{what}: {ranges_bytes}; where memory of attached queues is full, the limit is {part_bytes}. Queues that this"
        f" session consumes have {size_bytes} of it: what was acked above an unacked message takes it, so ack in order",
        subject=what,
        limit=part_bytes,
        value=ranges_bytes,
    )


_Connection = tuple[int, int, list[tuple[Session, int]] | None]
"""Negative bytes, a number, and the sessions with their bytes, the heaviest one last."""


class _Found:
    """Keeps what a look has found. `loose`: queues for which no session can end, as a heap of their negative bytes.
    `going_bytes`: ranges of queues that are forgotten soon, as their sessions have ended."""

    def __init__(self) -> None:
        self._by_connection: dict[str, dict[Session, int]] = {}
        self._serial = count()
        self._loose_bytes = 0
        self.loose: list[tuple[int, int, Feed]] = []
        self.going_bytes = 0

    def weigh(self, feed: Feed) -> int:
        """Shares a feed's ranges among its consumers. Returns how many there are."""
        consumers = list({**feed.pullers, **feed.attachments}.values())
        staying = [one.session for one in consumers if one.session.ended_by is None and not one.session.closed]
        size_bytes = RANGE_BYTES * feed.ranges
        part_bytes = size_bytes // max(1, len(staying))
        is_loose = feed.resting > 0 and not consumers
        if not (staying or is_loose):
            self.going_bytes += size_bytes
        for session in staying:
            if session.is_of_calls:
                is_loose = True
            else:
                weights = self._by_connection.setdefault(session.connection, {})
                weights[session] = weights.get(session, 0) + part_bytes
        if is_loose:
            self._loose_bytes += part_bytes
            heappush(self.loose, (-part_bytes, next(self._serial), feed))
        return len(consumers)

    def heaviest(self) -> list[_Connection]:
        """Returns a heap of connections by their negative bytes. None instead of sessions: the queues in `loose`."""
        found: list[_Connection] = [(-self._loose_bytes, -1, None)]
        for number, weights in enumerate(self._by_connection.values()):
            lightest = sorted(weights.items(), key=lambda weight: (weight[1], -weight[0].number))
            found.append((-sum(weights.values()), number, lightest))
        heapify(found)
        return found
