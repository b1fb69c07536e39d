"""Loses power: while nothing is asked, within a tick, and while a publish is written. What a start makes of the journal
is in driver.py."""

from __future__ import annotations

from random import Random

from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.core.apply.records import ChangeHead, Kind, encode_change
from shoal_slice_node.core.node.commit import Item
from tests.lifetimes.clock import TICK_MS, Clock
from tests.slice_node.core_driver import publish, raises

PRODUCER = b"one-producer-id!"


class Crashes(Clock):
    """Adds crashes to a run."""

    def crash(self, random: Random) -> None:
        """Loses power while nothing is asked."""
        self.look()
        self._after(random, 0)

    def crash_in_tick(self, random: Random) -> None:
        """Loses power while what a tick decided is written: some of it is durable."""
        self.begins_tick(random.choice((20, TICK_MS)))
        self.ticks()
        for _ in range(random.choice((0, 1, 2, 50))):
            self.core.node.turn()
        self._after(random, random.choice((0, 1, 2, 50)))

    def crash_in_publish(self, key: str, bodies: int, ttl_ms: int, random: Random) -> None:
        """Loses power while a publish is written. Its client asks again, with the same number, and then once more."""
        self.look()
        self.frames += 1
        head = ChangeHead(PRODUCER, self.frames, self.frames - 1)
        chunk = [self.new_body() for _ in range(bodies)]
        step = publish(key, *chunk, ttl_ms=ttl_ms)
        data = wire.Change(steps=[step]).SerializeToString()
        self.core.node.commit.submit(Item(Kind.CHANGE, encode_change(head, data), lambda _: None, raises))
        self._after(random, random.choice((0, 1)))
        outcome = self.core.change(step, head=head)
        self.published(key, outcome.steps[0].offsets[0], chunk, ttl_ms)
        assert self.core.change(step, head=head) == outcome, "a repeated publish has another answer"

    def _after(self, random: Random, durable: int) -> None:
        self.core.crash(random, durable)
        self.sessions.clear()
        self.windows.clear()
        self.order.forget()
        self.told_ms = 0
        for _, _, binding in self.model.bindings():
            binding.crashed()
        self.checked()
        self.model.farewells.crashed(self.core.now_ms)
        self.open()
