"""Asks a slice what became of acks that came too late, until it has them all, or their messages came here again.

It asks also where no flush waits: what another consumer has acked meanwhile need not be remembered any longer. A late
ack takes no message from a consumer that was given it: what is asked changes only what this session was given again.
Not here: which acks are late (core/late_acks.py), acking again what comes again (inbox_slice.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import islice

from shoal.attachments import Attachments
from shoal.core.acks import Acked, framed, to_wire, without_places
from shoal.core.frames import DoubtsFrame, Frame
from shoal.core.repeats import Repeats
from shoal.limits import ACK_FRAMES_MAX, LATE_ACKS_ASK_FIRST_S, LATE_ACKS_ASK_MAX_S, LATE_ACKS_WAIT_S
from shoal_contract.errors import ShoalError


class LateAsking:
    """Asks one slice. `send`: puts a frame on the open stream. `attachments.changed` is set whenever acked messages
    came again."""

    def __init__(self, repeats: Repeats, attachments: Attachments, send: Callable[[Frame], None]) -> None:
        self._repeats = repeats
        self._attachments = attachments
        self._send = send
        self._timer: asyncio.TimerHandle | None = None
        self._asked: list[asyncio.Future[None]] = []
        """The questions that were asked last; no others are asked while one has no answer."""
        self._closed = False

    def found(self) -> None:
        """Takes in that acks were found to be late."""
        self._attachments.changed.set()
        if self._timer is None and self._repeats.late.any:
            self._later(LATE_ACKS_ASK_FIRST_S)

    @property
    def waits(self) -> bool:
        """Returns whether there are late acks of which no flush has told."""
        return self._repeats.late.waits

    def close(self) -> None:
        """Ends asking."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def settle(self) -> int:
        """Waits until no late ack is left of which no flush has told, but at most LATE_ACKS_WAIT_S. Returns of how many
        messages it is to tell now."""
        until = asyncio.get_running_loop().time() + LATE_ACKS_WAIT_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self._repeats.late.waits:
                    self._attachments.changed.clear()
                    await self._attachments.changed.wait()
        return self._repeats.late.take_untold()

    def _later(self, pause_s: float) -> None:
        if not self._closed:
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._ask, pause_s)

    def _ask(self, pause_s: float) -> None:
        self._timer = None
        if not self._repeats.late.any:
            return
        if self._attachments.complete and all(asked.done() for asked in self._asked):
            self._asked = list(map(self._question, islice(framed(self._repeats.late.blocks()), ACK_FRAMES_MAX)))
        self._later(min(2 * pause_s, LATE_ACKS_ASK_MAX_S))

    def _question(self, blocks: list[Acked]) -> asyncio.Future[None]:
        def answered(unacked: Sequence[int] | None) -> None:
            if unacked is not None:
                self._repeats.late_settled(without_places(blocks, unacked))
                self._attachments.changed.set()

        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(_ignore)
        acks = [to_wire(block) for block in blocks]
        self._send(DoubtsFrame(acks, answered, waiter, self._attachments.resets_seen, of_lost_stream=False))
        return waiter


def _ignore(asked: asyncio.Future[None]) -> None:
    """Takes the error of a question, if it has one: it is asked again later."""
    with contextlib.suppress(ShoalError, asyncio.CancelledError):
        asked.result()
