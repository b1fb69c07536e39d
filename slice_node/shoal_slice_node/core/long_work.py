"""Counts the steps of long work by connection, so that those that ask for most of it can be told from the others."""

from __future__ import annotations

from collections.abc import Hashable

from shoal_slice_node.core.limits import LONG_WORK_CONNECTIONS_MAX, LONG_WORK_HALVED_STEPS


class LongWork:
    """Counts steps by connection. Counts halve as steps go on, so that what was long ago weighs little."""

    def __init__(self) -> None:
        self._steps: dict[Hashable, int] = {}
        self._all_steps = 0
        self._until_halved = LONG_WORK_HALVED_STEPS

    def __len__(self) -> int:
        return len(self._steps)

    def note(self, connection: Hashable) -> None:
        """Counts one step. Every now and then it looks at all connections: less than a millisecond."""
        self._until_halved -= 1
        if not self._until_halved or (len(self._steps) == LONG_WORK_CONNECTIONS_MAX and connection not in self._steps):
            self._halve()
        if connection in self._steps or len(self._steps) < LONG_WORK_CONNECTIONS_MAX:
            self._steps[connection] = self._steps.get(connection, 0) + 1
            self._all_steps += 1

    def is_heavy(self, connection: Hashable) -> bool:
        """Returns whether a connection had at least a quarter of the steps that one has on average, of those that had
        any."""
        steps = self._steps.get(connection, 0)
        return steps > 0 and 4 * steps * len(self._steps) >= self._all_steps

    def _halve(self) -> None:
        self._steps = {connection: steps // 2 for connection, steps in self._steps.items() if steps > 1}
        self._all_steps = sum(self._steps.values())
        self._until_halved = LONG_WORK_HALVED_STEPS
