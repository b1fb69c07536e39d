"""Keeps the handles of one session that ended because another session consumes their queue, until the client is told.

Not here: which of two sessions gets an exclusive queue (exclusive), and what that ends (attaching).
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.exclusive import Exclusive, consumed_elsewhere, taken_over
from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import ENDED_HANDLE_BYTES, ENDED_TOLD_MAX


class EndedHandle(NamedTuple):
    """Describes why a handle ended: its queue is `exclusive`, and another session took it over (`was_taken`), or keeps
    it."""

    queue: bytes
    exclusive: Exclusive
    was_taken: bool

    def to_wire(self, handle: int) -> wire.Ended:
        """Forms the error only now: while it waits, it would take twice the memory."""
        error = taken_over(self.queue) if self.was_taken else consumed_elsewhere(self.queue, self.exclusive)
        return wire.Ended(handle=handle, error=error.to_wire())


class EndedHandles:
    """Keeps handles that ended. `share`: counts ENDED_HANDLE_BYTES for each that waits, so that they take no more
    memory than the attached queues that they were."""

    __slots__ = ("_number", "_owner", "_share", "_told", "_waiting")

    def __init__(self, owner: bytes, number: int, share: Share) -> None:
        self._owner = owner
        self._number = number
        self._share = share
        self._waiting: dict[int, EndedHandle] = {}
        """Those of which the client is to be told."""
        self._told: dict[int, Exclusive] = {}
        """Those of which it was told, until it detaches or uses them. At most ENDED_TOLD_MAX."""

    def __len__(self) -> int:
        """Returns how many wait."""
        return len(self._waiting)

    def note(self, handle: int, ended: EndedHandle) -> None:
        """Notes that the handle is not attached because of another session: the client is to be told."""
        if handle not in self._waiting:
            self._share.hold(ENDED_HANDLE_BYTES)
        self._waiting[handle] = ended

    def forget(self, handle: int) -> None:
        """Notes that the client uses the handle anew: what ended before needs no word any more."""
        if self._waiting.pop(handle, None) is not None:
            self._share.let_go(ENDED_HANDLE_BYTES)

    def take(self, count_max: int) -> list[wire.Ended]:
        """Returns up to `count_max` of those of which the client is to be told: it is told now."""
        found: list[wire.Ended] = []
        for handle in list(islice(self._waiting, count_max)):
            ended = self._waiting.pop(handle)
            ended.exclusive.told(self._owner, self._number)
            self._told[handle] = ended.exclusive
            if len(self._told) > ENDED_TOLD_MAX:
                del self._told[next(iter(self._told))]
            found.append(ended.to_wire(handle))
        self._share.let_go(ENDED_HANDLE_BYTES * len(found))
        return found

    def knows(self, handle: int) -> None:
        """Notes that the client detaches the handle, or uses it: if it was told that the handle ended, it knows."""
        exclusive = self._told.pop(handle, None)
        if exclusive is not None:
            exclusive.knows(self._owner, self._number)

    def clear(self) -> None:
        """Notes that the session has ended: nothing is told."""
        self._share.let_go(ENDED_HANDLE_BYTES * len(self._waiting))
        self._waiting.clear()
