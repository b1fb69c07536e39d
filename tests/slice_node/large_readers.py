"""Sessions that hold all of the share of deliveries with large chunks, and a pump that comes to rest beside them."""

from __future__ import annotations

from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.dispatch.shares import DispatchShares
from shoal_slice_node.core.limits import LARGE_DELIVERY_BYTES

from .core_driver import CoreDriver, bind, declare, publish

LARGE = bytes(2 * LARGE_DELIVERY_BYTES)
SHARE_BYTES = 6 * len(LARGE)
TURNS_MAX = 5_000


def crowded() -> tuple[CoreDriver, list[Session]]:
    """Sessions that hold all of the share with large chunks, or wait for some of it."""
    core = CoreDriver()
    core.restart(DispatchShares(deliveries_bytes=SHARE_BYTES))
    return core, readers_of(core)


def readers_of(core: CoreDriver) -> list[Session]:
    sessions = []
    for number in range(10):
        core.change(declare(f"r{number}"), bind(f"r{number}", f"r{number}"))
        for _ in range(3):
            core.change(publish(f"r{number}", LARGE))
        sessions.append(core.session(1 << 20, f"r{number}"))
        core.attach(sessions[-1], f"r{number}")
        rest(core)
    assert core.dispatcher.shares.line.is_nearly_full
    return sessions


def rest(core: CoreDriver) -> int:
    """Returns how many turns the pump had."""
    for number in range(TURNS_MAX):
        if not core.dispatcher.turn():
            return number
    raise AssertionError("the pump never rests")


def takes(core: CoreDriver, session: Session) -> int:
    """The transport takes what waits for the session. Returns how many chunks."""
    taken = core.dispatcher.take(session, 1 << 20)
    core.dispatcher.sent(session, taken.cost_bytes)
    rest(core)
    return len(taken.deliveries)
