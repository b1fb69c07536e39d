"""Queues this client knows lately, their options, and where they have parts. Bounded, and trusted briefly. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.limits import KNOWN_QUEUE_AGE_S, KNOWN_QUEUES_MAX


@dataclass(slots=True)
class _Known:
    expires_after_s: int
    since_s: float
    parts: set[str] = field(default_factory=set)


class KnownQueues:
    """The longest unused queue is forgotten first."""

    def __init__(self, queues_max: int = KNOWN_QUEUES_MAX, age_s: float = KNOWN_QUEUE_AGE_S) -> None:
        self._queues_max = queues_max
        self._age_s = age_s
        self._queues: dict[bytes, _Known] = {}
        """The queue used last is last."""

    def declared(self, queue: bytes, expires_after_s: int, home: str, now_s: float) -> None:
        """Its home says that it exists with these options."""
        before = self._queues.pop(queue, None)
        parts = before.parts if before is not None and before.expires_after_s == expires_after_s else set()
        self._queues[queue] = _Known(expires_after_s, now_s, parts | {home})
        if len(self._queues) > self._queues_max:
            del self._queues[next(iter(self._queues))]

    def options_of(self, queue: bytes, now_s: float) -> int | None:
        """Its `expires_after_s`; None if unknown, or known too long ago."""
        known = self._queues.get(queue)
        if known is None or now_s - known.since_s > self._age_s:
            return None
        self._queues[queue] = self._queues.pop(queue)
        return known.expires_after_s

    def has_part(self, queue: bytes, slice_name: str) -> bool:
        known = self._queues.get(queue)
        return known is not None and slice_name in known.parts

    def part_seen(self, queue: bytes, slice_name: str) -> None:
        known = self._queues.get(queue)
        if known is not None:
            known.parts.add(slice_name)

    def forget(self, queue: bytes) -> None:
        self._queues.pop(queue, None)
