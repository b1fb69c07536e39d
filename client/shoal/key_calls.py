"""Configures keys, each at the slice that owns it."""

from __future__ import annotations

from collections.abc import Sequence
from random import random

from shoal.core.backoff import Backoff
from shoal.core.requests import ConfigureRequest
from shoal.limits import DECLARES_AT_ONCE_MAX
from shoal.routing import Routing
from shoal.waiting import remaining_s
from shoal_contract.errors import MapOrLeaderChanged, ShoalError
from shoal_contract.options import KeyOptions


class KeyCalls:
    """Configures keys. `deadline`: event loop time."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    async def configure(self, keys: Sequence[bytes], options: KeyOptions, deadline: float) -> None:
        """Gives keys these options. Each key is done by itself: if one fails, the others are done all the same, and the
        first error is raised. Raises DeadlineExceeded: outcome unknown."""
        for start in range(0, len(keys), DECLARES_AT_ONCE_MAX):
            await self._configure(list(keys[start : start + DECLARES_AT_ONCE_MAX]), options, deadline)

    async def _configure(self, keys: list[bytes], options: KeyOptions, deadline: float) -> None:
        backoff = Backoff(random)
        first_error: ShoalError | None = None
        while keys:
            current = self._routing.map.current
            asked = [(current.owner_of(key), ConfigureRequest(key, options, deadline)) for key in keys]
            moved: list[tuple[bytes, MapOrLeaderChanged]] = []
            for key, result in zip(keys, await self._routing.ask(asked), strict=True):
                if isinstance(result, MapOrLeaderChanged):
                    moved.append((key, result))
                elif isinstance(result, ShoalError):
                    first_error = first_error or result
            keys = [key for key, _ in moved]
            if moved:
                wait_s = min(backoff.pause_s(), remaining_s(deadline, moved[0][1].message))
                needed = max(current.version, *(error.map_version - 1 for _, error in moved))
                self._routing.map.suspect()
                await self._routing.map.newer_than(needed, wait_s)
        if first_error is not None:
            raise first_error
