"""Calls about queues: declare, bind, unbind, drop, purge, describe. With parts on several slices it is one queue here.

The home slice (owner of the direct key) knows whether a queue exists. A bind at a slice that has no part of the queue
yet is refused with NoSuchQueue; then the home is asked, the part declared with the same options, the bind repeated.
Options seen lately are remembered, so that most first binds go out together with the declare of their part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from shoal.backoff import Backoff
from shoal.known_queues import KnownQueues
from shoal.limits import DECLARES_AT_ONCE_MAX
from shoal.merging import merge_descriptions
from shoal.messages import QueueDescription
from shoal.requests import DeclareRequest, DropRequest, PurgeRequest, QueueRequest
from shoal.routing import Routing
from shoal.waiting import no_such_queue, remaining_s
from shoal_contract.errors import MapOrLeaderChanged, NoSuchQueue, ShoalError, TooLarge
from shoal_contract.limits import FRAME_OPERATIONS_MAX
from shoal_contract.names import Name, direct_key
from shoal_contract.wire import slice_pb2 as wire

MakeRequest = Callable[[Sequence[bytes]], QueueRequest]


class QueueCalls:
    """`deadline`: event loop time. All raise DeadlineExceeded (outcome unknown) besides what is named."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._known = KnownQueues()

    async def declare(self, queues: Sequence[bytes], expires_after_s: int, deadline: float) -> None:
        """Raises Conflict where a queue exists with other options; the other queues are declared."""
        first_error: ShoalError | None = None
        for start in range(0, len(queues), DECLARES_AT_ONCE_MAX):
            some = queues[start : start + DECLARES_AT_ONCE_MAX]
            homes = [self._home(queue) for queue in some]
            requests = [DeclareRequest(queue, expires_after_s, deadline) for queue in some]
            for queue, home, result in zip(
                some, homes, await self._ask(zip(homes, requests, strict=True)), strict=True
            ):
                if isinstance(result, ShoalError):
                    first_error = first_error or result
                else:
                    self._known.declared(queue, expires_after_s, home, asyncio.get_running_loop().time())
        if first_error is not None:
            raise first_error

    async def change_bindings(
        self, queue: bytes, keys: Sequence[bytes], make: MakeRequest, *, makes_parts: bool, deadline: float
    ) -> dict[bytes, int]:
        """Binds or unbinds, atomically at each slice. Key -> offset. Raises NoSuchQueue, TooLarge."""
        offsets: dict[bytes, int] = {}
        backoff = Backoff()
        left = list(dict.fromkeys(keys))
        while left:
            version = self._routing.map.current.version
            groups = self._by_owner(left)
            results = await self._change_groups(queue, groups, make, makes_parts, deadline)
            moved = [result for result in results if isinstance(result, MapOrLeaderChanged)]
            left = []
            for group, result in zip(groups.values(), results, strict=True):
                if isinstance(result, MapOrLeaderChanged):
                    left += group
                elif isinstance(result, ShoalError):
                    raise result
                else:
                    offsets.update(zip(group, result or [0] * len(group), strict=True))
            if moved:
                await self._newer_map(version, moved, backoff, deadline)
        return offsets

    async def drop(self, queue: bytes, deadline: float) -> None:
        """At the home first, so that no slice is given a new part meanwhile. Raises NoSuchQueue if there is no part."""
        self._known.forget(queue)
        home = self._home(queue)
        others = [name for name in self._routing.map.current.slices if name != home]
        results = await self._ask([(home, DropRequest(queue, deadline))])
        if not isinstance(results[0], ShoalError) or isinstance(results[0], NoSuchQueue):
            results += await self._ask([(name, DropRequest(queue, deadline)) for name in others])
        for result in results:
            if isinstance(result, ShoalError) and not isinstance(result, NoSuchQueue):
                raise result
        if all(isinstance(result, NoSuchQueue) for result in results):
            raise no_such_queue(queue)

    async def purge(self, queue: bytes, deadline: float) -> int:
        """On every slice that has a part, in as many requests as it takes. Messages dropped. Raises NoSuchQueue."""
        positions = dict.fromkeys(self._routing.map.current.slices, 0)
        dropped = missing = 0
        slices = len(positions)
        while positions:
            asked = [(name, PurgeRequest(queue, position, deadline)) for name, position in positions.items()]
            for (name, _), result in zip(asked, await self._ask(asked), strict=True):
                del positions[name]
                if isinstance(result, NoSuchQueue):
                    missing += 1
                elif isinstance(result, ShoalError):
                    raise result
                else:
                    dropped += result[0]
                    if result[1]:
                        positions[name] = result[1]
        if missing == slices:
            raise no_such_queue(queue)
        return dropped

    async def describe(self, name: Name, queue: bytes, bindings: bool, deadline: float) -> QueueDescription:
        question = wire.Describe(queues=[queue], bindings=bindings)
        sessions = [self._routing.session(slice_name) for slice_name in self._routing.map.current.slices]
        frames = [await session.asked(question, deadline) for session in sessions]
        answers = [await frame.future for frame in frames]
        return merge_descriptions(name, [answer.description.queues[0] for answer in answers])

    async def _change_groups(
        self,
        queue: bytes,
        groups: dict[str, list[bytes]],
        make: MakeRequest,
        makes_parts: bool,
        deadline: float,
    ) -> list[Any]:
        """What each slice answers: offsets or an error."""
        asked: list[tuple[str, QueueRequest]] = []
        ahead: list[tuple[str, QueueRequest]] = []
        for slice_name, keys in groups.items():
            _check_keys(keys)
            options = self._known.options_of(queue, asyncio.get_running_loop().time()) if makes_parts else None
            if options is not None and not self._known.has_part(queue, slice_name):
                ahead.append((slice_name, DeclareRequest(queue, options, deadline)))
            asked.append((slice_name, make(keys)))
        results = (await self._ask([*ahead, *asked]))[len(ahead) :]
        for index, (slice_name, request) in enumerate(asked):
            if isinstance(results[index], NoSuchQueue) and slice_name != self._home(queue):
                results[index] = await self._change_without_part(
                    queue, slice_name, make(request.keys) if makes_parts else None, deadline
                )
            if isinstance(results[index], NoSuchQueue):
                self._known.forget(queue)
            elif makes_parts and not isinstance(results[index], ShoalError):
                self._known.part_seen(queue, slice_name)
        return results

    async def _change_without_part(
        self, queue: bytes, slice_name: str, request: QueueRequest | None, deadline: float
    ) -> Any:
        """The slice has no part of the queue: if its home has it, declares the part and asks again.

        Without a `request` (an unbind) there is nothing to do: where there is no part nothing is bound.
        """
        question = wire.Describe(queues=[queue])
        home = self._home(queue)
        answer = await self._routing.session(home).ask(question, deadline)
        description = answer.description.queues[0]
        if not description.exists:
            return no_such_queue(queue)
        if request is None:
            return None
        options = description.options.expires_after_s
        self._known.declared(queue, options, home, asyncio.get_running_loop().time())
        declare = DeclareRequest(queue, options, deadline)
        declared, result = await self._ask([(slice_name, declare), (slice_name, request)])
        return declared if isinstance(declared, ShoalError) else result

    async def _ask(self, requests: Iterable[tuple[str, QueueRequest]]) -> list[Any]:
        """Each request's offsets, or its error. If the caller leaves, what was not sent yet is not sent."""
        asked: list[QueueRequest] = []
        try:
            for slice_name, request in requests:
                asked.append(request)
                await self._routing.submit(slice_name, request)
            return [await _result(request.future) for request in asked]
        except BaseException:
            for request in asked:
                request.future.cancel()
            raise

    async def _newer_map(self, version: int, errors: Sequence[ShoalError], backoff: Backoff, deadline: float) -> None:
        """Until there may be a better map than `version`, which a slice refused; a bounded time."""
        wait_s = min(backoff.pause_s(), remaining_s(deadline, errors[0].message))
        needed = max(version, *(error.map_version - 1 for error in errors))
        self._routing.map.suspect()
        await self._routing.map.newer_than(needed, wait_s)

    def _home(self, queue: bytes) -> str:
        return self._routing.map.current.owner_of(direct_key(queue))

    def _by_owner(self, keys: Sequence[bytes]) -> dict[str, list[bytes]]:
        owner_of = self._routing.map.current.owner_of
        groups: dict[str, list[bytes]] = {}
        for key in keys:
            groups.setdefault(owner_of(key), []).append(key)
        return groups


async def _result(future: asyncio.Future[Any]) -> Any:
    try:
        return await future
    except ShoalError as error:
        return error


def _check_keys(keys: Sequence[bytes]) -> None:
    if len(keys) > FRAME_OPERATIONS_MAX:
        raise TooLarge(
            f"keys of one slice in one call: {len(keys)}; the limit is {FRAME_OPERATIONS_MAX}",
            subject="keys",
            limit=FRAME_OPERATIONS_MAX,
            value=len(keys),
        )
