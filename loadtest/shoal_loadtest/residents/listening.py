"""Shows deliveries to the checker and acks them, and audits which messages residents should have got."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import shoal
from shoal_loadtest.residents.core.names import group_of, resident_of
from shoal_loadtest.residents.core.talk import Heard, Said, read_body
from shoal_loadtest.residents.core.town import NOBODY
from shoal_loadtest.residents.core.windows import CHANGED, OUTSIDE
from shoal_loadtest.residents.limits import DELIVERIES_PER_TURN_MAX, FAULT_EVERY
from shoal_loadtest.residents.scene import Scene, now_s


class Listening:
    """Reads the inbox. `audited`: how many members were looked at for a message, in all."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._looked_at = 0
        self.audited = 0

    async def run(self) -> None:
        """Reads deliveries for ever. Raises ShoalError if the inbox was refused."""
        taken = 0
        async for delivery in self._scene.inbox.deliveries():
            self._take(delivery)
            delivery.ack_nowait()
            taken += 1
            if taken % DELIVERIES_PER_TURN_MAX == 0:
                await asyncio.sleep(0)

    def audit(self, heard: Iterable[Heard]) -> None:
        """Checks that every member whose window holds a message has it by now; a member that has not has lost it."""
        for one in heard:
            for place in self._should_have(one):
                self.audited += 1
                if not self._scene.windows.came(place, one.offset):
                    self._scene.windows.miss(place, one.offset + 1)

    def is_complete(self, heard: Heard) -> bool:
        return all(self._scene.windows.came(place, heard.offset) for place in self._should_have(heard))

    def _should_have(self, heard: Heard) -> list[int]:
        town = self._scene.town
        number, generation = group_of(heard.key)
        group = town.group_numbered(number)
        if town.generation(group) != generation:
            return []
        return [place for _, place in town.members(group) if self._scene.windows.watching(place, heard.offset)]

    def _take(self, delivery: shoal.Delivery) -> None:
        samples, town = self._scene.samples, self._scene.town
        number, generation = group_of(delivery.key_bytes)
        group = town.group_numbered(number)
        queues = self._faulty(delivery.queues_bytes)
        for offset, body in enumerate(delivery.bodies, delivery.first):
            said = read_body(body)
            if said is None or (said.group, said.generation) != (group, generation):
                self._scene.faults.add(CHANGED, f"key {delivery.key}", f"offset {offset} is not a message to this key")
                continue
            self._heard(delivery, offset, said)
        samples.counts["deliveries"] += len(queues) * len(delivery)
        samples.counts["redelivered"] += len(queues) * len(delivery) if delivery.redelivered else 0
        current = group != NOBODY and town.generation(group) == generation
        for queue in filter(None, queues):  # No name: the queue was detached while the delivery waited to be read.
            resident = resident_of(queue)
            if self._scene.is_dropping(resident):
                continue
            seat = town.seat_of(resident)
            place = town.place_in(seat, group) if current and seat != NOBODY else NOBODY
            if place != NOBODY:
                self._scene.windows.saw(place, delivery.first, delivery.end, delivery.redelivered)
            else:
                where = f"queue {queue.decode()}, key {delivery.key}"
                self._scene.faults.add(OUTSIDE, where, f"offset {delivery.first} came; the resident is no member")

    def _heard(self, delivery: shoal.Delivery, offset: int, said: Said) -> None:
        self._scene.talk.noted(delivery.key_bytes, offset, said, now_s())
        if not delivery.redelivered:
            self._scene.samples.took("delivery", said.due_s)

    def _faulty(self, queues: list[bytes]) -> list[bytes]:
        """Returns the queues with the setting's `fault` now and then, only while measuring. One fault could go
        unnoticed, as a resident that leaves at once would not miss a single message."""
        fault = self._scene.setting.fault
        if fault == "none" or not self._scene.samples.measuring:
            return queues
        self._looked_at += 1
        if self._looked_at % FAULT_EVERY:
            return queues
        return queues[1:] if fault == "drop" else [*queues, queues[0]]
