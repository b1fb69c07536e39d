"""Drops queues at their homes first, then everywhere else, in one life; and drops what earlier drops left behind.

A queue is gone once its home has dropped it: no slice is given a new part of that life (binding_calls.py asks the home
after it made one). A drop that stops between the home and the others leaves parts. While the connection lives, slices
that did not answer, or refused, are asked again (leftovers.py), and all others where the home's answer did not come;
else `shoal sweep` finds the parts, and so does dropping the queue again: with one life goes what is left of earlier
ones.

With conditions, all slices are asked first: a queue stays if it is used, or has a backlog, on any of them. Then its
home drops it if the conditions hold there, in one step. Not here: what the conditions mean on one slice (slice.proto).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from shoal.core.known_queues import KnownQueues, same_life
from shoal.core.merging import consumed
from shoal.core.refusals import in_use, no_queue_to_end, not_empty
from shoal.core.requests import Conditions, DropRequest, DropsRequest, drops_at_once
from shoal.homes import Homes
from shoal.leftovers import Leftovers, Place, may_be_left, pieces
from shoal.limits import HOME_QUESTION_QUEUES_MAX, PARTS_LEFT_MAX, PLACES_AT_ONCE_MAX
from shoal.routing import Routing
from shoal_contract.errors import Malformed, NoSuchQueue, OutcomeUnknown, ResourceExhausted, ShoalError
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
        self._leftovers = Leftovers(routing, homes)

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
        failed |= at_homes
        gone = [queue for queue, error in at_homes.items() if isinstance(error, NoSuchQueue)]
        for queue, answers in (await self._drop_elsewhere([*gone, *dropped], dropped, deadline)).items():
            error = _what_is_left(queue, answers)
            if error is not None:
                failed[queue] = error
            elif queue in at_homes and all(isinstance(answer, NoSuchQueue) for answer in answers.values()):
                failed[queue] = no_queue_to_end(queue)
            else:
                failed.pop(queue, None)
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
        to_ask = list(queues)
        while to_ask:
            by_home: dict[str, list[bytes]] = {}
            for queue in to_ask:
                by_home.setdefault(self._homes.home_of(queue), []).append(queue)
            try:
                answers = await self._ask(by_home, lives, conditions, deadline)
            except BaseException:  # The caller stops waiting. What is under way is done all the same.
                self._end_elsewhere_later([*dropped, *to_ask])
                raise
            before, to_ask = len(to_ask), []
            for (_, queue), answer in answers.items():
                if isinstance(answer, ResourceExhausted) and conditions.if_empty:
                    to_ask.append(queue)  # A slice looks at so many bindings in one change.
                    failed[queue] = answer
                elif isinstance(answer, ShoalError):
                    failed[queue] = answer
                else:
                    failed.pop(queue, None)
                    dropped[queue] = answer
            if len(to_ask) == before:
                break
        self._end_elsewhere_later([queue for queue, error in failed.items() if _may_be_done(error)])
        return dropped, failed

    def _others(self, queue: bytes) -> list[str]:
        """Returns the slices that are not the queue's home."""
        home = self._homes.home_of(queue)
        return [name for name in self._routing.map.current.slices if name != home]

    def _end_elsewhere_later(self, queues: Sequence[bytes]) -> None:
        """Ends, in the background, the parts elsewhere of queues that their homes may have dropped; by then the homes
        know."""
        self._leftovers.end_later((queue, self._others(queue)) for queue in queues)

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
            for some in pieces(queues, drops_at_once(conditions)):
                incarnations = [lives.get(queue, 0) for queue in some]
                request = DropsRequest(some, incarnations if any(incarnations) else (), deadline, conditions)
                asked.append((name, some))
                requests.append((name, request))
        answers: dict[tuple[str, bytes], Any] = {}
        for (name, names), result in zip(asked, await self._routing.ask(requests), strict=True):
            each = [result] * len(names) if isinstance(result, ShoalError) else result
            answers.update(zip(((name, queue) for queue in names), each, strict=True))
        return answers

    async def _drop_elsewhere(
        self, queues: Sequence[bytes], lives: _Lives, deadline: float
    ) -> dict[bytes, dict[str, Any]]:
        """Drops the parts that queues have on other slices than their homes: of those in `lives` in this life, and what
        is left of other lives. Each place is asked by itself. Returns for each queue and slice what `_ask` does."""
        answers: dict[bytes, dict[str, Any]] = {}
        places: dict[Place, list[bytes]] = {}
        for queue in queues:
            home = self._homes.home_of(queue)
            answers[queue] = dict.fromkeys(self._others(queue), _NO_ANSWER)
            for name in answers[queue]:
                places.setdefault((name, home), []).append(queue)
        line = iter(places.items())

        async def drop_in_turn() -> None:
            for (name, _), here in line:
                for queue, answer in (await self._drop_at(name, here, lives, deadline)).items():
                    answers[queue][name] = answer

        try:
            await asyncio.gather(*(drop_in_turn() for _ in range(min(len(places), PLACES_AT_ONCE_MAX))))
        finally:
            self._leftovers.end_later(
                (queue, slices)
                for queue, each in answers.items()
                if (slices := [name for name, one in each.items() if may_be_left(one)])
            )
        return answers

    async def _drop_at(
        self, slice_name: str, queues: Sequence[bytes], lives: _Lives, deadline: float
    ) -> dict[bytes, Any]:
        """Drops the parts of queues on one slice. Returns each queue's answer."""
        known = [queue for queue in queues if queue in lives]
        asked = await self._ask({slice_name: known}, lives, Conditions(), deadline) if known else {}
        answers = {queue: answer for (_, queue), answer in asked.items()}
        others = [queue for queue in queues if queue not in answers or _is_of_another_life(answers[queue])]
        return answers | await self._leftovers.end(slice_name, others, deadline)

    async def _look_everywhere(
        self, queues: Sequence[bytes], conditions: Conditions, deadline: float
    ) -> tuple[_Lives, _Errors]:
        """Asks all slices about the queues. Returns the lives that their homes know, and the errors of those that are
        used, or have a backlog, somewhere; or of which a slice did not tell."""
        lives: _Lives = {}
        failed: _Errors = {}
        slices = self._routing.map.current.slices
        for some in pieces(queues, HOME_QUESTION_QUEUES_MAX):
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


