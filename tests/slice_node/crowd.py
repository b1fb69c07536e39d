"""Hundreds of connections that do not read what they were given, and keep the share of deliveries full."""

from __future__ import annotations

from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import LARGE_DELIVERY_BYTES

from .core_driver import CoreDriver, bind, declare, publish

SHARE_BYTES = 4 << 20
CHUNK = bytes(LARGE_DELIVERY_BYTES - 2_000)
CONNECTIONS = 300


def crowd() -> tuple[CoreDriver, list[Session]]:
    """Connections that hold all of the share in small chunks, and many more that wait for some of it."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=SHARE_BYTES))
    core.change(*(declare(f"c{number}") for number in range(CONNECTIONS)))
    core.change(*(bind(f"c{number}", "crowd") for number in range(CONNECTIONS)))
    sessions = [core.session(1 << 20, f"c{number}") for number in range(CONNECTIONS)]
    for number, session in enumerate(sessions):
        core.attach(session, f"c{number}")
    core.pump()
    for _ in range(8):
        core.change(publish("crowd", CHUNK))
        core.pump()
    line = core.dispatcher.shares.line
    assert line.is_nearly_full and line.waiting > CONNECTIONS // 2
    return core, sessions
