"""Finds out whether slices answer unary calls, and tells it, as sessions do of their streams.

A slice is away if it leaves the calls of one kind without any answer for SILENT_S. Where calls may take long at
a slice that is well, it is asked an empty question beside them, and an answer to that counts, too. Once no call waits,
only such a question can tell whether the slice is there: what was left without an answer is followed by it until one
comes. Not here: which calls are repeated (slice_calls.py), what is told to whom (telling.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import random
from typing import TypeVar

from shoal.core.backoff import Backoff
from shoal.limits import SILENT_ASK_S, SILENT_S
from shoal.map_watch import MapWatch
from shoal.telling import Telling
from shoal_contract.errors import DeadlineExceeded, MapOrLeaderChanged, NotOwner, OutcomeUnknown, ShoalError
from shoal_runtime.tasks import Tasks

Result = TypeVar("Result")


class Answering:
    """Keeps whether a slice answers the calls of one kind. `ask`: asks it the empty question once, for so many
    seconds. `may_take_long`: whether calls may, although the slice is well."""

    def __init__(
        self,
        slice_name: str,
        map_watch: MapWatch,
        telling: Telling,
        tasks: Tasks,
        ask: Callable[[float], Awaitable[object]],
        *,
        may_take_long: bool,
    ) -> None:
        self._slice = slice_name
        self._map = map_watch
        self._telling = telling
        self._tasks = tasks
        self._ask = ask
        self._may_take_long = may_take_long
        self._waiting = 0
        """Attempts under way."""
        self._quiet_since_s: float | None = None
        """Event loop time since when something has no answer and nothing comes; None: all was answered."""
        self._problem = ""
        """Why the last attempt failed; "": it had no answer in time, or worked."""
        self._up = False
        """True from an answer until the slice is told as away."""
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        """Event loop time when the timer is to end."""
        self._asking: asyncio.Task[None] | None = None

    async def attempt(self, call: Awaitable[Result]) -> Result:
        """Waits for one attempt of a call: returns what it returns, and raises what it raises."""
        loop = asyncio.get_running_loop()
        if self._quiet_since_s is None:
            self._quiet_since_s = loop.time()
        if self._timer is None:
            self._look_later()
        self._waiting += 1
        try:
            result = await call
        except ShoalError as error:
            self._waiting -= 1
            self._failed(error)
            raise
        except BaseException:
            self._waiting -= 1  # Its caller has left: what it waited for is still without an answer.
            raise
        self._waiting -= 1
        self._answered()
        return result

    def _answered(self) -> None:
        """Takes that the slice answers."""
        self._quiet_since_s = asyncio.get_running_loop().time() if self._waiting else None
        self._problem = ""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        if not self._up:
            self._up = True
            self._telling.up(self._slice, self)

    def _failed(self, error: ShoalError) -> None:
        """Takes how an attempt failed: refusals are answers, too."""
        if isinstance(error, NotOwner) or not isinstance(error, OutcomeUnknown | MapOrLeaderChanged):
            self._answered()
        else:
            self._problem = "" if isinstance(error, DeadlineExceeded) else error.message

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + SILENT_ASK_S
        self._timer = loop.call_at(self._due_s, self._look)

    def _look(self) -> None:
        """Looks for how long nothing came; again after SILENT_ASK_S, while anything is without an answer. While the
        program held its loop nothing could come: that does not count."""
        self._timer = None
        if self._quiet_since_s is None or self._tasks.closed:
            return
        now_s = asyncio.get_running_loop().time()
        self._quiet_since_s += max(0.0, now_s - self._due_s)
        quiet_s = now_s - self._quiet_since_s
        if quiet_s >= SILENT_S:
            self._up = False
            self._telling.silent(self._slice, self, SILENT_S, self._problem)
        if self._asking is None and quiet_s >= SILENT_ASK_S and (self._may_take_long or not self._waiting):
            self._asking = self._tasks.start(f"is {self._slice} there", self._ask_until_answered())
        self._look_later()

    async def _ask_until_answered(self) -> None:
        backoff = Backoff(random)
        while self._slice in self._map.current.slices:
            try:
                await self._ask(SILENT_S)
            except (OutcomeUnknown, MapOrLeaderChanged) as error:
                self._failed(error)
                if isinstance(error, MapOrLeaderChanged):
                    self._map.suspect()
            except ShoalError:
                break
            else:
                break
            await self._map.change(backoff.pause_s())
        self._asking = None
        if self._slice in self._map.current.slices:
            self._answered()
        else:
            self._quiet_since_s = None
            self._up = False
            self._telling.gone(self._slice, self)
