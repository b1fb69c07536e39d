"""Configures keys, each at the slice that owns it; gives queues farewells, at their homes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import random

from shoal.core.backoff import Backoff
from shoal.core.requests import ConfigureRequest, FarewellRequest, QueueRequest
from shoal.limits import DECLARES_AT_ONCE_MAX
from shoal.routing import Routing
from shoal.waiting import remaining_s
from shoal_contract.errors import MapOrLeaderChanged, ShoalError
from shoal_contract.names import direct_key
from shoal_contract.options import KeyOptions


class KeyCalls:
    """Configures keys, and gives farewells. `deadline`: event loop time."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    async def configure(self, keys: Sequence[bytes], options: KeyOptions, deadline: float) -> None:
        """Gives keys these options. Each key is done by itself: if one fails, the others are done all the same, and the
        first error is raised. Raises DeadlineExceeded: outcome unknown."""
        for start in range(0, len(keys), DECLARES_AT_ONCE_MAX):
            some = list(keys[start : start + DECLARES_AT_ONCE_MAX])
            await self._at_owners(some, lambda key: ConfigureRequest(key, options, deadline), deadline)

    async def farewell(self, queue: bytes, key: bytes, chunk: bytes, after_s: int, deadline: float) -> None:
        """Gives a queue a farewell; with an empty key and chunk, takes it back. Raises NoSuchQueue; DeadlineExceeded:
        outcome unknown."""
        home = [direct_key(queue)]
        await self._at_owners(home, lambda _: FarewellRequest(queue, key, chunk, after_s, deadline), deadline)

    async def _at_owners(self, keys: list[bytes], make: Callable[[bytes], QueueRequest], deadline: float) -> None:
        """Asks the owner of each key for what `make` returns; again where the key has moved."""
        backoff = Backoff(random)
        first_error: ShoalError | None = None
        while keys:
            current = self._routing.map.current
            asked = [(current.owner_of(key), make(key)) for key in keys]
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
