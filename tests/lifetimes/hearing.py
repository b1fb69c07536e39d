"""Hears farewells, and copies of dead messages, from the queues that get them; checks that each came at its time."""

from __future__ import annotations

from shoal_contract.chunk import parse_chunk
from shoal_slice_node.core.read.reading import describe_key
from shoal_slice_node.core.rows.farewell_row import queue_key
from shoal_slice_node.core.turns import Source
from tests.lifetimes.consumers import Consumers
from tests.lifetimes.world import DEAD, EAR, GRAVE, HALL, LATE
from tests.slice_node.core_driver import acks


class Hearing(Consumers):
    """Adds what is said and what dies to a run."""

    def checked(self) -> None:
        """Checks all times, and hears what was said."""
        farewells = self.model.farewells
        head = describe_key(self.core.state, LATE.encode()).head
        self.model.came_due(LATE, head, self.wrote(), self.core.wall_ms)
        for name in list(self.model.queues):
            queue_id = self.core.tables.queue_by_name.get(name.encode())
            has = queue_id is not None and self.core.tables.farewell.get(queue_key(queue_id)) is not None
            is_consumed = bool(self.consumers(name))
            farewells.check_time(name, self.core.now_ms, is_consumed, has, queue_id is not None)
        self.hear()
        for name in [name for name in self.model.queues if name not in farewells.timers]:
            self.ended(name)
        assert not farewells.to_be_said, f"farewells were lost: {farewells.to_be_said}"
        self.model.check_dead(self.core.now_ms)

    def ended(self, name: str) -> None:
        """Notes that a queue is gone, with all that it was owed."""
        for session in self.sessions:
            self._leaves(session, name)
        del self.model.queues[name]

    def hear(self) -> None:
        """Takes farewells and copies from the queues that get them."""
        session = self.core.session()
        for ear, key in ((EAR, HALL), (GRAVE, DEAD)):
            while deliveries := self.core.pull(session, ear, 100):
                for delivery in deliveries:
                    chunk = parse_chunk(delivery.chunk)
                    for index in range(delivery.low - delivery.first, delivery.to - delivery.first):
                        if ear == EAR:
                            self.model.farewells.heard(chunk.bodies[index])
                        else:
                            self._copy(chunk.bodies[index], dict(chunk.headers[index].fields))
                    self.core.change(acks((ear, key, delivery.low, delivery.to)))
                self.core.pump()
        self.core.node.close_session(session, Source("lifetimes", session.number))
        self.heard_ms = self.told_ms

    def _copy(self, body: bytes, fields: dict[str, bytes]) -> None:
        name, key, offset = fields["shoal-queue"].decode(), fields["shoal-key"].decode(), int(fields["shoal-offset"])
        times, reason = int(fields["shoal-deliveries"]), fields["shoal-reason"].decode()
        self.model.copied(name, key, offset, body, times, reason, self.heard_ms)
        origin = fields["shoal-hops"], fields["shoal-origin-key"], int(fields["shoal-origin-offset"])
        assert origin == (b"1", key.encode(), offset), f"a copy of {key} {offset} says that it comes from {origin}"
