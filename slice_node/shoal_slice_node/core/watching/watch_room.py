"""Counts the memory of watches: in the share of attached queues, of which they may take a part."""

from __future__ import annotations

from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.watching.limits import WATCHES_PART


class WatchRoom:
    """Keeps the count. `used_bytes` may exceed `limit_bytes` by one member, or one changed key."""

    __slots__ = ("limit_bytes", "share", "used_bytes")

    def __init__(self, share: Share) -> None:
        self.share = share
        self.limit_bytes = share.limit_bytes // WATCHES_PART
        self.used_bytes = 0

    @property
    def free_bytes(self) -> int:
        """Returns how much more watches may take; less than 0: too much is taken."""
        return min(self.limit_bytes - self.used_bytes, self.share.free_bytes)

    def hold(self, size_bytes: int) -> None:
        """Notes that so much more is used."""
        self.used_bytes += size_bytes
        self.share.hold(size_bytes)

    def let_go(self, size_bytes: int) -> None:
        """Notes that so much less is used."""
        self.used_bytes -= size_bytes
        self.share.let_go(size_bytes)
