"""Keeps the farewells of a fake slice, and publishes each once no session has consumed its queue for its time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from shoal_contract.errors import Malformed, check_at_most
from shoal_contract.limits import FAREWELL_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire


@dataclass
class FakeFarewell:
    """Keeps one farewell. `timer`: runs while nothing consumes its queue."""

    key: bytes
    chunk: bytes
    after_s: int
    timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Ends the time."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class FakeFarewells:
    """Keeps the farewells of queues. `used`: returns whether a session consumes a queue. `say`: publishes a chunk at a
    key of whichever slice."""

    def __init__(self, used: Callable[[bytes], bool], say: Callable[[bytes, bytes], None]) -> None:
        self.kept: dict[bytes, FakeFarewell] = {}
        """Queue -> its farewell."""
        self._used = used
        self._say = say

    def change(self, queue: bytes, number: int, step: wire.Farewells) -> None:
        """Does what a step asks for its queue of this number."""
        self.forget(queue)
        if step.keys:
            check_at_most("farewell bytes", len(step.chunks[number]), FAREWELL_BYTES_MAX)
            self.kept[queue] = FakeFarewell(step.keys[number], step.chunks[number], step.after_s)
        elif step.after_s:
            raise Malformed("a farewell that is taken back has no time", subject="after_s")

    def forget(self, queue: bytes) -> None:
        """Takes a queue's farewell back, if it has one."""
        old = self.kept.pop(queue, None)
        if old is not None:
            old.stop()

    def describe(self, queue: bytes, description: wire.QueueDescription) -> None:
        """Adds a queue's farewell to its description, if it has one."""
        kept = self.kept.get(queue)
        if kept is None:
            return
        description.farewell.key, description.farewell.after_s = kept.key, kept.after_s
        if kept.timer is not None:
            left_s = kept.timer.when() - asyncio.get_running_loop().time()
            description.farewell.due_ms = round((time.time() + left_s) * 1000)

    def look(self) -> None:
        """Begins and ends times. Must be called when sessions consume other queues than before, and after changes."""
        for queue, farewell in list(self.kept.items()):
            if self._used(queue):
                farewell.stop()
            elif farewell.timer is None:
                farewell.timer = asyncio.get_running_loop().call_later(farewell.after_s, self._over, queue, farewell)

    def _over(self, queue: bytes, farewell: FakeFarewell) -> None:
        if self.kept.get(queue) is farewell:
            del self.kept[queue]
            self._say(farewell.key, farewell.chunk)
