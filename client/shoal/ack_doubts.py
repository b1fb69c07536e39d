"""Settles acks in doubt: those that a lost stream left unanswered. It asks their slice until none is left.

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

from shoal.attachments import Attachments
from shoal.core.acks import Acked, framed, to_wire, without_places
from shoal.core.frames import DoubtsFrame, Frame
from shoal.core.refusals import acks_forgotten
from shoal.core.repeats import Repeats
from shoal.limits import ACK_FRAMES_MAX, DOUBTS_ASK_FIRST_S, DOUBTS_ASK_MAX_S
from shoal_contract.errors import OutcomeUnknown, ResourceExhausted


class AckDoubts:
    """Asks one slice. `send`: puts a frame on the open stream. `attachments.changed` is set whenever acked messages
    came again."""

    def __init__(
        self, slice_name: str, repeats: Repeats, attachments: Attachments, send: Callable[[Frame], None]
    ) -> None:
        self._slice_name = slice_name
        self._repeats = repeats
        self._attachments = attachments
        self._send = send
        self._asking = asyncio.Lock()
        """Held by the call that asks; others wait for it, and find little left."""
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

    async def settle(self) -> None:
        """Waits until no ack is in doubt. Raises Unavailable, once, if some were forgotten meanwhile or before, or
        cannot be followed; or the error with which the slice refuses to tell."""
        async with self._asking:
            await self._settle()
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
                await self._ask()
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
                await asyncio.gather(*map(self._question, some))

    def _question(self, blocks: list[Acked]) -> asyncio.Future[None]:
        def answered(unacked: Sequence[int] | None) -> None:
            if unacked is not None:
                self._repeats.settled(without_places(blocks, unacked))

        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        acks = [to_wire(block) for block in blocks]
        self._send(DoubtsFrame(acks, answered, waiter, self._attachments.resets_seen, of_lost_stream=True))
        return waiter
