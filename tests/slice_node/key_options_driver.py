"""A node's core with keys that have options."""

from __future__ import annotations

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.rows.key_row import KeyRow, decode_key

from .core_driver import CoreDriver, publish


class KeyOptionsDriver(CoreDriver):
    def key(self, name: str = "k") -> KeyRow | None:
        row = self.tables.key.get(self.state.full_name(name.encode()))
        return None if row is None else decode_key(row)

    def kept(self) -> tuple[int, int]:
        """The lowest offset that `k` keeps, and its head."""
        key = self.key()
        assert key is not None
        return key.low, key.head

    def say(self, *bodies: bytes) -> wire.StepOutcome:
        return self.change(publish("k", *bodies)).steps[0]

    def read(self, queue: str) -> list[bytes]:
        session = self.session()
        self.attach(session, queue)
        found = self.take(session)
        for key, offset, _ in found:
            self.ack(session, key, offset, offset + 1)
        self.flush()
        self.dispatcher.close(session)
        return [body for _, _, body in found]

    def later(self, ms: int) -> None:
        for _ in range(ms // 1000):
            self.now_ms += 1000
            self.maintain()
        while self.maintain():
            pass

    def sound(self) -> None:
        assert not list(check_tables(self.tables, local_known=False))
