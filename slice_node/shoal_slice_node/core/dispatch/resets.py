"""Keeps which handles of a session stand for another life of their queue than the client knows, and counts them.

The client is told each handle in its turn, before anything of the next life. It counts what it was told, and says in
its acks and nacks how much that was, so that those for an earlier life are known (Attachment.resets_before). Not here:
what ends a life (attaching).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from shoal_slice_node.core.dispatch.shares import Share
from shoal_slice_node.core.limits import RESET_BYTES


class Resets:
    """Keeps the resets of one session. `noted`: how many handles the client was told, or is to be told, since the
    session began; one that waits already is not counted again. `share`: counts RESET_BYTES for each that waits and was
    detached, `counted` in all; before, it is a part of what is attached."""

    __slots__ = ("_share", "_waiting", "counted", "noted")

    def __init__(self, share: Share) -> None:
        self.noted = self.counted = 0
        self._share = share
        self._waiting: dict[int, bool] = {}
        """In the order in which the client is told: each handle, and whether the share counts it."""

    def __bool__(self) -> bool:
        """Returns whether some wait."""
        return bool(self._waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(self._waiting)

    def note(self, handle: int) -> None:
        """Notes that the handle's queue was dropped: the client is to be told."""
        if handle not in self._waiting:
            self._waiting[handle] = False
            self.noted += 1

    def detached(self, handle: int) -> None:
        """Notes that the client detaches the handle. It is told of it all the same, since it counts what it is told."""
        if self._waiting.get(handle) is False:
            self._waiting[handle] = True
            self.counted += 1
            self._share.hold(RESET_BYTES)

    def take(self, count_max: int) -> list[int]:
        """Returns up to `count_max` of the handles that the client is to be told of: it is told now."""
        handles = list(islice(self._waiting, count_max))
        self._let_go(sum(self._waiting.pop(handle) for handle in handles))
        return handles

    def clear(self) -> None:
        """Notes that the session has ended: nothing is told."""
        self._waiting.clear()
        self._let_go(self.counted)

    def _let_go(self, count: int) -> None:
        self.counted -= count
        self._share.let_go(RESET_BYTES * count)
