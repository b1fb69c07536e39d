"""Queues that are consumed, for live messages."""

from __future__ import annotations

from shoal_slice_node.core.dispatch.sessions import Session

from .core_driver import CoreDriver, bind, declare


def consumed(*keys: str, handle: int = 1) -> tuple[CoreDriver, Session]:
    """A queue bound to the keys, attached by a session."""
    core = CoreDriver()
    session = core.session()
    core.change(declare("q"), bind("q", *keys))
    core.attach(session, "q", handle)
    return core, session
