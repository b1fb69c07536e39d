"""Binds and unbinds, atomically at each slice, and makes the parts of queues that a bind needs.

A bind at a slice that has no part of the queue is refused with NoSuchQueue. Then the home is asked, the part is
declared with the home's options and incarnation, and the bind is repeated. For queues known lately this is not needed:
the declare goes ahead in the bind's own frame.

In both cases the queue may have been dropped meanwhile: the drop may have passed this slice before the part was made.
So after a part was made, the home is asked, once for all parts of the call, whether the queue still exists in that
life. If it does, a drop that comes later finds the part. If it does not, the part is dropped again, by its incarnation,
so that a newer life is never harmed. Then the call fails with NoSuchQueue, or begins anew with the new life.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import random
from typing import Any

from shoal.core.backoff import Backoff
from shoal.core.known_queues import KnownQueues, Life, same_life
from shoal.core.refusals import no_such_queue
from shoal.core.requests import DeclareRequest, DropRequest, QueueRequest
from shoal.homes import Homes
from shoal.limits import GATHER_OPERATIONS_MAX
from shoal.routing import Routing
from shoal.waiting import remaining_s
from shoal_contract.errors import Conflict, MapOrLeaderChanged, NoSuchQueue, ShoalError, TooLarge

MakeRequest = Callable[[Sequence[bytes]], QueueRequest]
ChangeGroups = Callable[[bytes, dict[str, list[bytes]], MakeRequest, float], Awaitable[dict[str, Any]]]


class BindingCalls:
    """Binds and unbinds queues. `deadline`: event loop time.

    All calls raise DeadlineExceeded (outcome unknown) besides the errors that they name.
    """

    def __init__(self, routing: Routing, homes: Homes, known: KnownQueues) -> None:
        self._routing = routing
        self._homes = homes
        self._known = known

    def bind(
        self, queue: bytes, keys: Sequence[bytes], make: MakeRequest, deadline: float
    ) -> Coroutine[Any, Any, dict[bytes, int]]:
        """Returns key -> offset. Raises NoSuchQueue, OutOfRange, TooLarge."""
        return self._change(self._bind_groups, queue, keys, make, deadline)

    def unbind(
        self, queue: bytes, keys: Sequence[bytes], make: MakeRequest, deadline: float
    ) -> Coroutine[Any, Any, dict[bytes, int]]:
        """Returns key -> offset; 0 at a slice without a part of the queue, where nothing is bound. Raises NoSuchQueue,
        TooLarge."""
        return self._change(self._unbind_groups, queue, keys, make, deadline)

    async def _change(
        self, change: ChangeGroups, queue: bytes, keys: Sequence[bytes], make: MakeRequest, deadline: float
    ) -> dict[bytes, int]:
        """Changes the keys, grouped by slice. Keys that a slice no longer owns, or that must be done again, are grouped
        anew."""
        offsets: dict[bytes, int] = {}
        backoff = Backoff(random)
        left = list(keys)
        while left:
            version = self._routing.map.current.version
            groups = self._by_owner(left)
            results = await change(queue, groups, make, deadline)
            moved = [result for result in results.values() if isinstance(result, MapOrLeaderChanged)]
            left = []
            for slice_name, group in groups.items():
                result = results[slice_name]
                if result is AGAIN or isinstance(result, MapOrLeaderChanged):
                    left += group
                elif isinstance(result, ShoalError):
                    raise result
                else:
                    offsets.update(zip(group, result, strict=True))
            if moved:
                await self._routing.newer_map(version, moved, backoff, deadline)
            elif left:
                remaining_s(deadline, "bindings")
        return offsets

    async def _unbind_groups(
        self, queue: bytes, groups: dict[str, list[bytes]], make: MakeRequest, deadline: float
    ) -> dict[str, Any]:
        results = await self._ask_groups(groups, make)
        missing = [name for name, result in results.items() if isinstance(result, NoSuchQueue)]
        home = self._homes.home_of(queue)
        if missing and home not in missing and await self._homes.life_of(queue, deadline) is not None:
            results |= {name: [0] * len(groups[name]) for name in missing}
        return results

    async def _bind_groups(
        self, queue: bytes, groups: dict[str, list[bytes]], make: MakeRequest, deadline: float
    ) -> dict[str, Any]:
        """Returns each slice's answer: offsets, an error, or AGAIN."""
        made: dict[str, Life] = {}
        unknown = [name for name in groups if not self._known.has_part(queue, name)]
        if unknown:
            results = await self._bind_with_unknown(queue, groups, make, unknown, made, deadline)
        else:
            results = await self._ask_groups(groups, make)
        missing = [name for name, result in results.items() if isinstance(result, NoSuchQueue)]
        if not unknown and not missing:
            return results
        home = self._homes.home_of(queue)
        if missing:
            self._known.forget(queue)
        if missing and home not in missing:
            life = await self._homes.life_of(queue, deadline)
            if life is not None:
                self._known.declared(queue, life, home, asyncio.get_running_loop().time())
                again = {name: groups[name] for name in missing}
                results |= await self._bind_with_parts(queue, again, make, missing, life, made, deadline)
        if made and not await self.still_lives(queue, made, deadline):
            results |= dict.fromkeys(made, AGAIN)
        for name in {*unknown, *missing}:
            if not isinstance(results[name], ShoalError) and results[name] is not AGAIN:
                self._known.part_seen(queue, name)
        return results

    async def _bind_with_unknown(
        self,
        queue: bytes,
        groups: dict[str, list[bytes]],
        make: MakeRequest,
        unknown: Sequence[str],
        made: dict[str, Life],
        deadline: float,
    ) -> dict[str, Any]:
        """Binds. Where a part may be missing, declares it first if the queue's life is known."""
        home = self._homes.home_of(queue)
        life = self._known.life_of(queue, asyncio.get_running_loop().time())
        parts = [name for name in unknown if name != home] if life else []
        return await self._bind_with_parts(queue, groups, make, parts, life, made, deadline)

    async def _bind_with_parts(
        self,
        queue: bytes,
        groups: dict[str, list[bytes]],
        make: MakeRequest,
        parts: Sequence[str],
        life: Life | None,
        made: dict[str, Life],
        deadline: float,
    ) -> dict[str, Any]:
        """Binds, and declares the part first at the slices in `parts`. Puts the slices that took it into `made`."""
        declares = [(name, DeclareRequest(queue, life.options, life.incarnation, deadline)) for name in parts if life]
        binds = [(name, make(_checked(keys))) for name, keys in groups.items()]
        answers = await self._routing.ask([*declares, *binds])
        for (name, _), answer in zip(declares, answers, strict=False):
            if life is not None and not isinstance(answer, ShoalError):
                made[name] = life
            elif isinstance(answer, NoSuchQueue | Conflict):
                self._known.forget(queue)  # The life that was known is over.
        return dict(zip(groups, answers[len(declares) :], strict=True))

    async def still_lives(self, queue: bytes, made: dict[str, Life], deadline: float) -> bool:
        """Asks the home, now that the parts are made, whether the queue still has their life. Returns False if it has
        another life: then the parts of the old one are dropped, and the new one is known. Raises NoSuchQueue."""
        home = self._homes.home_of(queue)
        life = await self._homes.life_of(queue, deadline)
        ended = {
            name: part
            for name, part in made.items()
            if life is None or not same_life(life.incarnation, part.incarnation)
        }
        if not ended:
            return True
        self._known.forget(queue)
        # A part whose life is not known may be of a newer life: it is left for the next drop.
        drops = [
            (name, DropRequest(queue, part.incarnation, deadline)) for name, part in ended.items() if part.incarnation
        ]
        await self._routing.ask(drops)
        if life is None:
            raise no_such_queue(queue)
        self._known.declared(queue, life, home, asyncio.get_running_loop().time())
        return False

    async def _ask_groups(self, groups: dict[str, list[bytes]], make: MakeRequest) -> dict[str, Any]:
        asked = [(name, make(_checked(keys))) for name, keys in groups.items()]
        return dict(zip(groups, await self._routing.ask(asked), strict=True))

    def _by_owner(self, keys: Sequence[bytes]) -> dict[str, list[bytes]]:
        owner_of = self._routing.map.current.owner_of
        groups: dict[str, list[bytes]] = {}
        for key in keys:
            groups.setdefault(owner_of(key), []).append(key)
        return groups


class _Again:
    """Marks that the queue had another life than was known: the slice is asked once more."""


AGAIN = _Again()


def _checked(keys: Sequence[bytes]) -> Sequence[bytes]:
    if len(keys) > GATHER_OPERATIONS_MAX:
        raise TooLarge(
            f"keys of one slice in one call: {len(keys)}; the limit is {GATHER_OPERATIONS_MAX}",
            subject="keys",
            limit=GATHER_OPERATIONS_MAX,
            value=len(keys),
        )
    return keys
