"""Looks, every second, at what must never be: a session that stands still while memory is short, a silent binding."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_slice_node.adapters.limits import (
    LARGE_ANSWER_BYTES,
    MEMORY_SLACK_BYTES,
    SERVED_STREAMS_PER_LOOK,
    SESSIONS_ENDED_PER_LOOK,
    STALLED_SESSION_MS,
    STEP_WATCH_MS,
)
from shoal_slice_node.adapters.mapped_memory import give_back, own_bytes
from shoal_slice_node.adapters.writers import Writers
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.served import serve, silent_streams
from shoal_slice_node.core.dispatch.shares import Share

_log = logging.getLogger(__name__)


class Watchman:
    """`shares`: deliveries, answers. `memory_bytes`: the process's budget.

    `memory_short`: the process holds more, and takes no new session. `silent`: bindings found that nothing would have
    served, since the start: always 0, or a defect."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        writers: Writers,
        shares: tuple[Share, Share],
        memory_bytes: int,
        between_records: asyncio.Event,
    ) -> None:
        self._dispatcher = dispatcher
        self._writers = writers
        self._shares = shares
        self._memory_bytes = self._bound_bytes = memory_bytes
        self._looks_in_vain = 0
        self.memory_short: ShoalError | None = None
        self._between_records = between_records
        self._position = 0
        self.silent = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(STEP_WATCH_MS / 1000)
            await self.guard_memory()
            await self._between_records.wait()  # The last wait: what follows looks into tables and dispatch.
            for share, needed_bytes in zip(self._shares, (0, LARGE_ANSWER_BYTES), strict=True):
                session = self._writers.end_stalled(share, needed_bytes)
                if session is not None:
                    _log.warning("session %d ends: %s", session.number, session.ended_by)
            self._dispatcher.divide_owed(list(self._writers.sessions.values()))
            self.look()

    async def guard_memory(self) -> None:
        """The last resort, for what no share counts: frames that clients began to send and do not end. Where nobody is
        left to be ended, what is held is let be: a memory that the C library cannot give back must not lock all out."""
        held_bytes = own_bytes()
        if held_bytes <= self._bound_bytes:
            self.memory_short = None
            self._bound_bytes = max(self._memory_bytes, min(self._bound_bytes, held_bytes + MEMORY_SLACK_BYTES))
            return
        error = ResourceExhausted(
            f"this slice holds {held_bytes >> 20} MiB; its budget is {self._memory_bytes >> 20}: silent sessions that"
            " consume nothing end, and new ones are not taken, until it holds less",
            subject="memory",
            limit=self._memory_bytes,
            value=held_bytes,
        )
        ended = self._writers.end_silent(SESSIONS_ENDED_PER_LOOK, error)
        _log.warning("%s; %d sessions end now", error, ended)
        await asyncio.to_thread(give_back)
        self._looks_in_vain = 0 if ended else self._looks_in_vain + 1
        if self._looks_in_vain * STEP_WATCH_MS > 2 * STALLED_SESSION_MS:
            self._bound_bytes, self._looks_in_vain = held_bytes + MEMORY_SLACK_BYTES, 0
        self.memory_short = error

    def look(self) -> None:
        """At the next few feeds. Large ones are left out: looking at them would hold the loop."""
        for silent in silent_streams(self._dispatcher, self._next_feeds()):
            self.silent += 1
            _log.error("a binding of queue %s would have stayed silent: %s", silent.feed.name.hex(), silent.reason)
            serve(self._dispatcher, silent)

    def _next_feeds(self) -> list[Feed]:
        feeds = self._dispatcher.feeds
        chosen: list[Feed] = []
        left = SERVED_STREAMS_PER_LOOK
        looked_at = 0
        for feed in islice(feeds.values(), self._position, self._position + SERVED_STREAMS_PER_LOOK):
            looked_at += 1
            cost = len(feed.streams) + len(feed.attachments)
            if cost <= SERVED_STREAMS_PER_LOOK:
                chosen.append(feed)
                left -= cost
            if left <= 0:
                break
        self._position = self._position + looked_at if self._position + looked_at < len(feeds) else 0
        return chosen
