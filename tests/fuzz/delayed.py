"""Models publishes that wait for their time: published once it has come, in the order of their times, never before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal_contract.chunk import parse_chunk

if TYPE_CHECKING:
    from tests.fuzz.owed import Owed


class Waiting(NamedTuple):
    """Describes a publish that was accepted and waits."""

    not_before_ms: int
    key: bytes
    chunk: bytes


class Delayed:
    """`waiting`: by number, in the order of acceptance."""

    def __init__(self) -> None:
        self.waiting: dict[int, Waiting] = {}
        self._accepted = 0

    def accept(self, key: bytes, chunk: bytes, not_before_ms: int) -> None:
        """Notes that a publish was accepted."""
        self._accepted += 1
        self.waiting[self._accepted] = Waiting(not_before_ms, key, chunk)

    def due(self, owed: Owed, rows: Sequence[tuple[int, int]], published: Sequence[int | None]) -> None:
        """Notes that a record did these rows, each with its time and number. `published`: how many queues each chunk
        was routed to, in order, None where it was kept for none; rows that the record left have no entry."""
        done: list[tuple[Waiting, int]] = []
        answers = iter(published)
        for time_ms, number in rows:
            one = self.waiting.get(number)
            if one is None or time_ms > owed.time_ms or not owed.owns(one.key):
                continue
            assert one.not_before_ms <= owed.time_ms, f"{one} is published at {owed.time_ms}, before its time"
            done.append((self.waiting.pop(number), next(answers) or 0))
        assert next(answers, 0) == 0, "a record published more than was due"
        sizes = [len(parse_chunk(one.chunk).bodies) if owed.keeps(one.key, queues) else 0 for one, queues in done]
        left: dict[bytes, int] = {}
        for (one, _), size in zip(done, sizes, strict=True):
            left[one.key] = left.get(one.key, 0) + size
        ends = {key: owed.look.key(key).head for key in left}
        for (one, queues), size in zip(done, sizes, strict=True):
            first = ends[one.key] - left[one.key] if size else 0
            left[one.key] -= size
            owed.published(one.key, one.chunk, first, queues)
