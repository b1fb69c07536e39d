"""Does work in steps, between the steps of other work: one piece at a time for each owner, connections in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable
from typing import Any, NamedTuple, TypeAlias, TypeVar

Result = TypeVar("Result")
Work: TypeAlias = Generator[None, None, Result]
"""Yields after each bounded step, under about a millisecond; returns its result."""
Done = Callable[[Any, Exception | None], None]
"""Called with the result, or with what the work raised."""


class Source(NamedTuple):
    """Names one of the owners that share a connection. Connections have turns, and owners have turns within each."""

    connection: Hashable
    owner: Hashable


class Turns:
    """Does work in turns. An owner's pieces are done in the order in which they came."""

    def __init__(self) -> None:
        self._connections: OrderedDict[Hashable, OrderedDict[Hashable, deque[tuple[Work[Any], Done]]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._connections)

    def busy(self, source: Source) -> bool:
        """Returns whether some work of this owner is not done yet."""
        return source.owner in self._connections.get(source.connection, ())

    def add(self, source: Source, work: Work[Any], done: Done) -> None:
        owners = self._connections.setdefault(source.connection, OrderedDict())
        owners.setdefault(source.owner, deque()).append((work, done))

    def step(self) -> None:
        """Does one step of the first piece of the next connection's next owner. `done` may add more. Must not be called
        while there is no work."""
        connection, owners = self._connections.popitem(last=False)
        owner, pieces = owners.popitem(last=False)
        work, done = pieces[0]
        result, failure, ended = None, None, True
        try:
            next(work)
            ended = False
        except StopIteration as stop:
            result = stop.value
        except Exception as error:
            failure = error
        if ended:
            pieces.popleft()
        if pieces:
            owners[owner] = pieces
        if owners:
            self._connections[connection] = owners
        if ended:
            done(result, failure)

    def drop(self, source: Source) -> None:
        """Drops the work of an owner that is gone: it is not done any further, and `done` is not called."""
        owners = self._connections.get(source.connection)
        if owners is None:
            return
        for work, _ in owners.pop(source.owner, ()):
            work.close()
        if not owners:
            del self._connections[source.connection]

    def end(self, error: Exception) -> None:
        """Ends all work: each `done` is called with `error`."""
        connections, self._connections = self._connections, OrderedDict()
        for owners in connections.values():
            for pieces in owners.values():
                for work, done in pieces:
                    work.close()
                    done(None, error)


def finish(work: Work[Result]) -> Result:
    """Does all of the work at once, where nothing else waits for its turn. Returns the result."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: Result = stop.value
            return result
