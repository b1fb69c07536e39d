"""Keeps open connections by what each waits for, and decides which must end. Pure: time in, decisions out.

At most `connections_max` are open. One more ends another: of those that wait for their peer, the one whose time ends
first. So silent connections never close the port. Where all have answers in the making, or wait for their turn to be
read, one that was answered before ends. If there is none, one more is let in, up to CONNECTIONS_FACTOR times as many;
beyond that the newcomer itself ends.
Not here: sockets (protocol.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Generic, TypeVar

from shoal_runtime.http import limits

Connection = TypeVar("Connection")


class Waits(Enum):
    """Names what a connection waits for."""

    HEAD = "the rest of a head"
    NEXT = "another request"
    REST = "the end of a body that is thrown away"
    READER = "its peer to take an answer"
    ANSWER = "an answer in the making"


@dataclass(slots=True)
class _Wait:
    since: float
    """The time when the wait began; for READER, when a step of the answer was last taken."""
    unread: int = 0
    """The bytes that were not taken at that time. READER only."""
    held: int = 0
    """The bytes of memory for these. An answer stays whole until its last byte is taken. READER only."""


class Connections(Generic[Connection]):
    """Keeps the open connections. Times are seconds of one clock that never goes back."""

    def __init__(self, connections_max: int, idle_s: float) -> None:
        self.connections_max = connections_max
        self._patience: dict[Waits, float] = {
            Waits.HEAD: limits.HEAD_S,
            Waits.NEXT: idle_s,
            Waits.REST: limits.REST_S,
            Waits.READER: limits.STEP_S,
        }
        self._by_wait: dict[Waits, dict[Connection, _Wait]] = {waits: {} for waits in Waits}
        """The connections by wait. Each dict is in the order of `since`: the first connection has waited longest."""
        self._waits: dict[Connection, Waits] = {}
        self._first_turns: dict[Connection, None] = {}
        self._next_turns: dict[Connection, None] = {}
        """The connections that have sent something and wait for their turn: before their first answer, and after one.
        What else they wait for, and since when, does not change."""
        self.held_bytes = 0
        """The sum of `held` of all connections."""

    def __len__(self) -> int:
        return len(self._waits)

    def count(self, waits: Waits) -> int:
        """Returns how many connections wait for this."""
        return len(self._by_wait[waits])

    def opened(self, connection: Connection, now: float) -> Connection | None:
        """Adds a connection. Returns the connection that must end, if there are too many: another one, or this one,
        which is not added then."""
        victim = self._nearest_end() if len(self._waits) >= self.connections_max else None
        if victim is not None:
            self.lost(victim)
        elif len(self._waits) >= limits.CONNECTIONS_FACTOR * self.connections_max:
            return connection
        self.waits(connection, Waits.HEAD, now)
        return victim

    def waits(self, connection: Connection, waits: Waits, now: float) -> None:
        """Notes what a connection waits for now. If it already waited for the same, the start of the wait stays."""
        if self._waits.get(connection) is waits:
            return
        self._take_out(connection)
        self._waits[connection] = waits
        self._by_wait[waits][connection] = _Wait(now)

    def asks(self, connection: Connection) -> None:
        """Notes that a connection waits for its turn. A connection with an answer in the making is never ended
        anyway."""
        waits = self._waits.get(connection)
        if waits is not None and waits is not Waits.ANSWER:
            (self._first_turns if waits is Waits.HEAD else self._next_turns).setdefault(connection)

    def had_turn(self, connection: Connection) -> None:
        self._first_turns.pop(connection, None)
        self._next_turns.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        """Forgets a connection. An unknown connection is no error."""
        self.had_turn(connection)
        self._take_out(connection)

    def _take_out(self, connection: Connection) -> None:
        before = self._waits.pop(connection, None)
        if before is not None:
            self.held_bytes -= self._by_wait[before].pop(connection).held

    def unread(self, connection: Connection, unread: int, held: int, now: float) -> None:
        """Notes how many bytes of its answer the peer of a READER has not taken. If there are more than before, it is
        another answer."""
        wait = self._by_wait[Waits.READER].get(connection)
        if wait is None:
            return
        self.held_bytes += held - wait.held
        wait.held = held
        if unread > wait.unread or wait.unread - unread >= limits.STEP_BYTES:
            wait.since, wait.unread = now, unread
            # It becomes the newest in the order.
            readers = self._by_wait[Waits.READER]
            readers[connection] = readers.pop(connection)

    def readers(self) -> list[Connection]:
        """Returns the connections with an answer for their peers to take."""
        return list(self._by_wait[Waits.READER])

    def late(self, now: float) -> list[Connection]:
        """Takes out and returns the connections that waited too long. If readers hold too much memory, takes out those
        of them that make no progress too."""
        late = [connection for waits in self._patience for connection in self._late(waits, now)]
        for connection in late:
            self.lost(connection)
        late += self._in_the_way(now)
        return late

    def _in_the_way(self, now: float) -> list[Connection]:
        found = []
        while self.held_bytes > limits.ANSWERS_BYTES_MAX:
            slowest, wait = next(iter(self._by_wait[Waits.READER].items()))
            if wait.since > now - limits.SLOW_S:
                break
            self.lost(slowest)
            found.append(slowest)
        return found

    def _late(self, waits: Waits, now: float) -> Iterator[Connection]:
        for connection, wait in self._without_turn(waits):
            if wait.since + self._patience[waits] > now:
                return
            yield connection

    def _nearest_end(self) -> Connection | None:
        """Returns the connection that must end for a new one: the one whose time ends first. Returns None if none waits
        for its peer and there are not too many."""
        oldest = [
            (wait.since + self._patience[waits], number, connection)
            for number, waits in enumerate(self._patience)
            for connection, wait in islice(self._without_turn(waits), 1)
        ]
        if oldest:
            return min(oldest)[2]
        if self._next_turns:
            return next(iter(self._next_turns))
        if len(self._waits) >= limits.CONNECTIONS_FACTOR * self.connections_max:
            return next(reversed(self._first_turns), None)
        return None

    def _without_turn(self, waits: Waits) -> Iterator[tuple[Connection, _Wait]]:
        """Yields, in order, the connections whose data has all been read: the others wait for us."""
        for connection, wait in self._by_wait[waits].items():
            if connection not in self._first_turns and connection not in self._next_turns:
                yield connection, wait
