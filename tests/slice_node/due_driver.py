"""A node's core with a stepped clock, for what falls due."""

from __future__ import annotations

import asyncio

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters import clock, commit_loop
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.core.invariants.walk import check_tables
from shoal_slice_node.core.rows.due_row import DELAYED, decode_counts
from shoal_slice_node.core.tables.delta import Delta
from shoal_slice_node.core.tables.memory_tables import MemoryTables

from .core_driver import CoreDriver, Message, bind, declare, publish
from .memory_base import MemoryBase

HOUR_MS = 3_600_000


class DueDriver(CoreDriver):
    """Queue `q` is bound to `k`, and consumed by `reader`."""

    def __init__(self, delta: bool = True) -> None:
        super().__init__(Delta(MemoryBase()) if delta else MemoryTables())
        self.change(declare("q"), bind("q", "k"))
        self.consume()

    def consume(self) -> None:
        self.reader = self.session()
        assert self.attach(self.reader, "q")

    def later(self, key: str, *bodies: bytes, after_ms: int, mandatory: bool = False) -> wire.StepOutcome:
        step = publish(key, *bodies, mandatory=mandatory, not_before_ms=self.wall_ms + after_ms)
        return self.change(step).steps[0]

    def wait(self, ms: int) -> list[Message]:
        """The time goes on, in steps as of ticks. Returns what the reader got meanwhile."""
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self.now_ms = min(end_ms, self.now_ms + HOUR_MS // 60)
            self.maintain()
        return self.take(self.reader)

    @property
    def delayed(self) -> tuple[int, int]:
        """Chunks and bytes that are kept for later."""
        return decode_counts(self.tables.meta.get(DELAYED))[1:]


def check(core: DueDriver) -> None:
    assert not list(check_tables(core.tables, local_known=False))


class Clock:
    """The machine's clock, in the hand of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_ms = 1_790_000_000_000
        monkeypatch.setattr(clock, "wall_ms", lambda: self.wall_ms)
        monkeypatch.setattr(commit_loop, "wall_ms", lambda: self.wall_ms)


async def wait_for(broker: Broker, messages: int) -> None:
    """Nothing is asked of the slice meanwhile."""
    async with asyncio.timeout(60):
        while broker.state.kept.messages != messages:  # noqa: ASYNC110 - the node is doing it
            await asyncio.sleep(0.01)
