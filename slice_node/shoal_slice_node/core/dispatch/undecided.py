"""Keeps what came back and waits for a RETRY record, in turns: sessions have turns, queues have turns within each
session's, and bindings within each queue's. So what one of them gave back holds up no other, however much it is."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple, TypeAlias

from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Resting

_Bindings: TypeAlias = "OrderedDict[Stream, deque[Resting]]"
_Queues: TypeAlias = "OrderedDict[bytes, _Bindings]"


class Waiting(NamedTuple):
    """Holds what waits of one binding, and the number of the session that had it last."""

    session: int
    stream: Stream
    stretches: deque[Resting]


class Undecided:
    """Keeps one line of them. Invariant: no part of it is empty."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, _Queues] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def add(self, stream: Stream, resting: Resting) -> None:
        """Lets it wait, behind what came back to its binding before."""
        self._of(resting.session, stream).append(resting)

    def add_first(self, stream: Stream, resting: Resting) -> None:
        """Lets it wait before what came back to its binding before."""
        self._of(resting.session, stream).appendleft(resting)

    def take(self) -> Waiting:
        """Takes out what waits of the binding that is next."""
        session, queues = self._sessions.popitem(last=False)
        queue_id, bindings = queues.popitem(last=False)
        stream, stretches = bindings.popitem(last=False)
        if bindings:
            queues[queue_id] = bindings
        if queues:
            self._sessions[session] = queues
        return Waiting(session, stream, stretches)

    def put_back(self, waiting: Waiting, first: bool) -> None:
        """Puts back what was taken and still waits, behind the others; or before them."""
        if not waiting.stretches:
            return
        session, stream, stretches = waiting
        self._of(session, stream).extendleft(reversed(stretches))
        if first:
            queue_id = stream.feed.queue_id
            queues = self._sessions[session]
            self._sessions.move_to_end(session, last=False)
            queues.move_to_end(queue_id, last=False)
            queues[queue_id].move_to_end(stream, last=False)

    def _of(self, session: int, stream: Stream) -> deque[Resting]:
        queues = self._sessions.setdefault(session, OrderedDict())
        bindings = queues.setdefault(stream.feed.queue_id, OrderedDict())
        return bindings.setdefault(stream, deque())


def split(stream: Stream, resting: Resting, middle: int) -> tuple[Resting, Resting]:
    """Parts a stretch that rests, at an offset within it."""
    assert resting.first < middle < resting.to
    stream.end_rest(resting)
    parts = resting.part(resting.first, middle), resting.part(middle, resting.to)
    for part in parts:
        stream.rest_on(part)
    return parts
