"""Acks merge into ranges, and into one Ack for all who are done with the same."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.acks import AckGather
from shoal.limits import ACK_HANDLES_MAX

Row = tuple[bytes, int, int, list[int | bytes]]


def rows(gather: AckGather) -> list[list[Row]]:
    frames = list(gather.take())
    return [[(ack.key, ack.low, ack.to, [*ack.handles, *ack.queues]) for ack in acks] for acks in frames]


def gathered(*acks: tuple[bytes, int, int, Sequence[int | bytes]]) -> AckGather:
    gather = AckGather()
    for ack in acks:
        gather.add(*ack)
    return gather


def test_messages_in_a_row_become_one_range() -> None:
    gather = gathered((b"k", 1, 2, (7,)), (b"k", 2, 3, (7,)), (b"k", 3, 4, (7,)))
    assert rows(gather) == [[(b"k", 1, 4, [7])]]
    assert not gather


def test_a_hole_keeps_two_ranges() -> None:
    assert rows(gathered((b"k", 1, 2, (7,)), (b"k", 3, 4, (7,)))) == [[(b"k", 1, 2, [7]), (b"k", 3, 4, [7])]]


def test_queues_done_with_the_same_share_an_ack() -> None:
    assert rows(gathered((b"k", 1, 2, (7,)), (b"k", 1, 2, (8,)))) == [[(b"k", 1, 2, [7, 8])]]


def test_deliveries_in_a_row_become_one_range() -> None:
    assert rows(gathered((b"k", 1, 5, [7, 8]), (b"k", 5, 6, [7, 8]))) == [[(b"k", 1, 6, [7, 8])]]


def test_keys_stay_apart_and_pulled_ones_go_by_queue() -> None:
    assert rows(gathered((b"k", 1, 2, (b"q",)), (b"l", 1, 2, (7,)))) == [[(b"k", 1, 2, [b"q"]), (b"l", 1, 2, [7])]]


def test_frames_are_bounded() -> None:
    many = list(range(ACK_HANDLES_MAX // 2 + 1))
    assert len(rows(gathered((b"k", 1, 2, many), (b"l", 1, 2, many)))) == 2
