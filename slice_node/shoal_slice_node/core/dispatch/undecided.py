"""Keeps what came back and waits for a RETRY record, in turns: sessions have turns, queues have turns within each
session's, and bindings within each queue's. So what one of them gave back holds up no other, however much it is.

Most bindings have one stretch here, and most queues one binding: these need no container of their own. A deque takes
0.6 KB.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from shoal_slice_node.core.dispatch.streams import Stream
from shoal_slice_node.core.dispatch.stretches import Resting

Key = TypeVar("Key")
Value = TypeVar("Value")


class Waiting(NamedTuple):
    """Holds what waits of one binding, and the number of the session that had it last."""

    session: int
    stream: Stream
    stretches: deque[Resting]


class _Turns(Generic[Key, Value]):
    """Keeps things in turns, and the first one without a container. There is always one."""

    __slots__ = ("_key", "_others", "_value")

    def __init__(self, key: Key, value: Value) -> None:
        self._key = key
        self._value = value
        self._others: OrderedDict[Key, Value] | None = None
        """Those behind the first; None: there are none."""

    def get(self, key: Key) -> Value | None:
        if key == self._key:
            return self._value
        return None if self._others is None else self._others.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Puts it behind the others; or in the place of what is there under this key."""
        if key == self._key:
            self._value = value
            return
        if self._others is None:
            self._others = OrderedDict()
        self._others[key] = value

    def make_first(self, key: Key) -> None:
        """Puts what is there under this key before the others."""
        if self._others is None or key == self._key:
            return
        before, self._value = self._value, self._others.pop(key)
        self._others[self._key] = before
        self._others.move_to_end(self._key, last=False)
        self._key = key

    def take(self) -> tuple[Key, Value, bool]:
        """Takes out the first. Returns it, and whether there are others: if there are none, this must be forgotten."""
        key, value = self._key, self._value
        if self._others is None:
            return key, value, False
        self._key, self._value = self._others.popitem(last=False)
        if not self._others:
            self._others = None
        return key, value, True


_Stretches: TypeAlias = "Resting | deque[Resting]"
"""What waits of one binding: one stretch, or several."""
_Bindings: TypeAlias = "_Turns[Stream, _Stretches]"
_Queues: TypeAlias = "_Turns[bytes, _Bindings]"


class Undecided:
    """Keeps one line of them. Invariant: no part of it is empty."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, _Queues] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._sessions)

    def add(self, stream: Stream, resting: Resting) -> None:
        """Lets it wait, behind what came back to its binding before."""
        found = self._get(resting.session, stream)
        if isinstance(found, deque):
            found.append(resting)
        else:
            self._put(resting.session, stream, resting if found is None else deque((found, resting)))

    def add_first(self, stream: Stream, resting: Resting) -> None:
        """Lets it wait before what came back to its binding before."""
        found = self._get(resting.session, stream)
        if isinstance(found, deque):
            found.appendleft(resting)
        else:
            self._put(resting.session, stream, resting if found is None else deque((resting, found)))

    def take(self) -> Waiting:
        """Takes out what waits of the binding that is next."""
        session, queues = self._sessions.popitem(last=False)
        queue_id, bindings, more_queues = queues.take()
        stream, found, more_bindings = bindings.take()
        if more_bindings and more_queues:
            queues.put(queue_id, bindings)
        elif more_bindings:
            queues = _Turns(queue_id, bindings)
        if more_bindings or more_queues:
            self._sessions[session] = queues
        return Waiting(session, stream, found if isinstance(found, deque) else deque((found,)))

    def put_back(self, waiting: Waiting, first: bool) -> None:
        """Puts back what was taken and still waits, behind the others; or before them."""
        if not waiting.stretches:
            return
        session, stream, stretches = waiting
        found = self._get(session, stream)
        if isinstance(found, deque):
            stretches.extend(found)
        elif found is not None:
            stretches.append(found)
        bindings = self._put(session, stream, stretches if len(stretches) > 1 else stretches[0])
        if first:
            self._sessions.move_to_end(session, last=False)
            self._sessions[session].make_first(stream.feed.queue_id)
            bindings.make_first(stream)

    def _get(self, session: int, stream: Stream) -> _Stretches | None:
        queues = self._sessions.get(session)
        bindings = None if queues is None else queues.get(stream.feed.queue_id)
        return None if bindings is None else bindings.get(stream)

    def _put(self, session: int, stream: Stream, stretches: _Stretches) -> _Bindings:
        """Sets what waits of a binding. Returns the bindings of its queue."""
        queues, queue_id = self._sessions.get(session), stream.feed.queue_id
        bindings = None if queues is None else queues.get(queue_id)
        if bindings is not None:
            bindings.put(stream, stretches)
            return bindings
        bindings = _Turns(stream, stretches)
        if queues is None:
            self._sessions[session] = _Turns(queue_id, bindings)
        else:
            queues.put(queue_id, bindings)
        return bindings


def split(stream: Stream, resting: Resting, middle: int) -> tuple[Resting, Resting]:
    """Parts a stretch that rests, at an offset within it."""
    assert resting.first < middle < resting.to
    stream.end_rest(resting)
    parts = resting.part(resting.first, middle), resting.part(middle, resting.to)
    for part in parts:
        stream.rest_on(part)
    return parts
