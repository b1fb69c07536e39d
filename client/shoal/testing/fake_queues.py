"""Keeps the queues of a fake slice, with their lives: declare and drop by incarnation, as slice.proto says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from shoal_contract.errors import Conflict, NoSuchQueue
from shoal_contract.names import show
from shoal_contract.options import QueueOptions
from shoal_contract.wire import slice_pb2 as wire


@dataclass
class FakeQueue:
    """Keeps a queue's part. `incarnation` 0: not known, as after a bulk load. `life`: of this part, never used twice on
    a slice."""

    options: QueueOptions
    incarnation: int
    life: int


class FakeQueues:
    """Keeps the queues' parts. `is_home`: returns whether a queue's home is here. `on_drop`: ends what a queue has
    here."""

    def __init__(self, is_home: Callable[[bytes], bool], on_drop: Callable[[bytes], None]) -> None:
        self.parts: dict[bytes, FakeQueue] = {}
        """Queue -> its part."""
        self.made: list[bytes] = []
        """Queues that have got a part, until something takes them out."""
        self.knows_incarnations = True
        """False: does as a slice of an older version, whose declares answer with nothing."""
        self._is_home = is_home
        self._on_drop = on_drop
        self._lives = 0
        self._incarnations = 0

    def __contains__(self, queue: bytes) -> bool:
        return queue in self.parts

    def copy(self) -> Any:
        """Returns all queues as they are now, for `restore`."""
        return {queue: replace(part) for queue, part in self.parts.items()}, self._lives, self._incarnations

    def restore(self, copied: Any) -> None:
        """Makes all queues again what they were when `copy` returned this."""
        self.parts, self._lives, self._incarnations = copied

    def declare(self, queue: bytes, options: QueueOptions, incarnation: int) -> int:
        """Declares a queue. Returns its incarnation. Raises Conflict; NoSuchQueue for a life that is over."""
        found = self.parts.get(queue)
        if found is None and incarnation and self._is_home(queue):
            raise self._missing(queue)
        if found is not None and incarnation and found.incarnation != incarnation:
            if found.incarnation > incarnation:
                raise self._missing(queue)
            if found.incarnation:
                self.drop(queue, 0)
                found = None
            else:
                found.incarnation = incarnation
        if found is None:
            self._lives += 1
            self.made.append(queue)
            found = self.parts[queue] = FakeQueue(options, incarnation or self._next(queue), self._lives)
        if found.options != options:
            raise Conflict(f"queue {show(queue)} exists with other options", subject=show(queue))
        return found.incarnation

    def drop(self, queue: bytes, incarnation: int) -> int:
        """Drops a queue, in any life if `incarnation` is 0. Returns its incarnation. Raises NoSuchQueue."""
        found = self.parts.get(queue)
        if found is None:
            raise self._missing(queue)
        if incarnation and found.incarnation not in (0, incarnation):
            shown = show(queue)
            raise NoSuchQueue(f"another life of queue {shown} is here", subject=shown, value=incarnation)
        del self.parts[queue]
        self._on_drop(queue)
        return found.incarnation

    def check(self, queue: bytes) -> None:
        """Raises NoSuchQueue."""
        if queue not in self.parts:
            raise self._missing(queue)

    def life_of(self, queue: bytes) -> int:
        """Returns the life of a queue's part; 0: there is none."""
        found = self.parts.get(queue)
        return found.life if found is not None else 0

    def lives_on(self, queue: bytes, life: int) -> bool:
        """Returns whether a queue has a part of this life; of any, if `life` is 0."""
        return queue in self.parts and life in (0, self.parts[queue].life)

    def named(self, ack: wire.Ack) -> list[bytes]:
        """Returns the queues that an ack names by name; b"": it means another life than the queue has."""
        pairs = zip(ack.queues, ack.lives or [0] * len(ack.queues), strict=True)
        return [queue if self.lives_on(queue, life) else b"" for queue, life in pairs]

    def _next(self, queue: bytes) -> int:
        if not self.knows_incarnations or not self._is_home(queue):
            return 0
        self._incarnations += 100
        return self._incarnations

    def _missing(self, queue: bytes) -> NoSuchQueue:
        return NoSuchQueue(f"queue {show(queue)} has no part here", subject=show(queue))
