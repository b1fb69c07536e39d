"""Asks one slice now and then what became of acks, a few at a time, for as long as there are some to ask for.

It begins soon after a stream is open or there is something new to ask for, goes on soon while acks are found to be
settled or are divided, and ever more seldom otherwise. Errors are of no account: it asks again. Not here: which acks
these are, and what a flush waits for and tells (late_asking.py, ack_doubts.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence

from shoal.attachments import Attachments
from shoal.core.acks import Acked, at_places, framed, to_wire, without_consumers, without_places
from shoal.core.frames import DoubtsFrame, Frame
from shoal_contract.errors import ShoalError


class Asking:
    """Asks for acks. `send`: puts a frame on the open stream. `some`: returns the next acks to ask for; none: there are
    none. `settled`: called with those that the slice has, or whose messages are gone. `divide`: called with those of
    several messages of which it has not all; `some` is to return them in halves. `first_s`, `max_s`: the first and the
    longest pause. `of_lost_stream`: as in the contract's `Acks`."""

    def __init__(
        self,
        attachments: Attachments,
        send: Callable[[Frame], None],
        some: Callable[[], list[Acked]],
        settled: Callable[[list[Acked]], None],
        divide: Callable[[list[Acked]], None],
        first_s: float,
        max_s: float,
        of_lost_stream: bool,
    ) -> None:
        self._attachments = attachments
        self._send = send
        self._some = some
        self._settled = settled
        self._divide = divide
        self.divided = False
        """Some were divided since this was set to False: it is worth while to ask again at once."""
        self._first_s = first_s
        self._max_s = max_s
        self._of_lost_stream = of_lost_stream
        self._timer: asyncio.TimerHandle | None = None
        self._asked: list[asyncio.Future[None]] = []
        """The questions that were asked last; no others are asked while one has no answer."""
        self._closed = False

    def soon(self) -> None:
        """Asks after the first pause at the latest, if a stream is open; else it is to be called when one is."""
        soon = asyncio.get_running_loop().time() + self._first_s
        if self._attachments.is_open and (self._timer is None or self._timer.when() > soon):
            self.rest()
            self._later(self._first_s)

    def rest(self) -> None:
        """Asks no more until `soon` is called."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def close(self) -> None:
        """Ends asking."""
        self._closed = True
        self.rest()

    def question(self, blocks: list[Acked]) -> asyncio.Future[None]:
        """Sends one question, of a frame's size. Returns a future that is done when it is answered, or its stream is
        lost; with the error if the slice refuses to tell."""

        def answered(unacked: Sequence[int] | None) -> None:
            if unacked is None:
                return
            if settled := without_places(blocks, unacked):
                self._settled(settled)
            if several := [one for one in at_places(blocks, unacked) if one.end - one.first > 1]:
                self._divide(several)
                self.divided = True
            if settled or several:
                self._attachments.changed.set()
                self.soon()

        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        acks = [to_wire(block) for block in blocks]
        resets_seen = self._attachments.resets_seen
        self._send(DoubtsFrame(acks, answered, waiter, resets_seen, of_lost_stream=self._of_lost_stream))
        return waiter

    def _later(self, pause_s: float) -> None:
        if not self._closed:
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._ask, pause_s)

    def _ask(self, pause_s: float) -> None:
        self._timer = None
        if all(asked.done() for asked in self._asked):
            some = self._some()
            if not some:
                return
            has = self._attachments.has  # The slice cannot tell of a handle that is not attached.
            blocks = without_consumers(
                some, {one for block in some for one in block.consumers if isinstance(one, int) and not has(one)}
            )
            self._asked = list(map(self.question, framed(blocks)))
            for asked in self._asked:
                asked.add_done_callback(_ignore)
            pause_s = min(2 * pause_s, self._max_s) if blocks else pause_s
        self._later(pause_s)


def _ignore(asked: asyncio.Future[None]) -> None:
    """Takes the error of a question, if it has one: it is asked again later."""
    with contextlib.suppress(ShoalError, asyncio.CancelledError):
        asked.result()
