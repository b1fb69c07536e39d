"""Drives a node with farewells: a queue that reads what is said, and steps of time as of ticks."""

from __future__ import annotations

from shoal_contract.errors import (
    from_wire,
)
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import (
    Kind,
    encode_ownership,
)
from shoal_slice_node.core.dispatch.sessions import Session
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.node import requests
from shoal_slice_node.core.rows.farewell_row import FAREWELLS, decode_counts
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables
from shoal_slice_node.core.turns import finish

from .core_driver import PARTITIONS, CoreDriver, bind, declare, farewell
from .memory_base import MemoryBase

AFTER_S = 60
AFTER_MS = AFTER_S * 1000


class FarewellDriver(CoreDriver):
    """Queue `reader` is bound to `room`, and consumed."""

    def __init__(self, delta: bool = True) -> None:
        super().__init__(Delta(MemoryBase()) if delta else MemoryTables())
        self.change(declare("reader", "anna"), bind("reader", "room"))
        self.read()

    def read(self) -> None:
        self.reader = self.session()
        assert self.attach(self.reader, "reader", messages=10_000)

    def consumer(self, *queues: str) -> Session:
        session = self.session()
        for handle, queue in enumerate(queues, 1):
            assert self.attach(session, queue, handle)
        return session

    def wait(self, ms: int) -> list[bytes]:
        """The time goes on, in steps as of ticks. Returns what the reader got meanwhile."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + 1000)
            self.maintain()
        return self.said()

    def said(self) -> list[bytes]:
        return [body for _, _, body in self.take(self.reader)]

    @property
    def kept(self) -> tuple[int, int]:
        """Farewells that are kept, letters included, and their bytes."""
        return decode_counts(self.tables.meta.get(FAREWELLS))

    def described(self, queue: str) -> tuple[str, int, int] | None:
        """What a describe says of a queue's farewell: key, seconds, when it is due; None: it has none."""
        work = requests.describe(self.node, wire.Describe(queues=[queue.encode()]))
        (found,) = finish(work.whole()).description.queues
        if not found.HasField("farewell"):
            return None
        return found.farewell.key.decode(), found.farewell.after_s, found.farewell.due_ms

    def refused(self, step: wire.Step) -> Exception:
        (refusal,) = self.change(step).steps[0].refusals
        return from_wire(refusal.error)

    def check(self) -> None:
        assert not list(check_tables(self.tables, local_known=not isinstance(self.tables, Delta)))

    def id_of(self, queue: str) -> bytes:
        found = self.tables.queue_by_name.get(queue.encode())
        assert found is not None
        return found

    def own(self, *partitions: int) -> None:
        """The others are another slice's from now on."""
        owned = bytes(partition in partitions for partition in range(PARTITIONS))
        self.record(Kind.OWNERSHIP, encode_ownership(self.state.map_version + 1, owned))

    def partition(self, key: str) -> int:
        return int.from_bytes(self.state.unchecked_name(key.encode())[:2], "big")


GONE = farewell("anna", key="room", body=b"anna went offline", after_s=AFTER_S)
