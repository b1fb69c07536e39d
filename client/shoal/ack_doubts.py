"""Settles acks in doubt: those that a lost stream left unanswered. It asks their slice until none is left: a few at a
time by itself, as what is in doubt would be acked unseen if its queue were bound again, and all for a flush.

The messages of these acks come again on the next stream, unless the slice has the acks. It cannot be waited for: they
come when the window has room, if ever, and another consumer that waits likewise may have them. So the slice is asked,
and takes these acks wherever their messages are (`Acks.of_lost_stream`). Not here: which acks are in doubt
(core/repeats.py), acking again what comes again (inbox_slice.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from itertools import islice

from shoal.asking import Asking
from shoal.attachments import Attachments
from shoal.core.acks import Acked, framed
from shoal.core.frames import Frame
from shoal.core.handled_ranges import HandledRange
from shoal.core.refusals import acks_forgotten
from shoal.core.repeats import Repeats
from shoal.limits import (
    ACK_FRAMES_MAX,
    DOUBTS_ASK_FIRST_S,
    DOUBTS_ASK_MAX_S,
    DOUBTS_ASKED_MAX,
    LATE_ACKS_ASK_MAX_S,
)
from shoal.nack_sender import NackSender
from shoal_contract.errors import OutcomeUnknown, ResourceExhausted


class AckDoubts:
    """Asks one slice. `send`: puts a frame on the open stream. `nacks`: sends its nacks. `attachments.changed`
    is set whenever acked messages came again."""

    def __init__(
        self,
        slice_name: str,
        repeats: Repeats,
        attachments: Attachments,
        nacks: NackSender,
        send: Callable[[Frame], None],
    ) -> None:
        self._slice_name = slice_name
        self._repeats = repeats
        self._attachments = attachments
        self._nacks = nacks
        self._flushing = asyncio.Lock()
        """Held by the flush that asks; others wait for it, and find little left."""
        self.asking = Asking(
            attachments,
            send,
            self._some,
            self._settled,
            repeats.divide_doubts,
            DOUBTS_ASK_FIRST_S,
            LATE_ACKS_ASK_MAX_S,
            of_lost_stream=True,
        )
        self._not_followed = 0
        """The number of messages with acks of which nothing can be known, since `settle` told of them."""

    @property
    def messages(self) -> int:
        """Returns how many messages have acks in doubt, each counted for each of its queues."""
        return sum((one.end - one.first) * len(one.consumers) for one in self._repeats.doubts())

    def cannot_follow(self, messages: int) -> None:
        """Notes acks that are not sent, as their messages are perhaps of a life that is over. `settle` tells of them
        once."""
        self._not_followed += messages

    def ask_soon(self) -> None:
        """Asks after the first pause at the latest, if there are acks in doubt."""
        if self._repeats.in_doubt:
            self.asking.soon()

    async def settle(self) -> None:
        """Waits until no ack is in doubt. Raises Unavailable, once, if some were forgotten meanwhile or before, or
        cannot be followed; or the error with which the slice refuses to tell."""
        try:
            async with self._flushing:
                await self._settle()
        finally:
            self.ask_soon()
        forgotten, self._not_followed = self._repeats.take_forgotten() + self._not_followed, 0
        if forgotten:
            raise acks_forgotten(self._slice_name, forgotten)

    async def _settle(self) -> None:
        now = asyncio.get_running_loop().time
        ask_at, pause_s = 0.0, DOUBTS_ASK_FIRST_S
        while self._repeats.in_doubt:
            if not self._attachments.complete:  # The slice cannot tell of a handle that is not attached.
                ask_at, pause_s = 0.0, DOUBTS_ASK_FIRST_S
                await self._change(None)
            elif now() < ask_at:
                await self._change(ask_at)
            else:
                self.asking.divided = False
                await self._ask()
                if not self.asking.divided:
                    ask_at, pause_s = now() + pause_s, min(2 * pause_s, DOUBTS_ASK_MAX_S)

    async def _change(self, until: float | None) -> None:
        self._attachments.changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._attachments.changed.wait()

    async def _ask(self) -> None:
        """Asks once for all that is in doubt, a few frames at a time. Ends early if the stream is lost. Raises the
        error with which the slice refuses; not one that says that it has no room, or that may not be its answer."""
        frames = framed(self._repeats.doubts())
        while self._attachments.complete and (some := list(islice(frames, ACK_FRAMES_MAX))):
            with contextlib.suppress(OutcomeUnknown, ResourceExhausted):
                await asyncio.gather(*map(self.asking.question, some))

    def _some(self) -> list[Acked]:
        if self._flushing.locked() and self._attachments.complete:
            return []  # The flush asks.
        return self._repeats.some_doubts(DOUBTS_ASKED_MAX)

    def _settled(self, acks: list[Acked]) -> None:
        """Takes in acks that the slice has. Copies of their messages may be on their way (core/settled.py)."""
        if not self._attachments.tells_nacks_taken:
            self._repeats.settled(acks)
            return
        if self._repeats.forget_settled(acks):
            key, first, _, handles = acks[0]
            handle: int = handles[0]  # type: ignore[assignment]  # a handle
            self._repeats.copies.nack = self._nacks.add_numbered(key, first, first, handle)

    def without_copies(
        self, key: bytes, first: int, end: int, handles: Sequence[int], nacks_taken: int
    ) -> list[HandledRange]:
        """Returns what of a delivery may be new, in order. Gives back the rest, of which the slice has acks."""
        settled = self._repeats.copies
        settled.passed(nacks_taken)
        new, copies = settled.split(key, first, end, handles)
        for low, high, same in copies:
            self._nacks.add(key, low, high, same, None)
        return new
