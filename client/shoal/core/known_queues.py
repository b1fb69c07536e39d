"""Caches queues' options and lives, and the slices that have a part of each. Bounded, and trusted briefly."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from shoal.limits import KNOWN_QUEUE_AGE_S, KNOWN_QUEUES_MAX
from shoal_contract.options import QueueOptions


class Life(NamedTuple):
    """Holds a queue's options and life, as its home tells them. `incarnation` 0: not known."""

    options: QueueOptions
    incarnation: int


def same_life(one: int, other: int) -> bool:
    """Returns whether two incarnations may be of one life."""
    return one == other or not one or not other


@dataclass(slots=True)
class _Known:
    life: Life
    since_s: float
    parts: set[str] = field(default_factory=set)


class KnownQueues:
    """Remembers queues. Forgets the queue first that was not used for longest."""

    def __init__(self, queues_max: int = KNOWN_QUEUES_MAX, age_s: float = KNOWN_QUEUE_AGE_S) -> None:
        self._queues_max = queues_max
        self._age_s = age_s
        self._queues: dict[bytes, _Known] = {}
        """The queue used last is last."""

    def declared(self, queue: bytes, life: Life, home: str, now_s: float) -> None:
        """Records what the home says: this life of the queue exists now. Forgets parts of another life."""
        before = self._queues.pop(queue, None)
        parts = before.parts if before is not None and before.life == life else set()
        self._queues[queue] = _Known(life, now_s, parts | {home})
        if len(self._queues) > self._queues_max:
            del self._queues[next(iter(self._queues))]

    def life_of(self, queue: bytes, now_s: float) -> Life | None:
        """Returns a queue's life; None if it is unknown, or was learned too long ago."""
        known = self._queues.get(queue)
        if known is None or now_s - known.since_s > self._age_s:
            return None
        self._queues[queue] = self._queues.pop(queue)
        return known.life

    def has_part(self, queue: bytes, slice_name: str) -> bool:
        """Returns whether the slice is known to have a part of the queue."""
        known = self._queues.get(queue)
        return known is not None and slice_name in known.parts

    def part_seen(self, queue: bytes, slice_name: str) -> None:
        """Records that the slice has a part of the queue. Does nothing for a queue that is not known."""
        known = self._queues.get(queue)
        if known is not None:
            known.parts.add(slice_name)

    def forget(self, queue: bytes) -> None:
        """Forgets the queue: it may have another life now."""
        self._queues.pop(queue, None)
