"""Remembers what slices took long to look at, so that looks at it go where others do not wait for them."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.limits import SLOW_LOOKS_MAX


class SlowLooks:
    """Remembers up to SLOW_LOOKS_MAX looks, by kind and queue; of more, those that were noted first are forgotten."""

    def __init__(self) -> None:
        self._slow: dict[tuple[str, bytes], None] = {}

    def __len__(self) -> int:
        return len(self._slow)

    def any_is_slow(self, kind: str, queues: Iterable[bytes]) -> bool:
        """Returns whether a look at one of the queues took long last time."""
        return any((kind, queue) in self._slow for queue in queues)

    def note(self, kind: str, queue: bytes, is_slow: bool) -> None:
        """Takes how a look at a queue went."""
        self._slow.pop((kind, queue), None)
        if is_slow:
            if len(self._slow) >= SLOW_LOOKS_MAX:
                self._slow.pop(next(iter(self._slow)))
            self._slow[kind, queue] = None
