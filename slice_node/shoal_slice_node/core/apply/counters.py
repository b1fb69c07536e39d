"""Counts what a node did since it began to lead. Figures only: they decide nothing, and replicas may differ."""

from __future__ import annotations

from shoal_contract.wire.common_pb2 import ErrorCode


class Counters:
    """Keeps the counters; they change once for a step or a chunk, not for each key or message. The words are those of
    `shoal.v1.Counters`."""

    __slots__ = (
        "acks",
        "binds",
        "chunks",
        "declares",
        "deliveries",
        "drops",
        "expired",
        "publishes",
        "purges",
        "refused",
        "unbinds",
    )

    def __init__(self) -> None:
        self.declares = 0
        self.binds = 0
        self.unbinds = 0
        self.publishes = 0
        self.chunks = 0
        self.deliveries = 0
        self.acks = 0
        self.drops = 0
        self.expired = 0
        self.purges = 0
        self.refused: dict[ErrorCode.ValueType, int] = {}
        """The number of refusals by error code, of whole frames and of single requests."""

    @property
    def refusals(self) -> int:
        return sum(self.refused.values())

    def refuse(self, code: ErrorCode.ValueType) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1

    def count_live(self, messages: int) -> None:
        """Counts a live publish of one chunk."""
        self.publishes += messages
        self.chunks += 1

    def add(self, other: Counters) -> None:
        """Adds what one record did."""
        self.declares += other.declares
        self.binds += other.binds
        self.unbinds += other.unbinds
        self.publishes += other.publishes
        self.chunks += other.chunks
        self.acks += other.acks
        self.drops += other.drops
        self.expired += other.expired
        self.purges += other.purges
        for code, count in other.refused.items():
            self.refused[code] = self.refused.get(code, 0) + count
