"""Ends leases that are over, in turns: what was sent and not acked is given again, and counts as delivered. What was
not sent by then is given again, too, and does not count."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from shoal_slice_node.core.apply.records import Reason
from shoal_slice_node.core.dispatch.leases import Lease
from shoal_slice_node.core.dispatch.not_sent import Found
from shoal_slice_node.core.dispatch.pausing import pause
from shoal_slice_node.core.dispatch.releasing import after_release
from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Returned
from shoal_slice_node.core.dispatch.unsent import split, withdraw
from shoal_slice_node.core.limits import LEASE_COST, LEASES_PER_TURN, LISTED_PER_COST, WITHDRAWN_PER_STEP
from shoal_slice_node.core.ranges import Ranges

if TYPE_CHECKING:
    from shoal_slice_node.core.dispatch.attachment import Attachment
    from shoal_slice_node.core.dispatch.registry import Registry


def _number(found: Found) -> int:
    """Returns a parcel's place in the order in which parcels leave."""
    return found[1].number


def _then(steps: Iterator[int], ended: Callable[[], None]) -> Iterator[int]:
    yield from steps
    ended()


_Ending: TypeAlias = "tuple[Lease, Attachment, Iterator[int]]"


class Timeouts:
    """Ends leases. `ending`: those that are over, with the steps that are left; each step says what it cost. They are
    by the numbers of their sessions, in turn."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.ending: OrderedDict[int, deque[_Ending]] = OrderedDict()

    def tick(self, now_ms: int) -> None:
        """Lines up the leases that are over, up to LEASES_PER_TURN."""
        for lease in islice(self._registry.leases.due(now_ms), LEASES_PER_TURN):
            lease.attachment.session.leases.stop_waiting(lease)
            self._line_up(lease, lease.attachment, self._steps(lease))

    def end_now(self, lease: Lease, attachment: Attachment, ended: Callable[[], None]) -> None:
        """Lines up a lease of this attachment before its time. `ended`: called once nothing of it is out."""
        self._line_up(lease, attachment, _then(self._steps(lease), ended))

    def _line_up(self, lease: Lease, attachment: Attachment, steps: Iterator[int]) -> None:
        self.ending.setdefault(attachment.session.number, deque()).append((lease, attachment, steps))

    def turn(self, cost_max: int) -> None:
        """Ends some leases, one of each session in turn. A stream costs as many as it has stretches out, and 1 at
        least; parcels that are taken back cost 1 each. The last step may exceed `cost_max`."""
        ending = self.ending
        while cost_max > 0 and ending:
            session, leases = ending.popitem(last=False)
            cost_max -= LEASE_COST + self._end_some(leases, cost_max)
            if leases:
                ending[session] = leases

    def _end_some(self, leases: deque[_Ending], cost_max: int) -> int:
        """Takes some steps of the first lease. Returns what they cost."""
        registry = self._registry
        lease, attachment, steps = leases[0]
        feed = attachment.feed
        cost = 0
        while cost < cost_max:
            step = next(steps, None)
            if step is None:
                leases.popleft()
                if lease.parcel:
                    lease.all_sent()
                    registry.leases.open_again(lease)
                elif attachment.session.pullers.get(feed.queue_id) is attachment:
                    registry.end_pull_without_messages(attachment)
                break
            cost += step
        after_release(registry, feed)
        return cost

    def _steps(self, lease: Lease) -> Iterator[int]:
        for stream in lease.streams:
            if not lease.messages:
                return
            cost = max(1, len(stream.out))
            if stream.out and lease.parcel:
                yield from self._take_unsent(lease, stream)
            elif stream.out:
                self._end(lease, stream)
            yield cost

    def _end(self, lease: Lease, stream: Stream) -> None:
        attachment = lease.attachment
        unsent = lease.take_from_answer(stream.key_id)
        sent, kept = split(stream.take_lease_back(lease), Ranges(unsent) if unsent else None)
        if sent:
            attachment.feed.give_way(attachment)  # Its program may be at work on it still.
            self._registry.returns.came_back(stream, sent, Reason.TIMEOUT, attachment.session)
        if kept:  # The answer to the pull has not left: whenever it does, others may have these by then.
            self._registry.returns.not_sent(stream, kept)
        if sent or kept:
            self._registry.has_room_again(attachment.session)

    def _take_unsent(self, lease: Lease, stream: Stream) -> Iterator[int]:
        """Takes back what waits for a session that does not read: others may have it meanwhile. All of the stream that
        waits comes back, or what is given again would come behind it. The last parcel goes first: if the session reads
        now, it gets what is left in order. It is given nothing more until then."""
        registry, attachment = self._registry, lease.attachment
        session, handle = attachment.session, attachment.handle
        if handle is not None and attachment.attached and stream.parcel > session.sent_to:
            parcels, _ = session.unsent(stream.key_id, handle, 0, stream.next)
            parcels.sort(key=_number)
            if parcels:
                attachment.begin_withdrawal()
                pause(registry, attachment)
                yield 1 + len(parcels) // LISTED_PER_COST
            while parcels and attachment.attached:
                some = parcels[-WITHDRAWN_PER_STEP:]
                del parcels[-WITHDRAWN_PER_STEP:]
                freed_bytes = withdraw(attachment, stream.key_id, some)
                if freed_bytes:
                    registry.let_go(session, freed_bytes)
                yield len(some)
        back: list[Returned] = []
        attachment.end_withdrawal()
        if attachment.attached:
            if attachment.paused:
                pause(registry, attachment)
            for low, to in Ranges(attachment.take_unsent(stream.key_id)).pairs():
                back += stream.take_back(attachment, low, to)
        if back:
            registry.returns.not_sent(stream, back)
        registry.has_room_again(session)
