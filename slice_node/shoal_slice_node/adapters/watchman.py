"""Looks ten times a second at memory, and for sessions that are stalled while answers or deliveries fill their share;
once a second for bindings that fell silent. Ends sessions that hold too much, and serves what
was forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from itertools import islice

from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_contract.limits import REQUEST_BYTES_MAX
from shoal_contract.names import show
from shoal_runtime.memory_guard import MemoryGuard
from shoal_runtime.rare_log import RareLog
from shoal_runtime.unread import Unread
from shoal_slice_node.adapters.answer_room import AnswerRoom
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.limits import (
    BRIEF_ANSWER_BYTES,
    LARGE_ANSWER_BYTES,
    MEMORY_HIGH,
    MEMORY_LOOK_MS,
    MEMORY_SLACK_BYTES,
    MEMORY_TOP,
    SERVED_STREAMS_PER_LOOK,
    SESSIONS_ENDED_PER_LOOK,
    SILENT_SESSION_MS,
    STALLED_CROWDED_MS,
    STALLED_SESSION_MS,
    TOLD_PER_LOOK,
    WATCHMAN_LOOK_MS,
)
from shoal_slice_node.adapters.watch_writes import WatchWrites
from shoal_slice_node.adapters.writers import Writers
from shoal_slice_node.core.dispatch.dispatcher import Dispatcher
from shoal_slice_node.core.dispatch.feeds import Feed
from shoal_slice_node.core.dispatch.served import serve, silent_streams
from shoal_slice_node.core.dispatch.sessions import Session

_log = logging.getLogger(__name__)


class Watchman:
    """Watches the node's memory, sessions and bindings. `memory_bytes`: the process's memory budget. `own_bytes`:
    returns how much it holds.

    `memory_short`: the error that refuses new sessions while the process holds much more than its budget; else None.
    `silent`: the number of bindings found since the start that would never have been served; anything but 0 is a
    defect."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        writers: Writers,
        watch_writes: WatchWrites,
        answers: AnswerRoom,
        memory_bytes: int,
        between_records: asyncio.Event,
        own_bytes: Callable[[], int],
        unread: Unread,
    ) -> None:
        self._dispatcher = dispatcher
        self._writers = writers
        self._watch_writes = watch_writes
        self._answers = answers
        self._memory_bytes = memory_bytes
        self._short_bytes = int(MEMORY_HIGH * memory_bytes)
        self._own_bytes = own_bytes
        self._short_since_ms = steady_ms()
        self._least_bytes = 0
        """The least that was held since then."""
        self._let_be_bytes = 0
        """The bytes up to which new sessions are taken although they are above the budget: so much was held all the
        time, whatever ended, that no client can be the cause."""
        self._complaints = RareLog(_log)
        self.memory_short: ShoalError | None = None
        self.unread = unread
        self.guard = MemoryGuard(self.unread, memory_bytes, self._short_bytes, own_bytes)
        self._between_records = between_records
        self._position = 0
        self.silent = 0

    async def run(self) -> None:
        """Watches until it is cancelled."""
        self.guard.start()
        try:
            await self._watch()
        finally:
            self.guard.stop()

    async def _watch(self) -> None:
        while True:
            for _ in range(WATCHMAN_LOOK_MS // MEMORY_LOOK_MS):
                await asyncio.sleep(MEMORY_LOOK_MS / 1000)
                self.guard_memory()
                self.guard_answers()
                self.guard_deliveries()
                self._dispatcher.relieve()  # It begins only: the look itself waits for records.
            await self._between_records.wait()  # No wait may follow: the next lines read tables and dispatch.
            self._dispatcher.divide_owed(list(self._writers.sessions.values()))
            self.look()

    def guard_answers(self) -> None:
        """Ends watches and sessions that do not read their answers while others wait for room: first watches, then
        sessions that hold much, then those that each hold little, but too much together. Before, sessions are read
        again that were not, as there was no room for their answers."""
        self._answers.look_again()
        waiting = self._answers.waiting
        share, needed_bytes = self._answers.share, LARGE_ANSWER_BYTES * max(1, waiting)
        for_ms = STALLED_CROWDED_MS if waiting else STALLED_SESSION_MS
        if waiting:
            freed_bytes = self._watch_writes.end_stalled(share, needed_bytes, for_ms)
            needed_bytes = max(1, needed_bytes - freed_bytes)
        self._tell(self._writers.end_stalled(share, needed_bytes, for_ms))
        if waiting:
            small = self._writers.end_stalled_small(share, needed_bytes)
            small += self._writers.end_stalled_brief(self._answers.brief, BRIEF_ANSWER_BYTES)
            self._tell(small)

    def guard_deliveries(self) -> None:
        """Ends sessions that do not read their deliveries while these fill their share."""
        self._tell(self._writers.end_stalled_deliveries(self._dispatcher.shares))

    def _tell(self, ended: Sequence[Session]) -> None:
        for session in ended[:TOLD_PER_LOOK]:
            _log.warning("session %d ends: %s", session.number, session.ended_by)
        if len(ended) > TOLD_PER_LOOK:
            _log.warning("%d more sessions end so", len(ended) - TOLD_PER_LOOK)

    def guard_memory(self) -> None:
        """Ends silent sessions while the process holds more than its budget. This is the last resort, for memory that
        no share counts: frames that clients began to send and do not finish. The more is held, the shorter the silence
        that ends a session. The bound is raised to what was held all the time, whatever ended: memory that the C
        library cannot give back must not lock out all clients."""
        held_bytes, now_ms = self._own_bytes(), steady_ms()
        self._let_be_bytes = min(self._let_be_bytes, held_bytes + MEMORY_SLACK_BYTES)
        self.guard.short_bytes = max(self._short_bytes, self._let_be_bytes)
        short = held_bytes > self.guard.short_bytes
        error = self._short(held_bytes, short)
        ended = self._end_silent(held_bytes, error) if held_bytes > self._memory_bytes else 0
        if ended or (short and self.memory_short is None):
            self._complaints.warning("%s; %d sessions end now", error, ended)
        if not short:
            self.memory_short = None
            self._short_since_ms, self._least_bytes = now_ms, held_bytes
            return
        self._least_bytes = min(self._least_bytes, held_bytes) if self.memory_short else held_bytes
        self.memory_short = error
        if now_ms - self._short_since_ms > 2 * STALLED_SESSION_MS:
            self._let_be_bytes = self._least_bytes + MEMORY_SLACK_BYTES
            self._short_since_ms, self._least_bytes = now_ms, held_bytes

    def _short(self, held_bytes: int, refuses: bool) -> ResourceExhausted:
        what = "silent sessions end, and new ones are not taken," if refuses else "silent sessions end"
        return ResourceExhausted(
            f"this slice holds {held_bytes >> 20} MiB; its budget is {self._memory_bytes >> 20}: {what} until it holds"
            " less",
            subject="memory",
            limit=self._memory_bytes,
            value=held_bytes,
        )

    def _end_silent(self, held_bytes: int, error: ShoalError) -> int:
        """Ends silent sessions with `error`. Returns how many it ended. Where memory stays and no more is held, only
        those end of whose connection something is unread: the others cannot be the cause."""
        count = SESSIONS_ENDED_PER_LOOK + (held_bytes - self._memory_bytes) // REQUEST_BYTES_MAX
        stays_bytes = max(0, self._let_be_bytes - self._short_bytes)
        if stays_bytes and held_bytes <= self._let_be_bytes:
            return self._writers.end_silent_at(self.unread.holding, count, error, STALLED_SESSION_MS)
        over = (held_bytes - stays_bytes) / self._memory_bytes
        for_ms = STALLED_SESSION_MS if over <= MEMORY_HIGH else SILENT_SESSION_MS
        ended = self._writers.end_silent(count, error, for_ms, consumers=False)
        if over > MEMORY_HIGH and not ended:
            for_ms = STALLED_SESSION_MS if over <= MEMORY_TOP else SILENT_SESSION_MS
            ended = self._writers.end_silent(count, error, for_ms, consumers=True)
        return ended

    def look(self) -> None:
        """Checks the next few feeds for silent bindings, and serves those. Leaves out large feeds: they would block the
        loop."""
        for silent in silent_streams(self._dispatcher, self._next_feeds()):
            self.silent += 1
            _log.error(
                "a binding of queue %s had messages for a consumer and was not served: %s. It is served now; this is a"
                " fault of Shoal: please report it",
                *(show(silent.feed.name), silent.reason),
            )
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
