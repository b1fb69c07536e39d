"""Tells applications of gaps: messages that a queue still had to get, and that are gone.

An inbox keeps gaps in the order of its messages, so the callback hears of one between the messages before and behind
it. Not here: why messages go (the options of keys, the time to live of messages).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from shoal.limits import DELIVERY_OVERHEAD_BYTES, GAPS_LOGGED_PER_S
from shoal_contract.names import show, text
from shoal_contract.wire import slice_pb2 as wire

_log = logging.getLogger("shoal")

_WHY: Final[Mapping[int, str]] = {wire.GAP_REASON_DROPPED: "dropped", wire.GAP_REASON_EXPIRED: "expired"}


@dataclass(frozen=True, slots=True)
class Gap:
    """Says that a queue does not get the messages first <= offset < end of a key, which it still had to get. Messages
    of a gap that were handed out before stay as they are; their acks do nothing.

    ```python
    def missed(gap: shoal.Gap) -> None:
        print(f"{gap.queue} does not get {gap.end - gap.first} messages of {gap.key}: {gap.why}")

    async with broker.consume("anna", on_gap=missed) as inbox:
        async for message in inbox:
            await message.ack()
    ```
    """

    queue_bytes: bytes
    """The queue's name as bytes."""
    key_bytes: bytes
    """The key's name as bytes."""
    first: int
    """The first offset of the gap."""
    end: int
    """The offset behind its last one."""
    why: str
    """ "dropped": the key was full, and drops the oldest. "expired": their time to live was over."""

    @property
    def queue(self) -> str:
        """Returns the queue that does not get the messages."""
        return text(self.queue_bytes)

    @property
    def key(self) -> str:
        """Returns the key that the messages were published to."""
        return text(self.key_bytes)


OnGap = Callable[[Gap], None]


class UnheardGaps:
    """Logs gaps of which no callback hears, GAPS_LOGGED_PER_S lines in a second at most. `clock`: in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines = 0
        """Lines of the second that ends at `_ends`."""
        self._ends = 0.0
        self._left_out = 0

    def log(self, gap: Gap) -> None:
        """Writes a line, or counts it as left out."""
        now = self._clock()
        if now >= self._ends:
            self._lines, self._ends = 0, now + 1
        if self._lines >= GAPS_LOGGED_PER_S:
            self._left_out += 1
            return
        more = f" ({self._left_out} more such lines were left out)" if self._left_out else ""
        self._lines, self._left_out = self._lines + 1, 0
        _log.warning(
            "queue %s does not get messages %d to %d of key %s: %s%s",
            *(show(gap.queue_bytes), gap.first, gap.end - 1, show(gap.key_bytes), gap.why, more),
        )


_unheard = UnheardGaps()
"""Writes for all connections of the process: they share its log."""


class GapNews:
    """Holds one gap on its way through an inbox's buffer. `queues`: handle -> queue, of those that it is for."""

    def __init__(self, gap: wire.Gap, queues: Mapping[int, bytes]) -> None:
        self._gap = gap
        self._queues = queues

    @property
    def size_bytes(self) -> int:
        """Returns about its size in memory."""
        return 8 * len(self._queues) + DELIVERY_OVERHEAD_BYTES

    @property
    def handles(self) -> Collection[int]:
        """Returns the handles of the queues that it is for."""
        return self._queues

    def split(self, handles: Container[int]) -> tuple[GapNews | None, GapNews | None]:
        """Returns what it is without these handles, and what it is for them alone; None: nothing."""
        left: dict[int, bytes] = {}
        taken: dict[int, bytes] = {}
        for handle, queue in self._queues.items():
            (taken if handle in handles else left)[handle] = queue
        return GapNews(self._gap, left) if left else None, GapNews(self._gap, taken) if taken else None

    def tell(self, on_gap: OnGap | None) -> None:
        """Tells the application, as `tell_gap` does."""
        tell_gap(on_gap, self._gap, self._queues.values())


def tell_gap(on_gap: OnGap | None, gap: wire.Gap, queues: Iterable[bytes]) -> None:
    """Tells the application of a gap, once for each queue. Without a callback it is logged; one that raises is logged,
    and harms nothing."""
    for queue in queues:
        found = Gap(queue, gap.key, gap.first, gap.to, _WHY.get(gap.why, "unknown"))
        if on_gap is None:
            _unheard.log(found)
            continue
        try:
            on_gap(found)
        except Exception:
            _log.warning("a callback of the application failed; it was given %r", found, exc_info=True)
