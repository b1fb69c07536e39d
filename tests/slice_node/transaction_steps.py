"""Steps of tests with transactions."""

from __future__ import annotations

from .core_driver import (
    CoreDriver,
    bind,
    declare,
    publish,
)


def consumed(*, bodies: int = 4) -> CoreDriver:
    """Queue q, bound to keys a and b, with messages 1, 2, ... of a, each a chunk."""
    core = CoreDriver()
    core.change(declare("q", "other"), bind("q", "a", "b"), *(publish("a", b"%d" % at) for at in range(bodies)))
    return core