def _may_be_done(error: ShoalError) -> bool:
    """Returns whether a home, by its answer to a drop, may have dropped the queue."""
    return isinstance(error, OutcomeUnknown | Malformed)


def _is_of_another_life(answer: object) -> bool:
    """Returns whether a slice, by its answer to a drop of one life, has a part of another one."""
    return isinstance(answer, NoSuchQueue) and bool(answer.value)


def _refusal(
    queue: bytes, parts: Sequence[tuple[str, wire.QueueDescription]], conditions: Conditions
) -> ShoalError | None:
    for name, part in parts:
        if conditions.if_unused and consumed(part):
            return in_use(queue, name)
        if conditions.if_empty and part.messages:
            return not_empty(queue, part.messages, name)
    return None


def _what_is_left(queue: bytes, answers: dict[str, Any]) -> ShoalError | None:
    """Returns the error of a queue that is gone at its home, and perhaps not on the slices that failed."""
    failed: dict[str, ShoalError] = {name: answer for name, answer in answers.items() if may_be_left(answer)}
    if not failed:
        return None
    where, first = ", ".join(failed), next(iter(failed.values()))
    return type(first)(
        f"queue {show(queue)} is dropped, but slice {where} did not say so of its part ({first.message}): it is asked"
        f" again while this connection lives, for up to {PARTS_LEFT_MAX} such parts; what is left otherwise is found"
        " by `shoal sweep`, and is given to consumers of a queue that is declared anew before",
        subject=show(queue),
    )
