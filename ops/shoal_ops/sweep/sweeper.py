"""Sweeps a cluster: once at full pace for `shoal sweep`, or for ever at a low pace beside the HTTP gateway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from shoal import Part, Parts
from shoal_contract.errors import ShoalError
from shoal_contract.names import show
from shoal_ops.limits import (
    SWEEP_DEADLINE_S,
    SWEEP_EVERY_S,
    SWEEP_NAMES,
    SWEEP_PAUSE_S,
    SWEEP_SUSPECTS_MAX,
)
from shoal_ops.sweep.decisions import Suspects, is_doubtful, is_unknown

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SweepFigures:
    """Keeps the figures of a sweeper since it began."""

    looked: int = 0
    """Parts of queues whose home is another slice."""
    dropped: int = 0
    doubtful: int = 0
    """Parts of queues that their home does not know and whose incarnation is not known either. They are left."""
    unknown: int = 0
    """Parts whose life their home does not know: the queue was dropped, or its home lost it. Left, unless
    `unknown_too`."""
    problems: dict[str, str] = field(default_factory=dict)
    """Why a slice could not be looked at the last time, by slice."""


class Sweeper:
    """Finds parts that drops left behind, and drops them. `dropping` False: only finds them. `unknown_too`: also drops
    parts that their home does not know; a home that began with empty or old data may have lost the queue. `on_drop` is
    called with each part that was dropped, or would be."""

    def __init__(
        self,
        parts: Parts,
        *,
        pause_s: float = SWEEP_PAUSE_S,
        dropping: bool = True,
        unknown_too: bool = False,
        on_drop: Callable[[Part], None] = lambda part: None,
    ) -> None:
        self.figures = SweepFigures()
        self._parts = parts
        self._pause_s = pause_s
        self._dropping = dropping
        self._on_drop = on_drop
        self._suspects = Suspects(SWEEP_SUSPECTS_MAX, pause_s, unknown_too)
        self._after: dict[str, bytes] = {}
        """Where each slice's next page begins; a slice that is not in it begins anew."""

    async def once(self) -> None:
        """Looks at all parts once and, after the pause, again at those that seemed left behind. Drops those that
        are."""
        self._suspects.follow_map(self._parts.map_version)
        for slice_name in self._parts.slices:
            await self._next_page(slice_name)
            while slice_name in self._after:
                await self._next_page(slice_name)
        if len(self._suspects):
            await asyncio.sleep(self._pause_s)
        while due := self._suspects.due(asyncio.get_running_loop().time(), SWEEP_NAMES):
            await self._look_again(due)

    async def for_ever(self) -> NoReturn:
        """Looks at one page of each slice every SWEEP_EVERY_S, and takes as many second looks as are due."""
        while True:
            await asyncio.sleep(SWEEP_EVERY_S)
            try:
                await self.turn()
            except Exception:
                _log.exception(
                    "the sweep of what drops left behind failed, and goes on with the next page: please report this"
                )

    async def turn(self) -> None:
        """Looks at one page of each slice, and takes the second looks that are due."""
        self._suspects.follow_map(self._parts.map_version)
        for slice_name in self._parts.slices:
            await self._next_page(slice_name)
        due = self._suspects.due(asyncio.get_running_loop().time(), SWEEP_NAMES)
        if due:
            await self._look_again(due)

    async def _next_page(self, slice_name: str) -> None:
        after = self._after.pop(slice_name, b"")
        try:
            names, following = await self._parts.page(slice_name, after, SWEEP_NAMES, deadline_s=SWEEP_DEADLINE_S)
            away = [name for name in names if self._parts.home_of(name) != slice_name]
            if away:
                await self._look(slice_name, away)
        except ShoalError as error:
            self.figures.problems[slice_name] = error.message
            return
        self.figures.problems.pop(slice_name, None)
        if following:
            self._after[slice_name] = following

    async def _look(self, slice_name: str, queues: list[bytes]) -> None:
        parts = await self._parts.look(slice_name, queues, deadline_s=SWEEP_DEADLINE_S)
        # Homes are asked after the parts, so their answers are newer.
        homes = await self._parts.at_homes([part.queue for part in parts], deadline_s=SWEEP_DEADLINE_S)
        self.figures.looked += len(parts)
        self.figures.doubtful += sum(is_doubtful(part, homes) for part in parts)
        self.figures.unknown += sum(is_unknown(part, homes) for part in parts)
        self._suspects.found(parts, homes, asyncio.get_running_loop().time())

    async def _look_again(self, due: list[Part]) -> None:
        for slice_name in dict.fromkeys(part.slice for part in due):
            again = [part for part in due if part.slice == slice_name]
            queues = list(dict.fromkeys(part.queue for part in again))
            try:
                parts = await self._parts.look(slice_name, queues, deadline_s=SWEEP_DEADLINE_S)
                homes = await self._parts.at_homes(queues, deadline_s=SWEEP_DEADLINE_S)
                for part in self._suspects.settle(again, parts, homes):
                    await self._drop(part)
            except ShoalError as error:
                self.figures.problems[slice_name] = error.message
                self._suspects.settle(again, (), {})  # Found again in the next round.

    async def _drop(self, part: Part) -> None:
        if self._dropping and not await self._parts.drop(part, deadline_s=SWEEP_DEADLINE_S):
            return
        if self._dropping:
            _log.info("slice %s: dropped what an earlier drop of queue %s left there", part.slice, show(part.queue))
        self.figures.dropped += 1
        self._on_drop(part)
