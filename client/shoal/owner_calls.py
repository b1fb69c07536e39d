"""Configures keys, each at the slice that owns it; gives queues farewells, at their homes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import random

from shoal.core.backoff import Backoff
from shoal.core.requests import ConfigureRequest, FarewellRequest, QueueRequest
from shoal.limits import DECLARES_AT_ONCE_MAX
from shoal.routing import Routing
from shoal_contract.errors import MapOrLeaderChanged, ShoalError
from shoal_contract.names import direct_key
from shoal_contract.options import KeyOptions


class OwnerCalls:
    """Asks the slice that owns a key, or is the home of a queue. `deadline`: event loop time."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing

    async def configure(self, keys: Sequence[bytes], options: KeyOptions, deadline: float) -> dict[bytes, ShoalError]:
        """Gives keys these options, each by itself. Returns those that failed. DeadlineExceeded: outcome unknown."""
        failed: dict[bytes, ShoalError] = {}
        for start in range(0, len(keys), DECLARES_AT_ONCE_MAX):
            some = list(keys[start : start + DECLARES_AT_ONCE_MAX])
            failed |= await self._at_owners(some, lambda key: ConfigureRequest(key, options, deadline), deadline)
        return failed

    async def farewell(self, queue: bytes, key: bytes, chunk: bytes, after_s: int, deadline: float) -> None:
        """Gives a queue a farewell; with an empty key and chunk, takes it back. Raises NoSuchQueue; DeadlineExceeded:
        outcome unknown."""
        home = [direct_key(queue)]
        failed = await self._at_owners(home, lambda _: FarewellRequest(queue, key, chunk, after_s, deadline), deadline)
        for error in failed.values():
            raise error

    async def _at_owners(
        self, keys: list[bytes], make: Callable[[bytes], QueueRequest], deadline: float
    ) -> dict[bytes, ShoalError]:
        """Asks the owner of each key for what `make` returns; again where the key has moved. Returns those that
        failed."""
        backoff = Backoff(random)
        failed: dict[bytes, ShoalError] = {}
        while keys:
            current = self._routing.map.current
            asked = [(current.owner_of(key), make(key)) for key in keys]
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
