"""Does work in steps, between the steps of other work: one piece at a time for each owner, connections in turn."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

from shoal_contract.errors import ShoalError
from shoal_slice_node.core.limits import LONG_WORK_STEPS

Result = TypeVar("Result")
Work: TypeAlias = Generator[None, None, Result]
"""Yields after each bounded step, under about a millisecond; returns its result."""
Done = Callable[[Any, Exception | None], None]
"""Called with the result, or with what the work raised."""


class Source(NamedTuple):
    """Names one of the owners that share a connection. Connections have turns, and owners have turns within each."""

    connection: Hashable
    owner: Hashable


_Line: TypeAlias = "OrderedDict[Hashable, OrderedDict[Hashable, None]]"


class _Piece:
    """Holds a piece of work. `steps`: how many steps it has had."""

    __slots__ = ("done", "steps", "work")

    def __init__(self, work: Work[Any], done: Done) -> None:
        self.work = work
        self.done = done
        self.steps = 0


class Turns:
    """Does work in turns. An owner's pieces are done in the order in which they came.

    Pieces that have had many steps stand in lines of their own: a look at one queue need not wait for the lists of
    hundreds of connections. Each line has half as many turns as the one before it, and more if that one is empty. (So
    do schedulers with multilevel feedback queues.)
    """

    def __init__(self) -> None:
        self._lines: tuple[_Line, ...] = tuple(OrderedDict() for _ in range(len(LONG_WORK_STEPS) + 1))
        """One for each span of steps that the first piece of an owner has had: connection -> owners. Connections have
        turns in each line, and owners have turns within their connection's."""
        self._pieces: dict[Source, deque[_Piece]] = {}
        self._beside: dict[Source, set[Source]] = {}
        """Maps an owner to what stands for it in the line, for each of its pieces that the others do not wait for."""
        self._turn = 0

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def busy(self, source: Source) -> bool:
        """Returns whether some work of this owner is not done yet."""
        return source in self._pieces

    def add(self, source: Source, work: Work[Any], done: Done) -> None:
        """Adds a piece of work. It is done after the other pieces of its owner."""
        pieces = self._pieces.get(source)
        if pieces is None:
            self._pieces[source] = deque((_Piece(work, done),))
            self._line_up(source, 0)
        else:
            pieces.append(_Piece(work, done))

    def add_beside(self, source: Source, work: Work[Any], done: Done) -> None:
        """Adds a piece of work that begins after those that its owner has now, and that later ones do not wait for. It
        is dropped with them."""
        if self.busy(source):
            self.add(source, _nothing(), partial(self._begin_beside, source, work, done))
        else:
            self._begin_beside(source, work, done, None, None)

    def _begin_beside(self, source: Source, work: Work[Any], done: Done, _: None, error: Exception | None) -> None:
        if error is not None:
            done(None, error)
            return
        stands_for = Source(source.connection, object())
        self._beside.setdefault(source, set()).add(stands_for)

        def ended(result: Any, error: Exception | None) -> None:
            beside = self._beside[source]
            beside.remove(stands_for)
            if not beside:
                del self._beside[source]
            done(result, error)

        self.add(stands_for, work, ended)

    def step(self) -> None:
        """Does one step of the first piece of the next connection's next owner. `done` may add more. Must not be called
        while there is no work."""
        source = self._next()
        pieces = self._pieces[source]
        piece = pieces[0]
        result, ended = None, True
        failure: Exception | None = None
        try:
            next(piece.work)
            ended = False
        except StopIteration as stop:
            result = stop.value
        except ShoalError as error:
            failure = error.with_traceback(None)  # Its frames may name it: a circle, which would stay.
        except Exception as error:
            failure = error
        piece.steps += 1
        if ended:
            pieces.popleft()
        if pieces:
            self._line_up(source, pieces[0].steps)
        else:
            del self._pieces[source]
        if ended:
            piece.done(result, failure)
            failure = None  # A traceback has this frame.

    def _next(self) -> Source:
        """Takes the next owner out of its line."""
        self._turn += 1
        turn, lines = self._turn, self._lines
        wanted = min((turn & -turn).bit_length() - 1, len(lines) - 1)  # Every second turn is line 0's, and so on.
        line = lines[wanted] or next(filter(None, lines))
        connection, owners = line.popitem(last=False)
        owner, _ = owners.popitem(last=False)
        if owners:
            line[connection] = owners
        return Source(connection, owner)

    def _line_up(self, source: Source, steps: int) -> None:
        line = self._lines[bisect_right(LONG_WORK_STEPS, steps)]
        line.setdefault(source.connection, OrderedDict())[source.owner] = None

    def drop(self, source: Source) -> None:
        """Drops the work of an owner that is gone: it is not done any further, and `done` is not called. Nor is what is
        added as work ends."""
        while source in self._pieces or source in self._beside:
            for stands_for in self._beside.pop(source, ()):
                self.drop(stands_for)
            pieces = self._pieces.pop(source, ())
            self._leave_line(source)
            for piece in pieces:
                piece.work.close()

    def _leave_line(self, source: Source) -> None:
        for line in self._lines:
            owners = line.get(source.connection)
            if owners is not None:
                owners.pop(source.owner, None)
                if not owners:
                    del line[source.connection]

    def end(self, error: Exception) -> None:
        """Ends all work, and what is added as it ends: each `done` is called with `error`."""
        while self._pieces:
            ended, self._pieces = self._pieces, {}
            for line in self._lines:
                line.clear()
            for pieces in ended.values():
                for piece in pieces:
                    piece.work.close()
                    piece.done(None, error)


def _nothing() -> Work[None]:
    yield from ()


def begun(work: Work[Result], steps_max: int) -> Work[Result | None]:
    """Does up to so many steps of the work. Returns its result; None: it was not done by then, and is dropped."""
    for _ in range(steps_max):
        try:
            next(work)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        yield
    work.close()
    return None


def finish(work: Work[Result]) -> Result:
    """Does all of the work at once, where nothing else waits for its turn. Returns the result."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            result: Result = stop.value
            return result
