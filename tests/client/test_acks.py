"""Acks merge into ranges, and into one Ack for all who are done with the same."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import cast

from shoal.acks import AckGather, AckSender, framed
from shoal.frames import AcksFrame
from shoal.limits import ACK_FRAMES_MAX, ACK_HANDLES_MAX
from shoal.slice_session import SliceSession
from shoal_contract.wire import slice_pb2 as wire

Row = tuple[bytes, int, int, list[int | bytes]]


def rows(gather: AckGather) -> list[list[Row]]:
    return [[(key, low, end, list(consumers)) for key, low, end, consumers in frame] for frame in framed(gather.take())]


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


class Unanswered:
    """A session that leaves frames unanswered until told."""

    def __init__(self) -> None:
        self.frames: deque[AcksFrame] = deque()

    def send(self, frame: AcksFrame) -> None:
        self.frames.append(frame)

    def answer(self) -> None:
        self.frames.popleft().answered(wire.Answer())


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_flush_ends_although_more_is_acked_all_the_time() -> None:
    session = Unanswered()
    sender = AckSender(cast(SliceSession, session), lambda error: None)
    offset = 0

    def ack() -> None:
        nonlocal offset
        offset += 2
        sender.add(b"k", offset, offset + 1, (7,))

    ack()
    flushing = asyncio.ensure_future(sender.flush())
    await turns()
    assert len(session.frames) == 1
    for _ in range(3):
        ack()
        await sender_turn(sender, session)
    assert not flushing.done()
    session.answer()
    await turns()
    assert flushing.done()
    assert session.frames


async def sender_turn(sender: AckSender, session: Unanswered) -> None:
    """What is acked goes out behind what is unanswered."""
    before = len(session.frames)
    waiting = asyncio.ensure_future(sender.flush())
    await turns()
    assert len(session.frames) == before + 1
    waiting.cancel()


async def test_flush_waits_for_what_had_no_room_yet() -> None:
    session = Unanswered()
    sender = AckSender(cast(SliceSession, session), lambda error: None)
    for offset in range(ACK_FRAMES_MAX):
        sender.add(b"k", 2 * offset + 1, 2 * offset + 2, (7,))
        await sender_turn(sender, session)
    sender.add(b"k", 99, 100, (7,))
    flushing = asyncio.ensure_future(sender.flush())
    await turns()
    assert len(session.frames) == ACK_FRAMES_MAX

    while not flushing.done():
        assert session.frames, "it waits for nothing"
        session.answer()
        await asyncio.sleep(0.01)
    assert not session.frames


async def test_flush_of_nothing_returns_at_once() -> None:
    sender = AckSender(cast(SliceSession, Unanswered()), lambda error: None)

    await asyncio.wait_for(sender.flush(), 5)
