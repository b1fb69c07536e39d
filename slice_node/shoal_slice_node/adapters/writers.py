"""The sessions' streams: how each is woken when there is something to send, and since when each has been writing.

A transport takes what is written when its client reads. A session that stands still at that holds memory, and is the
first to end when memory is short.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from itertools import islice, takewhile

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_slice_node.adapters.answer_room import Reservation
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.limits import STALLED_SESSION_MS
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import Share


class Writers:
    """Of sessions that clients have open."""

    def __init__(self) -> None:
        self.sessions: dict[int, Session] = {}
        self._wakers: dict[int, Callable[[], None]] = {}
        self._enders: dict[int, Callable[[], None]] = {}
        self._heard: OrderedDict[Session, int] = OrderedDict()
        """Session -> when a whole frame of it came last, steady_ms; the longest ago first."""
        self._writing: dict[Session, int] = {}
        """Session -> since when, steady_ms; in the order in which they began."""
        self._answers: dict[Session, Collection[Reservation]] = {}
        """The same sessions -> their large answers: what is being written, and what waits behind it."""

    def __len__(self) -> int:
        """How many streams are open."""
        return len(self._wakers)

    def open(self, session: Session, wake: Callable[[], None], end: Callable[[], None]) -> None:
        """`end`: to be called when the session has an `ended_by`."""
        self.sessions[session.number] = session
        self.heard(session)
        self._wakers[session.number] = wake
        self._enders[session.number] = end

    def close(self, session: Session) -> None:
        for known in (self.sessions, self._wakers, self._enders):
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
        """Ends up to so many sessions from which nothing whole came `for_ms`, the longest silent first. Returns how
        many. `consumers`: also those that have a queue attached."""
        until_ms = steady_ms() - for_ms
        silent = takewhile(lambda one: self._heard[one] <= until_ms, self._heard)
        chosen = list(
            islice((one for one in silent if one.ended_by is None and (consumers or not one.attachments)), count)
        )
        for session in chosen:
            session.ended_by = error
            self._enders[session.number]()
        return len(chosen)

    def began(self, session: Session, answers: Collection[Reservation] = ()) -> None:
        """A response is on its way to the transport. `answers`: the session's large ones, while they are not taken."""
        self._writing[session] = steady_ms()
        self._answers[session] = answers

    def ended(self, session: Session) -> None:
        """The transport has it."""
        self._writing.pop(session, None)
        self._answers.pop(session, None)

    def end_stalled(self, share: Share, needed_bytes: int = 0) -> Session | None:
        """Ends the session that holds most of a share that is full, of those that stood still for STALLED_SESSION_MS.
        Returns it; None: none had to end. `needed_bytes`: of the answers' share, which is full when less is free."""
        if share.left_bytes >= max(1, needed_bytes):
            return None
        now_ms = steady_ms()
        stalled = [session for session, since_ms in self._writing.items() if now_ms - since_ms >= STALLED_SESSION_MS]
        holds = self._answers_bytes if needed_bytes else _deliveries_bytes
        session = max((one for one in stalled if holds(one)), key=holds, default=None)
        if session is not None:
            session.ended_by = ResourceExhausted(
                f"this client has read nothing for {STALLED_SESSION_MS // 1000} s while {share.name} fill their share"
                f" of memory, {share.limit_bytes} bytes: its session ends",
                subject=share.name,
                limit=share.limit_bytes,
                value=share.used_bytes,
            )
            self._enders[session.number]()
        return session

    def _answers_bytes(self, session: Session) -> int:
        return sum(answer.bytes for answer in self._answers[session])


def _deliveries_bytes(session: Session) -> int:
    return session.under_way_bytes
