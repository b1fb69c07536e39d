"""Sessions that were not read as there was no room for their answers are read again once there is, whoever let go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation
from shoal_slice_node.adapters.answers import Answers
from shoal_slice_node.adapters.limits import ANSWERS_PENDING_MAX
from shoal_slice_node.core.node.reads import Length

from .brokers import connected, running
from .core_driver import declare
from .long_reads import LONG, few_answers, filled, settled, until
from .raw_session import RawSession

LARGE = wire.Answer(outcome=bytes(100_000))


def answers_of(room: AnswerRoom) -> Answers:
    return Answers(room, lambda: None)


@pytest.mark.parametrize("owed", [1, ANSWERS_PENDING_MAX])
def test_a_session_is_read_again_once_others_let_go_of_the_room_whatever_it_is_owed(owed: int) -> None:
    room = AnswerRoom(0)
    other, answers, closed = answers_of(room), answers_of(room), answers_of(room)
    while room.share.free_bytes > 0:
        other.add(LARGE, 1)
    for one in (answers, closed):
        one.expect(owed)
    closed.close()
    room.look_again()
    room.look_again()
    assert not answers.room.is_set()
    other.close()
    room.look_again()
    assert answers.room.is_set()
    answers.expect(ANSWERS_PENDING_MAX)
    room.look_again()
    assert not answers.room.is_set(), "it is owed too much"
    assert not room._shut


async def test_a_session_whose_read_waits_is_read_again_once_there_is_room(tmp_path: Path) -> None:
    """The room for answers was full as its read came, and what came behind that stood until the read was done."""
    async with running(tmp_path, options=few_answers()) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(60):
            stub, room = SliceServiceStub(channel), broker.answers
            await filled(stub)
            session = await RawSession.open(stub)
            held: list[Reservation] = []
            for source in LONG:
                room.reserve(held.append, source, length=Length.LONG)
            others_bytes = room.share.free_bytes
            room.change(others_bytes)
            asked = await session.write(wire.SessionRequest(pull=wire.Pull(queue=b"large", messages_max=1)))
            await until(lambda: room.waiting > len(LONG) - len(held))
            room.change(-others_bytes)
            await session.change(declare("late"))
            assert asked not in session.answers
            while held:
                held.pop().release()
            await session.read_until(lambda: asked in session.answers, 30)
            await settled(broker)
