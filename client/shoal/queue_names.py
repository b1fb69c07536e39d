"""Keeps the queues of a delivery's handles by name: the program may have its messages when their queues have left the
inbox. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class QueueNames:
    """Keeps names. `handles`: is shared, and never changed. They are asked for seldom, so the first question makes the
    index."""

    __slots__ = ("_by_handle", "_handles", "_names")

    def __init__(self, handles: Sequence[int], queues: Mapping[int, bytes]) -> None:
        """`queues`: handle -> queue, as it is now."""
        self._handles = handles
        self._names = [*map(queues.get, handles)]
        self._by_handle: dict[int, bytes | None] | None = None

    def of(self, handle: int) -> bytes:
        """Returns the queue of a handle; empty if it is none of these."""
        if self._by_handle is None:
            self._by_handle = dict(zip(self._handles, self._names, strict=True))
        return self._by_handle.get(handle) or b""
