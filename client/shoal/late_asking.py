"""Asks a slice what became of acks that came too late, until it has them all, or their messages came here again.

It asks also where no flush waits: what another consumer has acked meanwhile need not be remembered any longer. A late
ack takes no message from a consumer that was given it: what is asked changes only what this session was given again.
Not here: which acks are late (core/late_acks.py), acking again what comes again (inbox_slice.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from shoal.asking import Asking
from shoal.attachments import Attachments
from shoal.core.frames import Frame
from shoal.core.repeats import Repeats
from shoal.limits import LATE_ACKS_ASK_FIRST_S, LATE_ACKS_ASK_MAX_S, LATE_ACKS_ASKED_MAX


class LateAsking:
    """Asks one slice. `send`: puts a frame on the open stream. `attachments.changed` is set whenever acked messages
    came again."""

    def __init__(self, repeats: Repeats, attachments: Attachments, send: Callable[[Frame], None]) -> None:
        self._repeats = repeats
        self._attachments = attachments
        self.asking = Asking(
            attachments,
            send,
            lambda: repeats.late.some(LATE_ACKS_ASKED_MAX),
            repeats.late_settled,
            repeats.late.divide,
            LATE_ACKS_ASK_FIRST_S,
            LATE_ACKS_ASK_MAX_S,
            of_lost_stream=False,
        )

    def found(self) -> None:
        """Takes in that acks were found to be late."""
        self._attachments.changed.set()
        self.ask_soon()

    @property
    def waits(self) -> bool:
        """Returns whether there are late acks of which no flush has told."""
        return self._repeats.late.waits

    def ask_soon(self) -> None:
        """Asks after the first pause at the latest, if there are late acks."""
        if self._repeats.late:
            self.asking.soon()

    async def settle(self, until: float) -> int:
        """Waits until no late ack is left of which no flush has told, but at most until then, event loop time. Returns
        of how many messages it is to tell now."""
        self.ask_soon()  # Others may have acked them since they were asked for last.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                while self._repeats.late.waits:
                    self._attachments.changed.clear()
                    await self._attachments.changed.wait()
        return self.take_untold()

    def take_untold(self) -> int:
        """Returns of how many messages a flush is to tell now."""
        return self._repeats.late.take_untold()
