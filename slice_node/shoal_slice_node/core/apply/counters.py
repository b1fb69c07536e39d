"""Counts what a node did since it began to lead. Figures only: they decide nothing, and replicas may differ."""

from __future__ import annotations

from shoal_contract.wire.common_pb2 import ErrorCode
from shoal_slice_node.core.apply.records import Reason


class Counters:
    """Keeps the counters; they change once for a step or a chunk, not for each key or message. The words are those of
    `shoal.v1.Counters`."""

    __slots__ = (
        "ack_timeouts",
        "acks",
        "binds",
        "chunks",
        "dead_left",
        "dead_nacked",
        "dead_timed_out",
        "declares",
        "deliveries",
        "drops",
        "farewells_refused",
        "farewells_said",
        "nacks",
        "publishes",
        "purges",
        "queues_expired",
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
        self.nacks = 0
        self.ack_timeouts = 0
        self.dead_nacked = 0
        self.dead_timed_out = 0
        self.dead_left = 0
        self.drops = 0
        self.queues_expired = 0
        self.farewells_said = 0
        self.farewells_refused = 0
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

    def count_back(self, reason: Reason, messages: int) -> None:
        """Counts messages that came back to their queue. Those that a session leaves behind are no figure."""
        if reason == Reason.NACK:
            self.nacks += messages
        elif reason == Reason.TIMEOUT:
            self.ack_timeouts += messages

    def count_dead(self, reason: int, messages: int) -> None:
        """Counts messages that were delivered as often as may be."""
        if reason == Reason.NACK:
            self.dead_nacked += messages
        elif reason == Reason.TIMEOUT:
            self.dead_timed_out += messages
        else:
            self.dead_left += messages

    def add(self, other: Counters) -> None:
        """Adds what one record did."""
        self.declares += other.declares
        self.binds += other.binds
        self.unbinds += other.unbinds
        self.publishes += other.publishes
        self.chunks += other.chunks
        self.acks += other.acks
        self.dead_nacked += other.dead_nacked
        self.dead_timed_out += other.dead_timed_out
        self.dead_left += other.dead_left
        self.drops += other.drops
        self.queues_expired += other.queues_expired
        self.farewells_said += other.farewells_said
        self.farewells_refused += other.farewells_refused
        self.purges += other.purges
        for code, count in other.refused.items():
            self.refused[code] = self.refused.get(code, 0) + count
