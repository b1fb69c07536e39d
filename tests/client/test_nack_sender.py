"""When nacks go out, and what is waited for: without a slice."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from shoal.core.frames import Frame
from shoal.nack_sender import NackSender
from shoal.slice_session import SliceSession
from shoal_contract.errors import ResourceExhausted, ShoalError
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import until


class Session:
    """Keeps the frames that it is to send."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def send(self, frame: Frame) -> None:
        self.frames.append(frame)

    def sent(self) -> list[wire.Nacks]:
        """What the frames carry."""
        requests = [wire.SessionRequest() for _ in self.frames]
        for request, frame in zip(requests, self.frames, strict=True):
            assert frame.fill(request)
        return [request.nacks for request in requests]


def not_refused(error: ShoalError) -> None:
    raise AssertionError(error)


async def test_numbered_nacks_of_a_lost_stream_are_not_sent_on_the_next_one() -> None:
    """They would take back what was handed out there."""
    session = Session()
    sender = NackSender(cast(SliceSession, session), not_refused)
    first = sender.add_numbered(b"k", 1, 3, 7)
    sender.stream_ended()
    second = sender.add_numbered(b"k", 8, 9, 7)
    sender.send()
    assert [(nacks.number, [(ack.low, ack.to) for ack in nacks.messages]) for nacks in session.sent()] == [
        (second, [(8, 9)])
    ]
    assert second > first, "a number is not used again"


@pytest.mark.parametrize("numbered", [True, False])
async def test_a_flush_of_all_nacks_waits_for_those_that_were_not_sent_yet(numbered: bool) -> None:
    session = Session()
    sender = NackSender(cast(SliceSession, session), not_refused)
    if numbered:
        sender.add_numbered(b"k", 1, 3, 7)
    else:
        sender.add(b"k", 1, 3, (7,), None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await sender.flush_all()
    (frame,) = session.frames
    frame.answered(wire.Answer())
    async with asyncio.timeout(10):
        await sender.flush_all()


async def test_a_nack_that_is_sent_again_is_for_the_life_of_its_message() -> None:
    session = Session()
    seen = [0]
    sender = NackSender(cast(SliceSession, session), not_refused, lambda: seen[0])
    sender.add(b"k", 1, 2, (7,), 0)
    sender.send()
    seen[0] = 1
    sender.add(b"k", 1, 2, (7,), 0)
    sender.send()
    session.frames[0].failed(ResourceExhausted("too many rest"))
    await until(lambda: len(session.frames) == 3)
    assert [nacks.resets_seen for nacks in session.sent()] == [0, 1, 0]
