"""Sessions that do not read, and what waits for them."""

from __future__ import annotations

from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.sessions import Session

from .nacks_driver import NacksDriver


def declared(core: NacksDriver, *queues: str, ack_timeout_ms: int = 0, max_deliveries: int = 3) -> None:
    step = wire.Declares(queues=[queue.encode() for queue in queues])
    options = QueueOptions(ack_timeout_ms=ack_timeout_ms, max_deliveries=max_deliveries)
    if max_deliveries:
        options = QueueOptions(ack_timeout_ms=ack_timeout_ms, max_deliveries=max_deliveries, dead_letter=b"dead")
    step.options.CopyFrom(options.to_wire())
    core.change(wire.Step(declares=step))


def attached(core: NacksDriver, queue: str = "q", handle: int = 1) -> Session:
    session = core.session()
    assert core.attach(session, queue, handle=handle)
    core.pump()
    return session


def leave(core: NacksDriver, session: Session) -> None:
    core.dispatcher.close(session)
    core.pump()
    core.settle()
