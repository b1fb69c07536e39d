"""Keeps the responses of watches that are being written, and ends watches whose clients do not read where others wait.

A response keeps its room among answers until the client has it. A watch that ends goes on from its place, so it costs
its client less than a session that ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from shoal_contract.errors import DeadlineExceeded
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.limits import WATCH_WRITE_S
from shoal_slice_node.core.dispatch.shares import Share


class WatchWrite:
    """Holds one response that is being written. `end_write`: makes the write end with TimeoutError."""

    __slots__ = ("_end_write", "_ended_after_ms", "connection", "held_bytes", "since_ms")

    def __init__(self, connection: str, held_bytes: int, end_write: Callable[[], None]) -> None:
        self.connection = connection
        self.held_bytes = held_bytes
        self.since_ms = steady_ms()
        self._end_write = end_write
        self._ended_after_ms: int | None = None

    @property
    def ended(self) -> bool:
        return self._ended_after_ms is not None

    def end(self, for_ms: int) -> None:
        """Ends it, as its client read nothing for `for_ms` and others wait."""
        self._ended_after_ms = for_ms
        self._end_write()

    def error(self) -> DeadlineExceeded:
        """Returns the error for the client."""
        if self._ended_after_ms is not None:
            return DeadlineExceeded(
                f"the watch was not read within {self._ended_after_ms / 1000:g} s while others wait for the memory of"
                " answers: it ends",
                subject="watch",
            )
        return DeadlineExceeded(f"the watch was not read within {WATCH_WRITE_S:g} s: it ends", subject="watch")


class WatchWrites:
    """Keeps the responses of watches that are being written."""

    def __init__(self) -> None:
        self._writing: dict[WatchWrite, None] = {}
        """The oldest first."""

    def began(self, write: WatchWrite) -> None:
        """Records that a response is being written."""
        self._writing[write] = None

    def over(self, write: WatchWrite) -> None:
        """Records that the transport has taken the response, or that its watch ends."""
        del self._writing[write]

    def end_stalled(self, share: Share, needed_bytes: int, for_ms: int) -> int:
        """Ends watches that were not read for `for_ms`, until `needed_bytes` of the answers' share will be free. Those
        of the connection that holds most end first. Returns how many bytes will be free because of it, now and of those
        that it ended before."""
        freed_bytes = sum(write.held_bytes for write in self._writing if write.ended)
        lacking_bytes = needed_bytes - share.free_bytes
        until_ms = steady_ms() - for_ms
        stalled: dict[str, list[WatchWrite]] = {}
        holds: Counter[str] = Counter()
        for write in self._writing:
            if write.since_ms <= until_ms and not write.ended:
                stalled.setdefault(write.connection, []).append(write)
                holds[write.connection] += write.held_bytes
        for connection, _ in holds.most_common():
            for write in sorted(stalled[connection], key=lambda one: one.held_bytes, reverse=True):
                if freed_bytes >= lacking_bytes:
                    return freed_bytes
                write.end(for_ms)
                freed_bytes += write.held_bytes
        return freed_bytes
