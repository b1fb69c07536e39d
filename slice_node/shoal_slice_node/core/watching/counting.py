"""Counts what is bound to keys, and what of that dispatch knows."""

from __future__ import annotations

from collections.abc import Callable

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.core.rows.key_row import ID


class Counting:
    """Reads counts from the tables and from dispatch. A queue that was dropped and has bindings left counts, as it does
    in receipts. Of those that are consumed more count than a receipt says: a queue counts while any message of it
    rests, though no session consumes it any more. `in_memory`: see Registry.in_memory."""

    def __init__(self, state: State, in_memory: Callable[[bytes, int], int]) -> None:
        self.state = state
        self._in_memory = in_memory

    def of(self, key: bytes) -> tuple[int, int]:
        """Returns how many queues are bound to the key, and how many of them are consumed now, as watches count."""
        row = self.state.tables.key.get(self.state.unchecked_name(key))
        if row is None:
            return 0, 0
        bound = self.state.tables.binding.count(row[ID])
        return bound, self._in_memory(row[ID], bound)

    def add(self, response: wire.WatchResponse, key: bytes, presence: bool, empty: bool = True) -> None:
        """Adds a key's counts to a response; if `empty` is False, not those of a key to which nothing is bound."""
        bound, consumed = self.of(key)
        if bound or empty:
            response.keys.append(key)
            response.bindings.append(bound)
            if presence:
                response.online.append(consumed)
