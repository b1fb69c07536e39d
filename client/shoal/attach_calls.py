"""Lets calls of one inbox that attach the same queue go one after the other: the later one succeeds only once the queue
is attached, and attaches it itself where the earlier one gives up. An attach goes behind a detach of its queue: a slice
refuses a queue that the session has.

Not here: attaching (inbox.py, attachments.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from shoal.core.refusals import deadline_exceeded
from shoal.limits import ATTACH_OTHERS_S
from shoal_contract.names import show


class Detaching:
    """Is a call that detaches queues at some slices. `hurry`: set when an attach has waited for it long enough: it is
    to send its detaches now."""

    def __init__(self) -> None:
        self.hurry = asyncio.Event()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when an attach may follow: the detaches are on their way, or the call has ended."""

    def sent(self, slices_left: int = 0) -> None:
        """Notes that detaches are on their way. `slices_left`: the number of slices to which none was sent yet; if it
        is 0, attaches that are sent from now on come behind the detaches."""
        if not slices_left and not self.done.done():
            self.done.set_result(None)


class AttachCalls:
    """Knows which queues a call attaches now. `attached`: has the names of the inbox's queues, and of those that are
    being attached."""

    def __init__(self, attached: Container[bytes]) -> None:
        self._attached = attached
        self._under_way: dict[bytes, asyncio.Future[Sequence[bytes]]] = {}
        """Queue -> the call that attaches it, which ends with the queues that it gave up."""
        self._leaving: dict[bytes, Detaching] = {}
        """Queue -> the call that detaches it. A second one waits for it."""
        self._waiting: dict[int, dict[bytes, None]] = {}
        """The queues that each call of `to_attach` which waits is to attach, by a number of its own."""
        self._calls = 0

    async def to_attach(self, names: Iterable[bytes], deadline: float) -> list[bytes]:
        """Returns those that are left to attach, after the calls that attach or detach some of them have ended. Raises
        DeadlineExceeded."""
        wanted = dict.fromkeys(names)
        self._calls += 1
        number = self._calls
        self._waiting[number] = wanted
        try:
            await self._turn(wanted, deadline)
        finally:
            del self._waiting[number]
        return [one for one in wanted if one not in self._attached]

    async def _turn(self, wanted: dict[bytes, None], deadline: float) -> None:
        """Waits until no call attaches or detaches one of `wanted`. Takes out those that were attached meanwhile."""
        while True:
            if (name := _first(wanted, self._leaving)) is not None:
                detaching = self._leaving[name]
                await asyncio.wait([detaching.done], timeout=min(ATTACH_OTHERS_S, max(0, deadline - _now())))
                detaching.hurry.set()
                await _ended(detaching.done, deadline, f"attach of queue {show(name)}, which another call detaches")
                if self._leaving.get(name) is detaching:
                    del self._leaving[name]
            elif (name := _first(wanted, self._under_way)) is not None:
                call = self._under_way[name]
                of_call = [one for one in wanted if self._under_way.get(one) is call]
                await _ended(call, deadline, f"attach of queue {show(name)}, which another call attaches")
                for one in of_call:
                    if one not in call.result():  # It is attached, or was detached since.
                        wanted.pop(one, None)
            else:
                return

    @contextlib.contextmanager
    def attaching(self, names: Sequence[bytes]) -> Iterator[None]:
        """Lets other calls that attach these wait until the block ends."""
        call: asyncio.Future[Sequence[bytes]] = asyncio.get_running_loop().create_future()
        self._under_way.update(dict.fromkeys(names, call))
        try:
            yield
        finally:
            own = [name for name in names if self._under_way.get(name) is call]
            for name in own:
                del self._under_way[name]
            call.set_result([name for name in own if name not in self._attached])

    @contextlib.contextmanager
    def detaching(self, names: Sequence[bytes]) -> Iterator[Detaching]:
        """Lets calls that attach these from now on wait until their detaches are sent, at the latest until the block
        ends, and no call that waits already attach them again."""
        call = Detaching()
        for name in names:
            self._under_way.pop(name, None)
            for wanted in self._waiting.values():
                wanted.pop(name, None)
            self._leaving.setdefault(name, call)
        try:
            yield call
        finally:
            for name in names:
                if self._leaving.get(name) is call:
                    del self._leaving[name]
            call.sent()

    async def left(self, names: Iterable[bytes], deadline: float) -> None:
        """Waits until no other call detaches one of these. Raises DeadlineExceeded."""
        for name in names:
            if (call := self._leaving.get(name)) is not None:
                await _ended(call.done, deadline, f"detach of queue {show(name)}, which another call detaches")


def _first(names: Iterable[bytes], calls: Container[bytes]) -> bytes | None:
    return next((name for name in names if name in calls), None)


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _ended(call: asyncio.Future[Any], deadline: float, what: str) -> None:
    left_s = max(0, deadline - _now())
    if not (await asyncio.wait([call], timeout=left_s))[0]:
        raise deadline_exceeded(what)
