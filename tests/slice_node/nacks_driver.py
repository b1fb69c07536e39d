"""A node's core with nacks and ack timeouts, driven by a test's clock."""

from __future__ import annotations

from shoal_contract.errors import ShoalError
from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.node import settling
from shoal_slice_node.core.turns import Source

from .core_driver import CoreDriver

TIMEOUT_MS = 5_000


class NacksDriver(CoreDriver):
    def nack(
        self, session: Session, low: int, to: int, delay_ms: int = 0, key: str = "k", handle: int = 1, queue: str = ""
    ) -> None:
        """Offsets that a session gives back, as its frame does; with `queue`, as a unary call does."""
        ack = wire.Ack(key=key.encode(), low=low, to=to)
        if queue:
            ack.queues.append(queue.encode())
        else:
            ack.handles.append(handle)
        self.frame(session, wire.Nacks(messages=[ack], delay_ms=delay_ms), everyone=bool(queue))

    def frame(self, session: Session, nacks: wire.Nacks, everyone: bool = False) -> None:
        found: list[ShoalError | None] = []
        settling.take_nacks(self.node, Source("test", session.number), session, nacks, found.append, everyone)
        while not found:
            self.node.turn()
        if found[0] is not None:
            raise found[0]

    def wait(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + 100)
            self.maintain()

    def times(self, session: Session) -> list[tuple[int, int]]:
        """Offset and `redelivered` of what the session gets now."""
        return [(offset, one.redelivered) for one in self.deliveries(session) for offset in range(one.low, one.to)]

    def timed(self, *queues: str) -> None:
        options = wire.Declares(queues=[queue.encode() for queue in queues])
        options.options.CopyFrom(QueueOptions(ack_timeout_ms=TIMEOUT_MS).to_wire())
        self.change(wire.Step(declares=options))


def attached(core: NacksDriver, queue: str = "q", messages: int = 1000) -> Session:
    session = core.session()
    assert core.attach(session, queue, messages=messages)
    return session
