"""Acks merge into ranges, and into one Ack for all who are done with the same."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import cast

import pytest

from shoal.ack_sender import AckSender
from shoal.core.acks import AckConsumer, Acked, AckGather, PulledLife, framed, to_wire
from shoal.core.frames import AcksFrame
from shoal.limits import ACK_BYTES_MAX, ACK_FRAMES_MAX, ACK_HANDLES_MAX
from shoal.slice_session import SliceSession
from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import until

Row = tuple[bytes, int, int, list[AckConsumer]]


def rows(gather: AckGather) -> list[list[Row]]:
    return [[(key, low, end, list(consumers)) for key, low, end, consumers in frame] for frame in framed(gather.take())]


def gathered(*acks: tuple[bytes, int, int, Sequence[AckConsumer]]) -> AckGather:
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
    pulled = PulledLife(b"q", 3)
    assert rows(gathered((b"k", 1, 2, (pulled,)), (b"l", 1, 2, (7,)))) == [[(b"k", 1, 2, [pulled]), (b"l", 1, 2, [7])]]


def test_lives_of_a_queue_stay_apart_and_travel_beside_its_name() -> None:
    first, second = PulledLife(b"q", 3), PulledLife(b"q", 300)
    (blocks,) = framed(gathered((b"k", 1, 2, (first,)), (b"k", 2, 3, (second,)), (b"k", 1, 2, (second,))).take())
    assert [to_wire(block) for block in blocks] == [
        wire.Ack(key=b"k", low=2, to=3, queues=[b"q"], lives=[300]),
        wire.Ack(key=b"k", low=1, to=2, queues=[b"q", b"q"], lives=[3, 300]),
    ]
    assert not to_wire(Acked(b"k", 1, 2, (PulledLife(b"q", 0),))).lives, "a slice of an older version tells none"


def test_frames_of_acks_are_bounded_by_their_handles() -> None:
    many = list(range(ACK_HANDLES_MAX // 2 + 1))
    assert len(rows(gathered((b"k", 1, 2, many), (b"l", 1, 2, many)))) == 2


class Unanswered:
    """A session that leaves frames unanswered until told."""

    def __init__(self) -> None:
        self.frames: deque[AcksFrame] = deque()
        self.came = asyncio.Event()

    def send(self, frame: AcksFrame) -> None:
        self.frames.append(frame)
        self.came.set()

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


def test_a_block_with_too_many_consumers_is_cut_into_frames() -> None:
    many = list(range(2 * ACK_HANDLES_MAX + 1))
    frames = rows(gathered((b"k", 1, 2, many)))
    assert [len(acks[0][3]) for acks in frames] == [ACK_HANDLES_MAX, ACK_HANDLES_MAX, 1]
    assert [handle for acks in frames for ack in acks for handle in ack[3]] == many


def test_frames_are_bounded_in_bytes() -> None:
    gather = AckGather()
    for number in range(2000):
        gather.add(b"k" * 250, 1, 2, (PulledLife(b"%0250d" % number, 1 << 40),))
    frames = list(framed(gather.take()))
    encoded = [wire.Acks(acks=[to_wire(block) for block in frame]).ByteSize() for frame in frames]
    assert len(frames) > 5 and max(encoded) <= ACK_BYTES_MAX
    assert sum(len(block.consumers) for frame in frames for block in frame) == 2000


async def test_acks_refused_for_want_of_room_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that was full for a moment ends no inbox (correctness M2)."""
    monkeypatch.setattr("shoal.ack_sender.ACK_AGAIN_S", 0.01)
    session = Unanswered()
    errors: list[ShoalError] = []
    answered: list[Acked] = []
    sender = AckSender(cast(SliceSession, session), errors.append, answered.extend)
    sender.add(b"k", 1, 3, (7,))
    flushing = asyncio.ensure_future(sender.flush())
    await turns()
    session.came.clear()
    session.frames.popleft().failed(ResourceExhausted("no disk space"))
    await session.came.wait()
    assert not flushing.done() and not answered
    session.answer()
    await asyncio.wait_for(flushing, 5)
    assert answered == [Acked(b"k", 1, 3, [7])] and not errors


