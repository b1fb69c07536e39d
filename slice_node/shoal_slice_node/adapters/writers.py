"""The sessions' streams: how each is woken when there is something to send, and since when each has been writing.

A transport takes what is written when its client reads. A session that stands still at that holds memory, and is the
first to end when memory is short.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from heapq import nlargest
from itertools import takewhile
from operator import attrgetter

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.limits import (
    ANSWERS_HELD_FLOOR_BYTES,
    ANSWERS_SMALL_PARTS,
    STALLED_SESSION_MS,
    STALLED_SMALL_MS,
    STALLED_SMALL_PER_LOOK,
)
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import Share


class Writers:
    """Of sessions that clients have open."""

    def __init__(self) -> None:
        self.sessions: dict[int, Session] = {}
        self._wakers: dict[int, Callable[[], None]] = {}
        self._enders: dict[int, Callable[[], None]] = {}
        self._connections: dict[int, Hashable] = {}
        self._heard: OrderedDict[Session, int] = OrderedDict()
        """Session -> when a whole frame of it came last, steady_ms; the longest ago first."""
        self._writing: dict[Session, int] = {}
        """Session -> since when, steady_ms; in the order in which they began."""
        self._answers_bytes: dict[Session, Callable[[], int]] = {}
        """The same sessions -> bytes of their answers: what is being written, and what waits behind it."""

    def __len__(self) -> int:
        """How many streams are open."""
        return len(self._wakers)

    def open(self, session: Session, connection: Hashable, wake: Callable[[], None], end: Callable[[], None]) -> None:
        """`connection`: the client's, which other sessions may share. `end`: to be called when the session has an
        `ended_by`."""
        self.sessions[session.number] = session
        self._connections[session.number] = connection
        self.heard(session)
        self._wakers[session.number] = wake
        self._enders[session.number] = end

    def close(self, session: Session) -> None:
        for known in (self.sessions, self._connections, self._wakers, self._enders):
            del known[session.number]
        del self._heard[session]
        self.ended(session)

    def wake(self, dirty: dict[int, Session]) -> None:
        """Tells these sessions' streams, and empties `dirty`."""
        for number, session in dirty.items():
            waker = self._wakers.get(number)
            if waker is not None:
                waker()
                if session.ended_by is not None:
                    self._enders[number]()
        dirty.clear()

    def heard(self, session: Session) -> None:
        """A whole frame of it came, or it opened."""
        self._heard[session] = steady_ms()
        self._heard.move_to_end(session)

    def end_silent(self, count: int, error: ShoalError, for_ms: int, consumers: bool) -> int:
        """Ends up to so many sessions from which nothing whole came `for_ms`, those that opened last first: who was
        there before something went wrong did not cause it. Returns how many. `consumers`: also those that have a queue
        attached."""
        until_ms = steady_ms() - for_ms
        silent = takewhile(lambda one: self._heard[one] <= until_ms, self._heard)
        may_end = (one for one in silent if one.ended_by is None and (consumers or not one.attachments))
        chosen = nlargest(count, may_end, key=attrgetter("number"))
        for session in chosen:
            session.ended_by = error
            self._enders[session.number]()
        return len(chosen)

    def began(self, session: Session, answers_bytes: Callable[[], int]) -> None:
        """A response is on its way to the transport. `answers_bytes`: of the session's answers that are not taken."""
        self._writing[session] = steady_ms()
        self._answers_bytes[session] = answers_bytes

    def ended(self, session: Session) -> None:
        """The transport has it."""
        self._writing.pop(session, None)
        self._answers_bytes.pop(session, None)

    def end_stalled(self, share: Share, needed_bytes: int = 0, for_ms: int = STALLED_SESSION_MS) -> list[Session]:
        """Ends sessions until a share that is full would not be: of those that stood still `for_ms`, who holds most of
        it first. Returns them. `needed_bytes`: of the answers' share, which is full when less is free."""
        lacking_bytes = max(1, needed_bytes) - share.left_bytes
        if lacking_bytes <= 0:
            return []
        now_ms = steady_ms()
        stalled = [session for session, since_ms in self._writing.items() if now_ms - since_ms >= for_ms]
        holds = {
            session: self._answers_bytes[session]() if needed_bytes else session.under_way_bytes
            for session in stalled
            if session.ended_by is None
        }
        least_bytes = ANSWERS_HELD_FLOOR_BYTES if needed_bytes else 1  # Who holds less is not why others wait.
        ended: list[Session] = []
        for session in sorted(holds, key=lambda one: holds[one], reverse=True):
            if lacking_bytes <= 0 or holds[session] < least_bytes:
                break
            lacking_bytes -= holds[session]
            self._end_stalled(session, share, for_ms)
            ended.append(session)
        return ended

    def end_stalled_small(self, share: Share, needed_bytes: int) -> list[Session]:
        """Ends sessions that hold few bytes of answers each, where `needed_bytes` of the answers' share are not free,
        and will not be when the sessions that hold much have ended. Returns those that end.

        Only those that stood still for STALLED_SMALL_MS, and only until together they hold no more than a part of the
        share; those of the connection that holds most come first. So a session that rests with a few bytes is let be,
        whatever others hold."""
        lacking_bytes = needed_bytes - share.left_bytes
        if lacking_bytes <= 0:
            return []
        until_ms = steady_ms() - STALLED_SMALL_MS
        holds: Counter[Session] = Counter()
        by_connection: Counter[Hashable] = Counter()
        for session, since_ms in self._writing.items():
            held_bytes = self._answers_bytes[session]()
            if session.ended_by is not None or held_bytes >= ANSWERS_HELD_FLOOR_BYTES:
                lacking_bytes -= held_bytes  # It is about to be free.
            elif since_ms <= until_ms:
                holds[session] = held_bytes
                by_connection[self._connections[session.number]] += held_bytes
        too_much_bytes = holds.total() - share.limit_bytes // ANSWERS_SMALL_PARTS
        if min(lacking_bytes, too_much_bytes) <= 0:
            return []

        def order(session: Session) -> tuple[int, int]:
            return by_connection[self._connections[session.number]], holds[session]

        ended: list[Session] = []
        for session in nlargest(STALLED_SMALL_PER_LOOK, holds, key=order):
            if min(lacking_bytes, too_much_bytes) <= 0:
                break
            lacking_bytes -= holds[session]
            too_much_bytes -= holds[session]
            self._end_stalled(session, share, STALLED_SMALL_MS)
            ended.append(session)
        return ended

    def _end_stalled(self, session: Session, share: Share, for_ms: int) -> None:
        session.ended_by = ResourceExhausted(
            f"this client has read nothing for {for_ms / 1000:g} s while {share.name} fill their share"
            f" of memory, {share.limit_bytes} bytes: its session ends",
            subject=share.name,
            limit=share.limit_bytes,
            value=share.used_bytes,
        )
        self._enders[session.number]()
