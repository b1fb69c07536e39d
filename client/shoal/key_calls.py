"""Configures keys, each at the slice that owns it."""

from __future__ import annotations

from collections.abc import Sequence
from random import random

from shoal.core.backoff import Backoff
from shoal.core.requests import ConfigureRequest
from shoal.limits import DECLARES_AT_ONCE_MAX
from shoal.routing import Routing
from shoal_contract.errors import MapOrLeaderChanged, ShoalError
from shoal_contract.options import KeyOptions


class KeyCalls:
    """Configures keys. `deadline`: event loop time."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    async def configure(self, keys: Sequence[bytes], options: KeyOptions, deadline: float) -> dict[bytes, ShoalError]:
        """Gives keys these options, each by itself. Returns those that failed. DeadlineExceeded: outcome unknown."""
        failed: dict[bytes, ShoalError] = {}
        for start in range(0, len(keys), DECLARES_AT_ONCE_MAX):
            failed |= await self._configure(list(keys[start : start + DECLARES_AT_ONCE_MAX]), options, deadline)
        return failed

    async def _configure(self, keys: list[bytes], options: KeyOptions, deadline: float) -> dict[bytes, ShoalError]:
        backoff = Backoff(random)
        failed: dict[bytes, ShoalError] = {}
        while keys:
            current = self._routing.map.current
            asked = [(current.owner_of(key), ConfigureRequest(key, options, deadline)) for key in keys]
            moved: dict[bytes, MapOrLeaderChanged] = {}
            for key, result in zip(keys, await self._routing.ask(asked), strict=True):
                if isinstance(result, MapOrLeaderChanged):
                    moved[key] = result
                elif isinstance(result, ShoalError):
                    failed[key] = result
            keys = list(moved)
            if moved:
                try:
                    await self._routing.newer_map(current.version, list(moved.values()), backoff, deadline)
                except ShoalError as error:
                    return failed | dict.fromkeys(moved, error)
        return failed
