"""Tries the work of one slice again while the slice is away, or serves others first."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from shoal_contract.errors import ResourceExhausted, Unavailable
from shoal_pipeline.failure import typed
from shoal_pipeline.limits import IMPORT_ATTEMPTS_MAX, RETRY_S

Result = TypeVar("Result")


def again_if_away(
    slice_name: str, attempt: Callable[[], Result], say: Callable[[str], None], done: Callable[[], int] = lambda: 0
) -> Result:
    """Makes up to IMPORT_ATTEMPTS_MAX attempts; an attempt that got further than all before it does not count. `done`:
    returns how far the work is. Raises the error of the last attempt; an error other than Unavailable and
    ResourceExhausted is raised at once."""
    left, farthest = IMPORT_ATTEMPTS_MAX, done()
    while True:
        try:
            return attempt()
        except Exception as error:
            known = typed(error)
            if not isinstance(known, Unavailable | ResourceExhausted):
                raise known or error from None
            now = done()
            left = IMPORT_ATTEMPTS_MAX if now > farthest else left - 1
            if not left:
                raise known from None
            farthest = max(now, farthest)
            say(f"{slice_name} is away ({known.message}); trying again, {left} times at most")
            time.sleep(RETRY_S)
