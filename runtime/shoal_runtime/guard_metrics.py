"""Names the metrics of a process's memory guard, which redirectors and slice nodes show under their own prefixes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shoal_runtime.memory_guard import MemoryGuard

Described = tuple[tuple[str, str, Callable[[MemoryGuard], float]], ...]

GAUGES: Final[Described] = (
    ("connections", "Connections to gRPC's ports at the last look.", lambda guard: guard.connections),
    ("connections_limit", "How many these ports take.", lambda guard: guard.connections_max),
    (
        "memory_unknown_bytes",
        "Above the budget and held by no connection, while memory is short.",
        lambda guard: guard.unknown_bytes,
    ),
)

COUNTERS: Final[Described] = (
    (
        "connections_ended_for_memory",
        "Ended because memory was short or grew fast.",
        lambda guard: guard.ended,
    ),
    ("connections_ended_for_room", "Ended because a port was nearly full.", lambda guard: guard.ended_for_room),
)
