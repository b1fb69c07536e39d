"""Keeps what came back and waits for a RETRY record, in turns: sessions have turns, and queues have turns within each.

So what one session gave back holds up no other, however much it is; nor does one queue's where many share a session.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TypeAlias

from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Resting

Rest = tuple[Stream, Resting]
_Queues: TypeAlias = "OrderedDict[bytes, deque[Rest]]"


class Undecided:
    """Keeps one line of them. Invariant: no queue's part is empty, and no session's."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, _Queues] = OrderedDict()
        """By the number of the session that had them last: the queues, by id, in turn."""

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def add(self, stream: Stream, resting: Resting) -> None:
        """Lets it wait, behind what came back to its queue before."""
        self._queue(stream, resting).append((stream, resting))

    def add_first(self, stream: Stream, resting: Resting) -> None:
        """Lets it wait before what came back to its queue before."""
        self._queue(stream, resting).appendleft((stream, resting))

    def _queue(self, stream: Stream, resting: Resting) -> deque[Rest]:
        queues = self._sessions.get(resting.session)
        if queues is None:
            queues = self._sessions[resting.session] = OrderedDict()
        found = queues.get(stream.feed.queue_id)
        if found is None:
            found = queues[stream.feed.queue_id] = deque()
        return found

    def take(self) -> Rest:
        """Takes out the next one: of each session in turn, one of each of its queues in turn."""
        session, queues = self._sessions.popitem(last=False)
        queue_id, waiting = queues.popitem(last=False)
        found = waiting.popleft()
        if waiting:
            queues[queue_id] = waiting
        if queues:
            self._sessions[session] = queues
        return found


def split(stream: Stream, resting: Resting, middle: int) -> tuple[Resting, Resting]:
    """Parts a stretch that rests, at an offset within it."""
    assert resting.first < middle < resting.to
    stream.end_rest(resting)
    parts = resting.part(resting.first, middle), resting.part(middle, resting.to)
    for part in parts:
        stream.rest_on(part)
    return parts