async def test_a_lost_stream_gives_back_what_was_not_answered() -> None:
    session = Unanswered()
    sender = AckSender(cast(SliceSession, session), lambda error: None, of_stream=True)
    sender.add(b"k", 1, 2, (7,))
    flushing = asyncio.ensure_future(sender.flush())
    await turns()
    sender.add(b"k", 5, 6, (7, 8))
    assert list(sender.pending()) == [Acked(b"k", 1, 2, [7]), Acked(b"k", 5, 6, (7, 8))]
    assert sender.stream_ended() == [Acked(b"k", 1, 2, [7]), Acked(b"k", 5, 6, (7, 8))]
    await asyncio.wait_for(flushing, 5)
    session.answer()  # Comes to nothing: it was of the lost stream.
    assert not sender


async def test_what_was_not_sent_of_an_ended_life_is_left_out() -> None:
    session = Unanswered()
    sender = AckSender(cast(SliceSession, session), lambda error: None, of_stream=True)
    sender.add(b"k", 1, 2, (7, 8))
    sender.add(b"k", 9, 10, (7,))
    flushing = asyncio.ensure_future(sender.flush())
    sender.forget([7])
    await turns()
    assert list(sender.pending()) == [Acked(b"k", 1, 2, [8])]
    session.answer()
    await asyncio.wait_for(flushing, 5)
    sender.add(b"k", 1, 2, (8,))
    sender.forget([8])
    await asyncio.wait_for(sender.flush(), 5)
    assert not sender


async def test_what_is_in_flight_of_an_ended_life_ends_nothing_of_the_next() -> None:
    session = Unanswered()
    answered: list[Acked] = []
    sender = AckSender(cast(SliceSession, session), lambda error: None, answered.extend, of_stream=True)
    sender.add(b"k", 1, 3, (7, 8))
    flushing = asyncio.ensure_future(sender.flush())
    await turns()
    sender.forget([7])
    assert list(sender.pending()) == [Acked(b"k", 1, 3, [8])], "a nack of the next life is no nack of what was acked"
    session.answer()
    await asyncio.wait_for(flushing, 5)
    assert answered == [Acked(b"k", 1, 3, [8])]
    sender.add(b"k", 1, 3, (7, 8))
    sender.send()
    sender.forget([7])
    assert sender.stream_ended() == [Acked(b"k", 1, 3, [8])]


@pytest.mark.parametrize("ended", [[7], [7, 8]])
async def test_acks_that_are_sent_again_name_no_ended_life(monkeypatch: pytest.MonkeyPatch, ended: list[int]) -> None:
    monkeypatch.setattr("shoal.ack_sender.ACK_AGAIN_S", 0.01)
    session = Unanswered()
    sender = AckSender(cast(SliceSession, session), lambda error: None, of_stream=True)
    sender.add(b"k", 1, 3, (7, 8))
    flushing = asyncio.ensure_future(sender.flush())
    await turns()
    session.came.clear()
    session.frames.popleft().failed(ResourceExhausted("no disk space"))
    sender.forget(ended)
    if ended == [7]:
        await asyncio.wait_for(session.came.wait(), 5)
        request = wire.SessionRequest()
        session.frames[0].fill(request)
        assert request.acks.acks[0].handles == [8]
        session.answer()
    await asyncio.wait_for(flushing, 5)
    assert not session.frames and not sender


async def test_a_frame_says_what_its_client_had_seen_when_it_was_made() -> None:
    """It may wait to be sent while the stream tells of another life, for which its acks are not meant."""
    session = Unanswered()
    seen: list[int | None] = [0]
    sender = AckSender(cast(SliceSession, session), lambda error: None, of_stream=True, resets_seen=lambda: seen[0])
    sender.add(b"k", 1, 2, (7, 8))
    sender.send()
    seen[0] = 1
    sender.forget([7])
    sender.add(b"k", 2, 3, (7,))
    sender.send()
    session.frames[0].failed(ResourceExhausted("the disk is full"))
    await until(lambda: len(session.frames) == 3)
    seen[0] = None
    sender.add(b"k", 3, 4, (7,))
    sender.send()
    requests = [wire.SessionRequest() for _ in session.frames]
    assert all(frame.fill(request) for frame, request in zip(session.frames, requests, strict=True))
    found = [(list(request.acks.acks[0].handles), request.acks.resets_seen) for request in requests]
    assert found == [([7, 8], 0), ([7], 1), ([8], 1), ([7], 0)]
    assert [request.acks.HasField("resets_seen") for request in requests] == [True, True, True, False]
