"""Expected against received: every queue's content, message by message and in order. Pure.

Windows become ranges of offsets by the receipts; ranges must be equal, and the body at each offset the one published.
Order was checked at arrival (received.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shoal_contract.names import show
from shoal_ops.limits import MISMATCHES_KEPT_MAX
from shoal_ops.replay.expectation import GroupExpectation
from shoal_ops.replay.offsets import Offsets
from shoal_ops.replay.ranges import without
from shoal_ops.replay.received import ReceivedKey


@dataclass(frozen=True, slots=True)
class Mismatch:
    """`queue` is empty where the fault is the message's. `messages`: how many, from `offset` on."""

    queue: str
    key: str
    offset: int
    messages: int
    problem: str


class Mismatches:
    """Counted all, kept up to MISMATCHES_KEPT_MAX."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[Mismatch] = []

    def add(self, queue: bytes, key: bytes, offset: int, problem: str, messages: int = 1) -> None:
        self.count += messages
        if len(self.first) < MISMATCHES_KEPT_MAX:
            self.first.append(Mismatch(show(queue), show(key), offset, messages, problem))


def compare(
    key: bytes, expected: GroupExpectation, offsets: Offsets, received: ReceivedKey | None, mismatches: Mismatches
) -> None:
    """One group's key."""
    held = received or ReceivedKey()
    for queue in sorted(expected.queues() | held.heads.keys()):
        due, given = offsets.ranges(expected.windows(queue)), held.ranges(queue)
        if due == given:
            continue
        for first, end in without(due, given):
            mismatches.add(queue, key, first, "missing", end - first)
        for first, end in without(given, due):
            mismatches.add(queue, key, first, "not for this queue", end - first)
    for offset in _wrong_bodies(expected, offsets, held):
        mismatches.add(b"", key, offset, "another body than was published")


def _wrong_bodies(expected: GroupExpectation, offsets: Offsets, received: ReceivedKey) -> Iterator[int]:
    for first, end, number in offsets.runs(0, len(expected.digests)):
        for offset in range(first, end):
            found = received.digest(offset)
            if found and found != expected.digests[number + offset - first]:
                yield offset
