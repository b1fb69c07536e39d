"""A node's core with queues that have dead-letter keys, driven by a test."""

from __future__ import annotations

from shoal_contract.chunk import parse_chunk
from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import Kind, encode_ownership
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.rows.detail_row import decode_detail

from .core_driver import PARTITIONS, bind, declare
from .nacks_driver import NacksDriver

Copy = tuple[bytes, dict[str, bytes]]


class DeadLettersDriver(NacksDriver):
    def bounded(self, queue: str, most: int = 2, dead_letter: str = "dead", ack_timeout_ms: int = 0) -> None:
        options = QueueOptions(0, ack_timeout_ms, most, dead_letter.encode())
        self.change(declare_with(queue, options))

    def copies(self, queue: str = "graveyard") -> list[Copy]:
        """What a queue of dead letters has, acked."""
        session = self.session()
        self.attach(session, queue, 9)
        found = []
        for one in self.deliveries(session):
            chunk = parse_chunk(one.chunk)
            for index in range(one.low - one.first, one.to - one.first):
                found.append((chunk.bodies[index], dict(chunk.headers[index].fields)))
            self.ack(session, one.key.decode(), one.low, one.to, 9)
        self.dispatcher.close(session)
        self.maintain()
        return found

    def counts(self) -> list[tuple[int, int, int]]:
        """The counts of all bindings."""
        return [tuple(one) for _, row in self.tables.detail.scan() for one in decode_detail(row).counts]  # type: ignore[misc]

    def again(self, session: Session, low: int, to: int, delay_ms: int = 0, key: str = "k") -> None:
        self.nack(session, low, to, delay_ms, key)
        self.maintain()


def declare_with(queue: str, options: QueueOptions) -> wire.Step:
    declares = wire.Declares(queues=[queue.encode()])
    declares.options.CopyFrom(options.to_wire())
    return wire.Step(declares=declares)


def with_graveyard() -> DeadLettersDriver:
    """Queue `q` is bound to `k`; its dead letters come to queue `graveyard`."""
    core = DeadLettersDriver()
    core.bounded("q")
    core.change(declare("graveyard"), bind("q", "k"), bind("graveyard", "dead"))
    return core


def foreign(core: DeadLettersDriver) -> None:
    """From here on another slice owns the dead-letter key."""
    partition = int.from_bytes(core.state.full_name(b"dead")[:2], "big")
    owned = bytes(number != partition for number in range(PARTITIONS))
    assert core.state.owns(b"dead") and owned.count(1)
    core.record(Kind.OWNERSHIP, encode_ownership(2, owned))
