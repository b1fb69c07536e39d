"""Open connections by what each waits for, and which of them has to go. Pure: told the time, it returns decisions.

At most `connections_max` are open. One more ends the connection whose time would be over first, among those that wait
for their peer; so silence never closes the port. Where all have answers in the making, or wait for their turn to be
read, it ends one that was answered before; else one more is let in, up to CONNECTIONS_FACTOR times as many. Not here:
sockets (protocol.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Generic, TypeVar

from shoal_contract.http import limits

Connection = TypeVar("Connection")


class Waits(Enum):
    """What a connection waits for."""

    HEAD = "the rest of a head"
    NEXT = "another request"
    REST = "the end of a body that is thrown away"
    READER = "its peer to take an answer"
    ANSWER = "an answer in the making"


@dataclass(slots=True)
class _Wait:
    since: float
    """Of READER: when a step of the answer was last taken."""
    unread: int = 0
    """READER only: bytes that were not taken then."""
    held: int = 0
    """READER only: bytes of memory for them. An answer stays whole until its last byte is taken."""


class Connections(Generic[Connection]):
    """Times are seconds of one clock that never goes back."""

    def __init__(self, connections_max: int, idle_s: float) -> None:
        self.connections_max = connections_max
        self._patience: dict[Waits, float] = {
            Waits.HEAD: limits.HEAD_S,
            Waits.NEXT: idle_s,
            Waits.REST: limits.REST_S,
            Waits.READER: limits.STEP_S,
        }
        self._by_wait: dict[Waits, dict[Connection, _Wait]] = {waits: {} for waits in Waits}
        """Each dict is in the order of `since`: the first is the one that waits longest."""
        self._waits: dict[Connection, Waits] = {}
        self._first_turns: dict[Connection, None] = {}
        self._next_turns: dict[Connection, None] = {}
        """Those that have sent something and wait for their turn, before their first answer and after one. What they
        wait for otherwise, and since when, stays as it is."""
        self.held_bytes = 0
        """The sum of `held` of all."""

    def __len__(self) -> int:
        return len(self._waits)

    def count(self, waits: Waits) -> int:
        """How many wait for this."""
        return len(self._by_wait[waits])

    def opened(self, connection: Connection, now: float) -> Connection | None:
        """Adds a connection. Returns another that must end for it, if there are too many."""
        victim = self._nearest_end() if len(self._waits) >= self.connections_max else None
        if victim is not None:
            self.lost(victim)
        self.waits(connection, Waits.HEAD, now)
        return victim

    def waits(self, connection: Connection, waits: Waits, now: float) -> None:
        """Notes what a connection waits for now. What it waited for already it has waited for since then."""
        if self._waits.get(connection) is waits:
            return
        self._take_out(connection)
        self._waits[connection] = waits
        self._by_wait[waits][connection] = _Wait(now)

    def asks(self, connection: Connection) -> None:
        """Notes that a connection waits for its turn. One whose answer is in the making stays anyway."""
        waits = self._waits.get(connection)
        if waits is not None and waits is not Waits.ANSWER:
            (self._first_turns if waits is Waits.HEAD else self._next_turns).setdefault(connection)

    def had_turn(self, connection: Connection) -> None:
        self._first_turns.pop(connection, None)
        self._next_turns.pop(connection, None)

    def lost(self, connection: Connection) -> None:
        """Forgets a connection; one that is not there is no fault."""
        self.had_turn(connection)
        self._take_out(connection)

    def _take_out(self, connection: Connection) -> None:
        before = self._waits.pop(connection, None)
        if before is not None:
            self.held_bytes -= self._by_wait[before].pop(connection).held

    def unread(self, connection: Connection, unread: int, held: int, now: float) -> None:
        """Notes how much of its answer the peer of a READER has not taken. More than before is another answer."""
        wait = self._by_wait[Waits.READER].get(connection)
        if wait is None:
            return
        self.held_bytes += held - wait.held
        wait.held = held
        if unread > wait.unread or wait.unread - unread >= limits.STEP_BYTES:
            wait.since, wait.unread = now, unread
            # Back into its place: as the newest.
            readers = self._by_wait[Waits.READER]
            readers[connection] = readers.pop(connection)

    def readers(self) -> list[Connection]:
        """Those whose peers have something to take."""
        return list(self._by_wait[Waits.READER])

    def late(self, now: float) -> list[Connection]:
        """Takes out those that waited for too long, and if readers hold too much, those of them that do not get on."""
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
        """The connection whose time is over first; None if none waits for its peer and there are not too many."""
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
        """Those that have sent nothing that is not read yet, in order: others wait for us."""
        for connection, wait in self._by_wait[waits].items():
            if connection not in self._first_turns and connection not in self._next_turns:
                yield connection, wait
