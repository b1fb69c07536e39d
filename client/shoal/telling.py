"""Tells an application what its connection goes through: which slices are away or back, and errors that no call raises.

Callbacks run in the event loop, one after the other, after the step that caused them: so they may use the connection.
One that raises is logged and harms nothing. Not here: what is logged besides (each module logs what it does).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from shoal.limits import TOLD_PER_TURN_MAX, TOLD_WAITING_MAX

_log = logging.getLogger("shoal")


class State(StrEnum):
    """Says how things are with a slice, or with the connection."""

    IDLE = "idle"
    """Nothing was asked of it yet, or it has not answered yet."""
    OPEN = "open"
    """It answers."""
    AWAY = "away"
    """It does not answer: its streams are lost, or it is silent. The library tries again by itself."""
    CLOSED = "closed"
    """The application left `async with`: the connection has ended for good."""


class SliceState(NamedTuple):
    """Says how things are with one slice now."""

    state: State
    """Its state, over all streams that this connection has to it."""
    reason: str = ""
    """Why it is away; "" if it is not."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """Tells that a state changed; `on_state` of `connect` gets it."""

    slice: str
    """The slice; "" if this is about the connection itself: AWAY means that no redirector gives a map."""
    before: State
    """The state until now: OPEN after AWAY means that it is back."""
    state: State
    """The state from now on."""
    reason: str = ""
    """Why it is away; "" for other states."""


OnState = Callable[[StateChange], None]
OnError = Callable[[Exception], None]


def check_callback(name: str, callback: object) -> None:
    """Raises TypeError unless `callback` is None or a plain function. The result of a coroutine function would never be
    awaited."""
    if callback is None:
        return
    if not callable(callback):
        raise TypeError(f"{name} must be a function, not {type(callback).__name__}")
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None)):  # noqa: B004 - an object's own method
        raise TypeError(f"{name} must be a plain function, not a coroutine function: it may start a task")


class Telling:
    """Keeps the states of one connection, and calls the application's callbacks. `session`: a session, or whatever else
    asks a slice over a connection of its own."""

    def __init__(self, on_state: OnState | None = None, on_error: OnError | None = None) -> None:
        self._on_state = on_state
        self._on_error = on_error
        self._away: dict[str, dict[object, str]] = {}
        """Slice ("": the redirectors) -> the sessions that are away, with the reason; never empty."""
        self._open: dict[str, set[object]] = {}
        """Slice -> the sessions to it that have an answer; never empty."""
        self._silent: dict[str, set[object]] = {}
        """Slice -> the sessions that it left without an answer, and that have had none since; never empty."""
        self._states: dict[str, State] = {}
        """Slice -> its state as it was told last. As many as the map ever had slices."""
        self._ending = False
        """True once the connection begins to close its sessions: what follows is no news of slices."""
        self._closed = False
        self._waiting: deque[tuple[Callable[[Any], None], Any]] = deque()
        """Callbacks to make, with what they get. At most TOLD_WAITING_MAX."""
        self._left_out = 0
        self._scheduled = False

    def up(self, slice_name: str, session: object) -> None:
        """Records that a session has an answer. The log has it where the slice was silent."""
        if self._no_longer_silent(slice_name, session):
            _log.warning("slice %s answers again", slice_name)
        self._no_longer_away(slice_name, session)
        self._open.setdefault(slice_name, set()).add(session)
        self._compare(slice_name)

    def away(self, slice_name: str, session: object, reason: str) -> None:
        """Records that a session is lost, or silent."""
        self._no_longer_open(slice_name, session)
        self._away.setdefault(slice_name, {})[session] = reason
        self._compare(slice_name)

    def silent(self, slice_name: str, session: object, silent_s: float, problem: str) -> None:
        """Records that a slice left a session without an answer for `silent_s` seconds; `problem`: why, if that is
        known. The log has it once for all sessions, until the slice has answered all of them."""
        if slice_name not in self._silent:
            why = f" ({problem})" if problem else ""
            _log.warning(
                "slice %s has not answered for %g s%s: calls that need it wait until their deadlines",
                *(slice_name, silent_s, why),
            )
        self._silent.setdefault(slice_name, set()).add(session)
        self.away(slice_name, session, problem or f"it has not answered for {silent_s:g} s")

    def gone(self, slice_name: str, session: object) -> None:
        """Records that a session was closed from here: it says nothing of its slice any more."""
        self._no_longer_silent(slice_name, session)
        self._no_longer_away(slice_name, session)
        self._no_longer_open(slice_name, session)
        self._compare(slice_name)

    def error(self, error: Exception) -> None:
        """Tells an error that no call raises, or that comes when nothing may be waiting for it."""
        if self._on_error is not None:
            self._later(self._on_error, error)

    def end(self) -> None:
        """Tells of slices no more: the connection closes its sessions from now on. `closed` tells when that is done."""
        self._ending = True

    def closed(self) -> None:
        """Tells that the connection has ended, after all that was told before. Nothing is told after this."""
        if self._closed:
            return
        before = self.state_of("").state
        self._ending = self._closed = True
        if self._on_state is not None:
            self._waiting.append((self._on_state, StateChange("", before, State.CLOSED)))
        while self._waiting:
            self._tell_one()

    def state_of(self, slice_name: str) -> SliceState:
        """Returns the state of a slice; of the connection itself for ""."""
        if self._closed:
            return SliceState(State.CLOSED)
        if slice_name in self._away:
            return SliceState(State.AWAY, next(iter(self._away[slice_name].values())))
        return SliceState(State.OPEN if slice_name in self._open else State.IDLE)

    def states_of(self, slice_names: Iterable[str]) -> dict[str, SliceState]:
        """Returns the states of slices."""
        return {name: self.state_of(name) for name in slice_names}

    def _no_longer_away(self, slice_name: str, session: object) -> None:
        sessions = self._away.get(slice_name, {})
        if sessions.pop(session, None) is not None and not sessions:
            del self._away[slice_name]

    def _no_longer_silent(self, slice_name: str, session: object) -> bool:
        """Returns whether this was the last session that the slice left without an answer."""
        sessions = self._silent.get(slice_name, set())
        if session not in sessions:
            return False
        sessions.discard(session)
        if not sessions:
            del self._silent[slice_name]
        return not sessions

    def _no_longer_open(self, slice_name: str, session: object) -> None:
        sessions = self._open.get(slice_name)
        if sessions is not None:
            sessions.discard(session)
            if not sessions:
                del self._open[slice_name]

    def _compare(self, slice_name: str) -> None:
        """Tells the state of a slice if it is another one than before."""
        now = self.state_of(slice_name)
        before = self._states.get(slice_name, State.IDLE)
        if now.state == before or self._ending:
            return
        self._states[slice_name] = now.state
        if self._on_state is not None:
            self._later(self._on_state, StateChange(slice_name, before, now.state, now.reason))

    def _later(self, callback: Callable[[Any], None], told: Any) -> None:
        if self._closed:
            return
        if len(self._waiting) >= TOLD_WAITING_MAX:
            self._left_out += 1
            return
        self._waiting.append((callback, told))
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._scheduled = False
        for _ in range(min(len(self._waiting), TOLD_PER_TURN_MAX)):
            self._tell_one()
        if self._waiting:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._tell)
        elif self._left_out:
            _log.warning("%d states or errors were not told to the callbacks: there were too many", self._left_out)
            self._left_out = 0

    def _tell_one(self) -> None:
        callback, told = self._waiting.popleft()
        try:
            callback(told)
        except Exception:
            _log.warning("a callback of the application failed; it was given %r", told, exc_info=True)
