"""Ends leases that are over, in turns: what was sent and not acked is given again, and counts as delivered. What was
not sent by then is given again, too, and does not count."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, TypeAlias

from shoal_slice_node.core.apply.records import Reason
from shoal_slice_node.core.dispatch.leases import Lease
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Returned
from shoal_slice_node.core.dispatch.unsent import split, withdraw
from shoal_slice_node.core.limits import LEASE_COST, LEASES_PER_TURN

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.registry import Registry


_Ending: TypeAlias = "tuple[Lease, Iterator[Stream]]"


class Timeouts:
    """Ends leases. `ending`: those that are over, with the streams that are still to be looked at. They are by the
    numbers of their sessions, in turn."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.ending: OrderedDict[int, deque[_Ending]] = OrderedDict()

    def tick(self, now_ms: int) -> None:
        """Lines up the leases that are over, up to LEASES_PER_TURN."""
        for lease in islice(self._registry.leases.due(now_ms), LEASES_PER_TURN):
            lease.attachment.session.stop_waiting(lease)
            self.ending.setdefault(lease.attachment.session.number, deque()).append((lease, iter(lease.streams)))

    def turn(self, cost_max: int) -> None:
        """Ends some leases, one of each session in turn. A stream costs as many as it has stretches out, and 1 at
        least; the last one may exceed `cost_max`."""
        ending = self.ending
        while cost_max > 0 and ending:
            session, leases = ending.popitem(last=False)
            cost_max -= LEASE_COST + self._end_some(leases, cost_max)
            if leases:
                ending[session] = leases

    def _end_some(self, leases: deque[_Ending], cost_max: int) -> int:
        """Looks at some streams of the first lease. Returns what it cost."""
        registry = self._registry
        lease, streams = leases[0]
        attachment = lease.attachment
        feed = attachment.feed
        cost = 0
        while cost < cost_max and (stream := next(streams, None)) is not None:
            cost += max(1, len(stream.out))
            if stream.out:
                if lease.parcel:
                    self._take_unsent(lease, stream)
                else:
                    self._end(lease, stream)
        if not (lease.messages and length_hint(streams)):
            leases.popleft()
            if lease.parcel:
                lease.all_sent()
                registry.leases.open_again(lease)
            elif attachment.session.pullers.get(feed.queue_id) is attachment:
                registry.end_pull_without_messages(attachment)
        registry.wake(feed)
        registry.forget_if_idle(feed)
        return cost

    def _end(self, lease: Lease, stream: Stream) -> None:
        sent, _ = split(stream.give_back(None, lease), None)
        if sent:
            self._registry.returns.came_back(stream, sent, Reason.TIMEOUT, lease.attachment.session)
            self._registry.has_room_again(lease.attachment.session)

    def _take_unsent(self, lease: Lease, stream: Stream) -> None:
        """Takes back what waits for a session that does not read: others may have it meanwhile."""
        registry, attachment = self._registry, lease.attachment
        session, handle = attachment.session, attachment.handle
        left = session.closed or handle is None or session.attachments.get(handle) is not attachment
        if left or handle is None or stream.parcel <= session.sent_to:
            return
        pairs, freed_bytes = withdraw(session, stream.key_id, handle, lease.parcel)
        back: list[Returned] = []
        for low, to in pairs:
            back += stream.take_back(attachment, low, to)
        if back:
            registry.returns.not_sent(stream, back)
        if freed_bytes:
            registry.let_go(session, freed_bytes)
        registry.has_room_again(session)
