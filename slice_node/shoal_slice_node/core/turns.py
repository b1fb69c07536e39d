"""Work that is done in steps, between the steps of others: one piece at a time for each owner, owners in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeAlias, TypeVar

Result = TypeVar("Result")
Work: TypeAlias = Generator[None, None, Result]
"""Yields after each bounded step, under about a millisecond; returns its result."""
Done = Callable[[Any, Exception | None], None]
"""Told the result, or what the work raised."""


class Turns:
    """An owner's pieces are done in the order in which they came."""

    def __init__(self) -> None:
        self._owners: OrderedDict[Hashable, deque[tuple[Work[Any], Done]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._owners)

    def busy(self, owner: Hashable) -> bool:
        """Whether something of this owner is not done yet."""
        return owner in self._owners

    def add(self, owner: Hashable, work: Work[Any], done: Done) -> None:
        self._owners.setdefault(owner, deque()).append((work, done))

    def step(self) -> None:
        """One step of the next owner's first piece. `done` may add more. Not while there is nothing."""
        owner, pieces = self._owners.popitem(last=False)
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
            self._owners[owner] = pieces
        if ended:
            done(result, failure)

    def drop(self, owner: Hashable) -> None:
        """Its owner is gone: what it wanted is not done any further, and nothing is told."""
        for work, _ in self._owners.pop(owner, ()):
            work.close()


def finish(work: Work[Result]) -> Result:
    """Does all of it at once: where nothing else waits for its turn."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: Result = stop.value
            return result
