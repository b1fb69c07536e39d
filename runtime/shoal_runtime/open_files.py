"""Sets how many files and connections this process may have open."""

from __future__ import annotations

import contextlib
import resource


def raise_open_files() -> int:
    """Raises the soft limit to the hard one, as servers may, and returns the limit after that.

    The soft limit is often 1,024 only because old programs cannot count further (select).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20
