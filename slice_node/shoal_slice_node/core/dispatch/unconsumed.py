"""Keeps the feeds that no session consumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shoal_slice_node.core.dispatch.feeds import Feed

_SMALL: Final = 64
_SHRINKS_AT: Final = 4
"""A set with a fourth of the members that it had is made anew, if it had more than _SMALL."""


class Unconsumed:
    """Keeps feeds without a consumer: messages of theirs rest, or acks are on their way to the tables. Each publish may
    look at all of them, where they are few; and a set that lost most of its members is as slow to look through as it
    was when it had them: so it is made anew from time to time."""

    def __init__(self) -> None:
        self._feeds: set[Feed] = set()
        self._most = 0
        """How many there were at most since the set was made."""

    def __len__(self) -> int:
        return len(self._feeds)

    def __iter__(self) -> Iterator[Feed]:
        return iter(self._feeds)

    def add(self, feed: Feed) -> None:
        self._feeds.add(feed)
        self._most = max(self._most, len(self._feeds))

    def discard(self, feed: Feed) -> None:
        """Takes out a feed, if it is there."""
        self._feeds.discard(feed)
        if self._most > _SMALL and len(self._feeds) * _SHRINKS_AT < self._most:
            self._feeds = set(self._feeds)
            self._most = len(self._feeds)
