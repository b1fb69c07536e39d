"""Asks queues' homes: does this queue exist, with which options, in which life? Gathers the questions to each slice.

The home of a queue is the slice of its direct key. Its answer takes into account all that happened before the question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shoal.core.known_queues import Life
from shoal.core.refusals import connection_closed, connection_cut, deadline_exceeded
from shoal.core.waiters import fail_waiter
from shoal.limits import HOME_QUESTION_QUEUES_MAX
from shoal.routing import Routing
from shoal_contract.errors import DeadlineExceeded, ShoalError
from shoal_contract.names import direct_key, show
from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire

Asking = tuple[bytes, float, asyncio.Future[Life | None]]
"""A question: queue, deadline, and the home's answer."""


class Homes:
    """Asks homes. Questions of one turn of the event loop go together: logins of many queues cost one frame, not one
    each."""

    def __init__(self, routing: Routing) -> None:
        self._routing = routing
        self._asking: dict[str, list[Asking]] = {}
        """Slice -> its questions, until the turn ends; each is a waiting call."""

    def home_of(self, queue: bytes) -> str:
        """Returns the slice that knows whether the queue exists: the owner of its direct key."""
        return self._routing.map.current.owner_of(direct_key(queue))

    async def life_of(self, queue: bytes, deadline: float) -> Life | None:
        """Asks a queue's home now. Returns None if there is no such queue. Raises DeadlineExceeded."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._question(queue, deadline)
        except TimeoutError:
            raise self._no_answer(queue) from None

    async def lives_of(self, queues: Sequence[bytes], deadline: float) -> dict[bytes, Life | None]:
        """Asks the homes of some queues now. Raises DeadlineExceeded if one of them does not answer."""
        try:
            async with asyncio.timeout_at(deadline):
                lives = await asyncio.gather(*(self._question(queue, deadline) for queue in queues))
        except TimeoutError:
            raise self._no_answer(queues[0]) from None
        return dict(zip(queues, lives, strict=True))

    def _question(self, queue: bytes, deadline: float) -> asyncio.Future[Life | None]:
        """Adds a question to those of this turn to the queue's home."""
        home = self.home_of(queue)
        future: asyncio.Future[Life | None] = asyncio.get_running_loop().create_future()
        waiting = self._asking.setdefault(home, [])
        if not waiting:
            asyncio.get_running_loop().call_soon(self._ask, home)
        waiting.append((queue, deadline, future))
        return future

    def _no_answer(self, queue: bytes) -> DeadlineExceeded:
        return deadline_exceeded(f"question to slice {self.home_of(queue)}, the home of queue {show(queue)}")

    def _ask(self, home: str) -> None:
        asking = self._asking.pop(home)
        if self._routing.closed:
            for _, _, future in asking:
                fail_waiter(future, connection_closed())
            return
        for start in range(0, len(asking), HOME_QUESTION_QUEUES_MAX):
            some = asking[start : start + HOME_QUESTION_QUEUES_MAX]
            self._routing.in_background(f"question to {home}", self._ask_some(home, some))

    async def _ask_some(self, home: str, asking: Sequence[Asking]) -> None:
        queues = list(dict.fromkeys(queue for queue, _, _ in asking))
        try:
            deadline = max(deadline for _, deadline, _ in asking)
            answers = await self._routing.describing.describe(home, queues, deadline)
        except asyncio.CancelledError:  # The connection closes.
            for _, _, future in asking:
                fail_waiter(future, connection_cut())
            raise
        found = dict(zip(queues, answers, strict=True))
        for queue, _, future in asking:
            one = found[queue]
            if isinstance(one, ShoalError):
                fail_waiter(future, one)
            elif not future.done():
                future.set_result(life_in(one))


def life_in(description: wire.QueueDescription) -> Life | None:
    """Returns the life of a queue's part on the slice that gave the description; None if there is no part."""
    if not description.exists:
        return None
    return Life(QueueOptions.of_wire(description.options), description.incarnation)
