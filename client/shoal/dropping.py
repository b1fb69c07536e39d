"""Drops queues at their homes first, then everywhere else, in one life; and drops what earlier drops left behind.

A queue is gone once its home has dropped it: no slice is given a new part of that life (binding_calls.py asks the home
after it made one). A drop that stops between the home and the others leaves parts. While the connection lives, slices
that did not answer, or refused, are asked again; else `shoal sweep` finds the parts, and so does dropping the queue
again: with one life goes what is left of earlier ones.

With conditions, all slices are asked first: a queue stays if it is used, or has a backlog, on any of them. Then its
home drops it if the conditions hold there, in one step. Not here: what the conditions mean on one slice (slice.proto).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from shoal.core.known_queues import KnownQueues, Life, same_life
from shoal.core.merging import consumed
from shoal.core.refusals import in_use, no_such_queue, not_empty
from shoal.core.requests import Conditions, DropRequest, DropsRequest, drops_at_once
from shoal.homes import Homes, life_in
from shoal.limits import (
    HOME_QUESTION_QUEUES_MAX,
    LEFTOVERS_AT_ONCE_MAX,
    PARTS_LEFT_AGAIN_S,
    PARTS_LEFT_ASK_S,
    PARTS_LEFT_MAX,
)
from shoal.routing import Routing
from shoal_contract.errors import NoSuchQueue, OutcomeUnknown, ResourceExhausted, ShoalError
from shoal_contract.names import show
from shoal_contract.wire import slice_pb2 as wire

_Errors = dict[bytes, ShoalError]
_Lives = dict[bytes, int]
"""Queue -> its incarnation, 0: not known."""


_NO_ANSWER = OutcomeUnknown("the call ended before the slice answered")


class Dropping:
    """Drops queues. `deadline`: event loop time."""

    def __init__(self, routing: Routing, homes: Homes, known: KnownQueues) -> None:
        self._routing = routing
        self._homes = homes
        self._known = known
        self._left: dict[bytes, set[str]] = {}
        """Queue -> the slices that are asked again to end their parts of it."""
        self._left_count = 0
        self._ending = False

    async def drop(self, queues: Sequence[bytes], conditions: Conditions, deadline: float) -> _Errors:
        """Drops each queue by itself. Returns the errors of those that were not dropped: NoSuchQueue if there is no
        part, Conflict; if a slice does not answer, an error that says what is left."""
        lives = self._known_lives(queues)
        failed: _Errors = {}
        if any(conditions) and len(self._routing.map.current.slices) > 1:
            lives, failed = await self._look_everywhere(queues, conditions, deadline)
        dropped, at_homes = await self._drop_at_homes(
            [one for one in queues if one not in failed], lives, conditions, deadline
        )
        gone = [queue for queue, error in at_homes.items() if isinstance(error, NoSuchQueue)]
        failed |= at_homes
        for some in _pieces(gone, LEFTOVERS_AT_ONCE_MAX):
            places = {queue: self._others(queue) for queue in some}
            for queue, error in (await self._drop_leftovers_of(places, deadline)).items():
                failed.pop(queue)
                if error is not None:
                    failed[queue] = error
        failed |= await self._drop_elsewhere(dropped, deadline)
        return failed

    def _known_lives(self, queues: Sequence[bytes]) -> _Lives:
        """Returns the lives that are known, and forgets them."""
        now = asyncio.get_running_loop().time()
        lives: _Lives = {}
        for queue in queues:
            life = self._known.life_of(queue, now)
            if life is not None:
                lives[queue] = life.incarnation
                self._known.forget(queue)
        return lives

    async def _drop_at_homes(
        self, queues: Sequence[bytes], lives: _Lives, conditions: Conditions, deadline: float
    ) -> tuple[_Lives, _Errors]:
        """Drops queues at their homes: those in `lives` in this life, others in whichever they have. Returns the lives
        that ended, and the errors."""
        dropped: _Lives = {}
        failed: _Errors = {}
        left = list(queues)
        while left:
            by_home: dict[str, list[bytes]] = {}
            for queue in left:
                by_home.setdefault(self._homes.home_of(queue), []).append(queue)
            answers = await self._ask(by_home, lives, conditions, deadline)
            before, left = len(left), []
            for (_, queue), answer in answers.items():
                if isinstance(answer, ResourceExhausted) and conditions.if_empty:
                    left.append(queue)  # A slice looks at so many bindings in one change.
                    failed[queue] = answer
                elif isinstance(answer, ShoalError):
                    failed[queue] = answer
                else:
                    failed.pop(queue, None)
                    dropped[queue] = answer
            if len(left) == before:
                break
        return dropped, failed

    async def _ask(
        self, by_slice: dict[str, list[bytes]], lives: _Lives, conditions: Conditions, deadline: float
    ) -> dict[tuple[str, bytes], Any]:
        """Asks slices to drop queues. Returns for each (slice, queue) the incarnation that ended, or the error."""
        asked: list[tuple[str, Sequence[bytes]]] = []
        requests: list[tuple[str, DropRequest | DropsRequest]] = []
        for name, queues in by_slice.items():
            if len(queues) == 1:
                asked.append((name, queues))
                requests.append((name, DropRequest(queues[0], lives.get(queues[0], 0), deadline, conditions)))
                continue
            for some in _pieces(queues, drops_at_once(conditions)):
                incarnations = [lives.get(queue, 0) for queue in some]
                request = DropsRequest(some, incarnations if any(incarnations) else (), deadline, conditions)
                asked.append((name, some))
                requests.append((name, request))
        answers: dict[tuple[str, bytes], Any] = {}
        for (name, names), result in zip(asked, await self._routing.ask(requests), strict=True):
            each = [result] * len(names) if isinstance(result, ShoalError) else result
            answers.update(zip(((name, queue) for queue in names), each, strict=True))
        return answers

    async def _drop_elsewhere(self, dropped: _Lives, deadline: float) -> _Errors:
        """Drops the parts that queues dropped at their homes have on other slices."""
        by_slice: dict[str, list[bytes]] = {}
        for queue in dropped:
            for name in self._others(queue):
                by_slice.setdefault(name, []).append(queue)
        answers: dict[tuple[str, bytes], Any] = {}
        try:
            answers = await self._ask(by_slice, dropped, Conditions(), deadline)
        finally:
            self._end_later(
                (queue, name)
                for name, queues in by_slice.items()
                for queue in queues
                if _may_be_left(answers.get((name, queue), _NO_ANSWER))
            )
        earlier: dict[bytes, list[str]] = {}
        results: dict[bytes, dict[str, Any]] = {}
        for (name, queue), answer in answers.items():
            if isinstance(answer, NoSuchQueue) and answer.value:
                earlier.setdefault(queue, []).append(name)
            elif isinstance(answer, ShoalError):
                results.setdefault(queue, {})[name] = answer
        for some in _pieces(list(earlier), LEFTOVERS_AT_ONCE_MAX):
            found = await self._drop_leftovers_of({queue: earlier[queue] for queue in some}, deadline)
            for queue, error in found.items():
                if error is not None:
                    results.setdefault(queue, {})[", ".join(earlier[queue])] = error
        errors = {queue: _what_is_left(queue, list(one.items())) for queue, one in results.items()}
        return {queue: error for queue, error in errors.items() if error is not None}

    def _others(self, queue: bytes) -> list[str]:
        home = self._homes.home_of(queue)
        return [name for name in self._routing.map.current.slices if name != home]

    def _end_later(self, parts: Iterable[tuple[bytes, str]]) -> None:
        """Asks slices that did not answer, or refused, again, in the background: a queue that is declared anew would
        give its consumers what they keep."""
        for queue, name in islice(parts, PARTS_LEFT_MAX - self._left_count):
            names = self._left.setdefault(queue, set())
            self._left_count += name not in names
            names.add(name)
        if self._left and not self._ending:
            self._ending = True
            self._routing.in_background("drop", self._end_left())

    async def _end_left(self) -> None:
        """Runs until nothing is left, with a pause before each round."""
        try:
            while self._left and not self._routing.closed:
                await asyncio.sleep(PARTS_LEFT_AGAIN_S)
                deadline = asyncio.get_running_loop().time() + PARTS_LEFT_ASK_S
                for some in _pieces(list(self._left), LEFTOVERS_AT_ONCE_MAX):
                    places = {queue: list(self._left[queue]) for queue in some}
                    found = await self._drop_leftovers_of(places, deadline, later=False)
                    for queue, error in found.items():
                        if not _may_be_left(error):
                            self._forget_left(queue, places[queue])
        finally:
            self._ending = False

    def _forget_left(self, queue: bytes, names: Sequence[str]) -> None:
        left = self._left.get(queue, set())
        self._left_count -= len(left.intersection(names))
        left.difference_update(names)
        if not left:
            self._left.pop(queue, None)

    async def _look_everywhere(
        self, queues: Sequence[bytes], conditions: Conditions, deadline: float
    ) -> tuple[_Lives, _Errors]:
        """Asks all slices about the queues. Returns the lives that their homes know, and the errors of those that are
        used, or have a backlog, somewhere; or of which a slice did not tell."""
        lives: _Lives = {}
        failed: _Errors = {}
        slices = self._routing.map.current.slices
        for some in _pieces(queues, HOME_QUESTION_QUEUES_MAX):
            found = await asyncio.gather(*(self._routing.describing.describe(name, some, deadline) for name in slices))
            for number, queue in enumerate(some):
                parts: dict[str, Any] = {name: part[number] for name, part in zip(slices, found, strict=True)}
                errors = [one for one in parts.values() if isinstance(one, ShoalError)]
                if errors:
                    failed[queue] = errors[0]
                    continue
                home = parts[self._homes.home_of(queue)]
                if not home.exists:
                    continue  # The home says so once more.
                lives[queue] = home.incarnation
                living = [
                    (name, part)
                    for name, part in parts.items()
                    if part.exists and same_life(part.incarnation, home.incarnation)
                ]
                error = _refusal(queue, living, conditions)
                if error is not None:
                    failed[queue] = error
        return lives, failed

    async def _drop_leftovers_of(
        self, places: dict[bytes, list[str]], deadline: float, *, later: bool = True
    ) -> dict[bytes, ShoalError | None]:
        """Drops what is left of queues at these slices. Returns the errors. `later`: slices that fail are asked again
        in the background."""
        results = await asyncio.gather(*(self._drop_leftovers(*place, deadline) for place in places.items()))
        found = dict(zip(places, results, strict=True))
        if later:
            self._end_later((one, name) for one, names in places.items() if _may_be_left(found[one]) for name in names)
        return found

    async def _drop_leftovers(self, queue: bytes, others: Sequence[str], deadline: float) -> ShoalError | None:
        """Drops the parts of a queue that its home does not know, at the slices `others`. Looks at the parts first and
        asks the home again after that, so that parts of a newer life, which the home knows by then, are left alone.
        Returns the error."""
        found = await asyncio.gather(*(self._part_at(name, queue, deadline) for name in others))
        parts = {name: part for name, part in zip(others, found, strict=True) if isinstance(part, Life)}
        try:
            life = await self._homes.life_of(queue, deadline) if parts else None
        except ShoalError as error:
            return error
        ended = {
            name: part
            for name, part in parts.items()
            if life is None or not same_life(life.incarnation, part.incarnation)
        }
        requests = [(name, DropRequest(queue, part.incarnation, deadline)) for name, part in ended.items()]
        results = await self._routing.ask(requests)
        left = _what_is_left(queue, list(zip([*others, *ended], [*found, *results], strict=True)))
        if left is None and all(isinstance(result, NoSuchQueue) for result in results):
            return no_such_queue(queue)
        return left

    async def _part_at(self, slice_name: str, queue: bytes, deadline: float) -> Life | ShoalError | None:
        try:
            answer = await self._routing.session(slice_name).ask(wire.Describe(queues=[queue]), deadline)
        except ShoalError as error:
            return error
        return life_in(answer.description.queues[0])


def _may_be_left(answer: object) -> bool:
    """Returns whether a slice, by its answer to a drop, may have a part that is to end."""
    return isinstance(answer, ShoalError) and not isinstance(answer, NoSuchQueue)


def _pieces(queues: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    return (queues[start : start + size] for start in range(0, len(queues), size))


def _refusal(
    queue: bytes, parts: Sequence[tuple[str, wire.QueueDescription]], conditions: Conditions
) -> ShoalError | None:
    for name, part in parts:
        if conditions.if_unused and consumed(part):
            return in_use(queue, name)
        if conditions.if_empty and part.messages:
            return not_empty(queue, part.messages, name)
    return None


def _what_is_left(queue: bytes, results: Sequence[tuple[str, Any]]) -> ShoalError | None:
    """Returns the error of a queue that is gone at its home, and perhaps not on the slices that failed."""
    failed = {
        name: result
        for name, result in results
        if isinstance(result, ShoalError) and not isinstance(result, NoSuchQueue)
    }
    if not failed:
        return None
    where, first = ", ".join(failed), next(iter(failed.values()))
    return type(first)(
        f"queue {show(queue)} is dropped, but slice {where} did not say so of its part ({first.message}): it is asked"
        f" again while this connection lives, for up to {PARTS_LEFT_MAX} such parts; what is left otherwise is found"
        " by `shoal sweep`, and is given to consumers of a queue that is declared anew before",
        subject=show(queue),
    )
