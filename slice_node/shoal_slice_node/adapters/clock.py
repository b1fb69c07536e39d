"""The machine's clocks, in milliseconds. The core is told the time; only adapters look."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Unix time. It may jump, either way."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Time since some moment, which only grows: for leases and intervals."""
    return time.monotonic_ns() // 1_000_000
