"""Descriptions of a queue's parts become one."""

from __future__ import annotations

import pytest

from shoal.core.merging import merge_descriptions
from shoal_contract.wire import slice_pb2 as wire

LIFE = 7


def part(oldest_ms: int = 0, incarnation: int = LIFE) -> wire.QueueDescription:
    return wire.QueueDescription(
        queue=b"q",
        exists=True,
        incarnation=incarnation,
        binding_count=1,
        messages=int(oldest_ms > 0),
        body_bytes=3 * int(oldest_ms > 0),
        oldest_ms=oldest_ms,
    )


@pytest.mark.parametrize(
    ("times", "oldest_ms", "messages"),
    [
        ((), 0, 0),
        ((0, 0), 0, 0),
        ((5_000, 4_000, 6_000), 4_000, 3),
        ((4_000, 0), 4_000, 1),
        ((0, 4_000, 0), 4_000, 1),
    ],
)
def test_the_oldest_message_is_that_of_all_parts_with_a_backlog(
    times: tuple[int, ...], oldest_ms: int, messages: int
) -> None:
    """Most queues have a part without a backlog on some slice."""
    parts = [part(time) for time in times]
    found = merge_descriptions("q", parts, parts[0] if parts else wire.QueueDescription(queue=b"q"))
    assert (found.oldest_ms, found.messages, found.body_bytes) == (oldest_ms, messages, 3 * messages)


def test_a_part_of_another_life_has_no_age() -> None:
    found = merge_descriptions("q", [part(4_000, LIFE - 1), part(5_000)], part(5_000))
    assert (found.oldest_ms, found.messages) == (5_000, 1)
