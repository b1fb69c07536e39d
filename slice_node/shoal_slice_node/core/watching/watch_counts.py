"""Counts the watches of each connection, and the prefixes that it watches: no connection may have all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from shoal_contract.errors import exhausted
from shoal_slice_node.core.watching.limits import PREFIXES_PER_CONNECTION_MAX, WATCHES_PER_CONNECTION_MAX


class WatchCounts:
    """Keeps the counts, while they are above 0."""

    def __init__(self) -> None:
        self._watches: Counter[Hashable] = Counter()
        self._prefixes: dict[Hashable, Counter[bytes]] = {}
        """Connection -> its watches of each prefix."""

    def check(self, connection: Hashable, prefix: bytes | None) -> None:
        """Raises ResourceExhausted if a connection may not have one more watch. `prefix`: what it would watch; None: a
        key."""
        own = self._watches[connection] + 1
        if own > WATCHES_PER_CONNECTION_MAX:
            raise exhausted("watches of one connection", WATCHES_PER_CONNECTION_MAX, own)
        prefixes = self._prefixes.get(connection, ())
        if prefix is not None and prefix not in prefixes and len(prefixes) >= PREFIXES_PER_CONNECTION_MAX:
            raise exhausted("prefixes watched by one connection", PREFIXES_PER_CONNECTION_MAX, len(prefixes) + 1)

    def begin(self, connection: Hashable, prefix: bytes | None) -> None:
        """Counts a watch."""
        self._watches[connection] += 1
        if prefix is not None:
            self._prefixes.setdefault(connection, Counter())[prefix] += 1

    def end(self, connection: Hashable, prefix: bytes | None) -> None:
        """Counts a watch no longer."""
        self._watches[connection] -= 1
        if not self._watches[connection]:
            del self._watches[connection]
        if prefix is None:
            return
        prefixes = self._prefixes[connection]
        prefixes[prefix] -= 1
        if not prefixes[prefix]:
            del prefixes[prefix]
        if not prefixes:
            del self._prefixes[connection]
