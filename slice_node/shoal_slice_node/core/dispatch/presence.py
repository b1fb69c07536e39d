"""Says what those that watch presence hear of from dispatch (core/watching)."""

from __future__ import annotations

from typing import Protocol


class Presence(Protocol):
    """Hears of it, for them."""

    def attached(self, queue_id: bytes) -> None:
        """Hears that the first session attached a queue, or that the last one left it."""

    def in_memory_changed(self, key: bytes) -> None:
        """Hears that dispatch knows other queues of a key than before (Registry.in_memory)."""
