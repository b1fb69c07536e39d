"""Compares what was received with what was expected: every queue's content, message by message and in order. Pure.

The receipts turn windows into ranges of offsets. The ranges must be equal, and the body at each offset must be the one
published. The order was checked at arrival (received.py).
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
    """Describes one difference. `queue` is empty where the message itself is wrong. `messages`: how many messages, from
    `offset` on."""

    queue: str
    key: str
    offset: int
    messages: int
    problem: str


class Mismatches:
    """Counts all mismatches, and keeps up to MISMATCHES_KEPT_MAX of them."""

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
    """Compares one group's key, and adds what differs to `mismatches`."""
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
