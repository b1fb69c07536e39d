"""Sessions with a queue of their own, and what clients that read them get."""

from __future__ import annotations

from collections.abc import Sequence

from shoal_contract.chunk import parse_chunk
from shoal_slice_node.core.dispatch.sessions import Session

from .core_driver import CoreDriver, bind, declare, publish


def consumer(core: CoreDriver, name: str, connection: str, bodies: Sequence[bytes] = ()) -> Session:
    """A session with a queue of this name at a key of this name, with a message of each of these bodies."""
    core.change(declare(name), bind(name, name))
    for body in bodies:
        core.change(publish(name, body))
    session = core.session(1 << 20, connection)
    core.attach(session, name)
    core.pump()
    return session


def took(core: CoreDriver, session: Session) -> list[int]:
    """The transport takes what waits for the session, and the client reads it. The sizes of its bodies."""
    taken = core.dispatcher.take(session, 1 << 20)
    core.dispatcher.sent(session, taken.cost_bytes)
    core.pump()
    return [len(body) for one in taken.deliveries for body in parse_chunk(one.chunk).bodies]
