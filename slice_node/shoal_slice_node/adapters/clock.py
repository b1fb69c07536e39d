"""Reads the machine's clocks, in milliseconds. Only adapters read them; the core is told the time."""

from __future__ import annotations

import time


def wall_ms() -> int:
    """Returns Unix time, which may jump forward or back."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Returns the time since some fixed moment. It never goes back, so it is for leases and intervals."""
    return time.monotonic_ns() // 1_000_000
