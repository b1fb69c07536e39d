"""Small frames: each connection has a part of its own, and waits for that; which frames ask for large answers."""

from __future__ import annotations

import asyncio
import gc
from random import Random

import pytest

from shoal_contract.decode_error import DecodeError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters import kept_frames
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.kept_frames import Frame, Kept, KeptFrames, SmallFrames, parse_frame
from shoal_slice_node.adapters.limits import (
    SMALL_ANSWER_BYTES,
    SMALL_FRAME_BYTES,
    SMALL_FRAME_KEPT_BYTES,
    SMALL_FRAMES_BYTES_MIN,
    SMALL_FRAMES_PART,
)
from shoal_slice_node.core.checking.session_frames import is_read

from .core_driver import publish
from .frame_rooms import kept_frames_of


def test_padding_of_any_kind_makes_a_read_no_other_frame() -> None:
    """A describe with a field that nobody knows took the room of all others."""
    describe = wire.SessionRequest(describe=wire.Describe(queues=[b"q"])).SerializeToString()
    number = 900
    for kind, value in ((0, b"\x05"), (1, bytes(8)), (2, b"\x03abc"), (5, bytes(4))):
        tag = number << 3 | kind
        padding = bytes([tag & 0x7F | 0x80, tag >> 7]) + value
        for data in (padding + describe, describe + padding, padding * 3 + describe + padding):
            assert wire.SessionRequest.FromString(data).WhichOneof("frame") == "describe"
            assert is_read(data), (kind, data)


def request_of(kind: str, random: Random) -> wire.SessionRequest:
    """A frame of this kind, with the other fields as any client may set them."""
    request = wire.SessionRequest(sequence=random.choice((0, 1, 1 << 60)), settled=random.choice((0, 7)))
    if kind == "change":
        request.change = random.randbytes(random.randrange(300))
    else:
        getattr(request, kind).SetInParent()
    return request


KINDS = [field.name for field in wire.SessionRequest.DESCRIPTOR.oneofs_by_name["frame"].fields]


def test_what_asks_for_large_answers_is_known_before_it_is_parsed() -> None:
    random = Random(3)
    for _ in range(3000):
        kinds = [random.choice(KINDS) for _ in range(random.choice((0, 1, 1, 2, 3)))]
        data = b"".join(request_of(kind, random).SerializeToString() for kind in kinds)
        if random.random() < 0.3:
            cut = bytearray(data)
            for _ in range(random.randrange(4)):
                cut[random.randrange(len(cut)) if cut else 0 : 1] = random.randbytes(random.randrange(3))
            data = bytes(cut)
        try:
            kind = wire.SessionRequest.FromString(data).WhichOneof("frame")
        except DecodeError:
            is_read(data)
            continue
        if kind in ("pull", "describe"):
            assert is_read(data), data
    for name in KINDS:
        assert is_read(request_of(name, random).SerializeToString()) is (name in ("pull", "describe"))


async def test_small_frames_do_not_wait_behind_the_large_ones_of_others() -> None:
    """Publishers of 1,000 messages a frame left a session that publishes one at a time a few a second."""
    frames = kept_frames_of(100_000, 100_000, 100_000, FrameRoom(100_000))
    large = wire.SessionRequest(change=wire.Change(steps=[publish("k", bytes(5_000))]).SerializeToString())
    small = wire.SessionRequest(change=wire.Change(steps=[publish("k", b"x")]).SerializeToString())
    others = [
        asyncio.create_task(frames.parsed(large.SerializeToString(), f"other {number}", 0, lambda _: None))
        for number in range(20)
    ]
    await asyncio.sleep(0.01)
    assert frames.others.crowded
    held = []
    for _ in range(3):
        parsed = frames.parsed(small.SerializeToString(), "honest", 0, lambda _: None)
        _, kept, _ = await asyncio.wait_for(parsed, 10)
        held.append(kept)
    greedy = asyncio.create_task(ask_for_many(frames, small.SerializeToString()))
    await asyncio.sleep(0.01)
    assert not greedy.done(), "each connection has a small part, and more waits for it"
    for task in (*others, greedy):
        task.cancel()
    await asyncio.wait((*others, greedy))
    for kept in held:
        kept.free()
    gc.collect()
    await asyncio.sleep(0.01)
    assert not frames.small._used


async def test_small_frames_of_all_connections_together_are_bounded() -> None:
    """A client may open any number of connections: its small parts went beyond the budget."""
    frames = kept_frames_of(20_000, 20_000, 20_000, FrameRoom(20_000))
    data = wire.SessionRequest(change=wire.Change(steps=[publish("k", b"x")]).SerializeToString()).SerializeToString()
    each = parse_frame(data).bytes
    asking = [asyncio.create_task(frames.parsed(data, f"{number}", 0, lambda _: None)) for number in range(200)]
    await asyncio.sleep(0.05)
    done = [task for task in asking if task.done()]
    assert 20_000 // each < len(done) <= 2 * 20_000 // each + 1
    for task in done:
        task.result()[1].free()
    while waiting := [task for task in asking if task not in done]:
        now, _ = await asyncio.wait(waiting, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert now
        for task in now:
            task.result()[1].free()
        done += now
    assert not frames.small._used and not frames.small.used_bytes and not frames.others._used_bytes


SMALL = wire.SessionRequest(change=wire.Change(steps=[publish("k", b"x")]).SerializeToString()).SerializeToString()


async def ask_small(frames: KeptFrames, connection: str) -> Kept:
    return (await frames.parsed(SMALL, connection, 0, lambda _: None))[1]


async def test_a_small_frame_beyond_its_connections_part_waits_for_those_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for a turn among the large frames of others, and all that its session sent behind it, too."""
    frames = kept_frames_of(2 << 20, 100_000, 100_000, FrameRoom(100_000))
    parsed: list[Frame] = []

    def parse(data: bytes) -> Frame:
        parsed.append(parse_frame(data))
        return parsed[-1]

    monkeypatch.setattr(kept_frames, "parse_frame", parse)
    asking = [asyncio.create_task(ask_small(frames, "a")) for _ in range(300)]
    await asyncio.sleep(0.05)
    done = [task for task in asking if task.done()]
    part_bytes = ((2 << 20) - frames.small.used_bytes) // SMALL_FRAMES_PART
    assert part_bytes <= frames.small.used_bytes < part_bytes + 2 * parsed[0].bytes
    assert 80 < len(done) == len(parsed) < 200, "what waits is not parsed"
    assert not frames.others._used_bytes and (await ask_small(frames, "b")).bytes
    for number, task in enumerate(asking):
        if number % 3 == 2 and not task.done():
            task.cancel()  # Its turn goes to the next.
    for task in asking:
        if not task.cancelling():
            (await asyncio.wait_for(task, 10)).free()
    gc.collect()
    await asyncio.sleep(0.01)
    assert not frames.small.used_bytes and not frames.small._waiting


async def test_a_turn_that_was_given_to_a_session_that_ends_goes_to_the_next() -> None:
    """With nothing kept, nothing is freed any more: all other sessions of its connection would be silent for good."""
    small = SmallFrames(0)
    kept = small.kept("a", SMALL_FRAMES_BYTES_MIN)
    first, second = (asyncio.create_task(small.turn("a")) for _ in range(2))
    await asyncio.sleep(0)
    kept.free()
    first.cancel()  # In the turn of the loop in which it was given its turn.
    await asyncio.wait_for(second, 10)
    assert first.cancelled() and not small._waiting and not small.used_bytes


async def test_few_connections_leave_others_their_small_parts() -> None:
    frames = kept_frames_of(1 << 20, 100_000, 100_000, FrameRoom(100_000))
    greedy = [asyncio.create_task(ask_small(frames, f"{number % 40}")) for number in range(40 * 200)]
    while not all(task.done() or frames.small._waiting for task in greedy):  # noqa: ASYNC110 - rooms tell nobody
        await asyncio.sleep(0.005)
    assert 2 * frames.small.used_bytes >= 1 << 20
    assert not frames.small.all_used, "parts shrink with what is free"
    assert SMALL_FRAMES_BYTES_MIN <= frames.small._used["39"] < 2 * SMALL_FRAMES_BYTES_MIN
    kept = [await asyncio.wait_for(ask_small(frames, "honest"), 10) for _ in range(5)]
    for task in greedy:
        task.cancel()
    await asyncio.wait(greedy)
    for one in kept:
        one.free()
    gc.collect()
    await asyncio.sleep(0.01)


async def test_what_waits_in_its_part_goes_among_the_others_once_all_parts_are_used() -> None:
    frames = kept_frames_of(256 << 10, 100_000, 1 << 20, FrameRoom(100_000))
    asking = [asyncio.create_task(ask_small(frames, "a")) for _ in range(300)]
    await asyncio.sleep(0.05)
    held = [task.result() for task in asking if task.done()]
    while not frames.small.all_used:
        held.append(await asyncio.wait_for(ask_small(frames, f"{len(held)}"), 10))
    for one in held[:20]:
        one.free()
    for number in range(30):
        held.append(await asyncio.wait_for(ask_small(frames, f"last {number}"), 10))
    assert frames.others._used_bytes
    for task in asking:
        task.cancel()
    await asyncio.wait(asking)


async def test_small_frames_that_ask_for_large_answers_take_no_small_parts() -> None:
    """They keep their room until their answers have some: 262 connections that read nothing had all small parts."""
    frames = kept_frames_of(100_000, 1_000_000, 100_000, FrameRoom(100_000))
    data = wire.SessionRequest(describe=wire.Describe(queues=[b"q"], bindings=True)).SerializeToString()
    held = [(await frames.parsed(data, f"hostile {number}", 0, lambda _: None))[1] for number in range(100)]
    assert not frames.small.used_bytes and frames.small_reads.used_bytes
    assert (await asyncio.wait_for(ask_small(frames, "honest"), 10)).bytes
    waiting = [asyncio.create_task(frames.parsed(data, "more", 0, lambda _: None)) for _ in range(1000)]
    await asyncio.sleep(0.05)
    assert frames.reads.crowded
    look = wire.SessionRequest(describe=wire.Describe(queues=[b"q"])).SerializeToString()
    frame, kept, _ = await asyncio.wait_for(frames.parsed(look, "honest", 0, lambda _: None), 10)
    assert frame.kind == "describe" and frames.small.used_bytes
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    for one in (*held, kept):
        one.free()


async def test_a_small_frame_that_is_large_as_parsed_takes_no_small_part() -> None:
    """2 KiB of acks count as 140 KB: thirty connections had all small parts with a frame or two each."""
    frames = kept_frames_of(1 << 20, 100_000, 1 << 20, FrameRoom(100_000))
    acks = wire.Acks(acks=[wire.Ack(key=b"k", low=1, to=2, handles=[1])] * 150)
    data = wire.SessionRequest(acks=acks).SerializeToString()
    assert len(data) <= SMALL_FRAME_BYTES
    frame, kept, _ = await frames.parsed(data, "hostile", 0, lambda _: None)
    assert frame.bytes > SMALL_FRAME_KEPT_BYTES
    assert (frames.small.used_bytes, frames.others._used_bytes) == (0, frame.bytes)
    kept.free()


async def test_a_look_takes_no_small_part_where_its_answer_has_no_room() -> None:
    answers = AnswerRoom(1 << 30)
    frames = KeptFrames(1 << 20, 1 << 20, 1 << 20, FrameRoom(100_000), answers)
    look = wire.SessionRequest(describe=wire.Describe(queues=[b"q"])).SerializeToString()
    held: list[Reservation] = []
    for has_room in (True, False):
        _, kept, _ = await frames.parsed(look, "a", 0, lambda _: None)
        assert bool(frames.small.used_bytes) is has_room and bool(frames.small_reads.used_bytes) is not has_room
        kept.free()
        while answers.has_room_for_small:
            answers.reserve(held.append, "hostile", SMALL_ANSWER_BYTES)
    for one in held:
        one.release()


async def ask_for_many(frames: KeptFrames, data: bytes) -> None:
    held = [await frames.parsed(data, "greedy", 0, lambda _: None) for _ in range(100)]
    assert held


async def test_pulls_of_few_connections_that_are_not_answered_leave_room_for_those_of_others() -> None:
    """Each keeps its room until it is answered. 1,920 of a large queue, sent once over two connections, made the pulls
    and describes of all sessions wait for 20 minutes."""
    frames = kept_frames_of(100_000, 200_000, 100_000, FrameRoom(100_000))
    pull = wire.SessionRequest(pull=wire.Pull(queue=b"large", messages_max=1)).SerializeToString()

    def asked(connection: str) -> asyncio.Task[tuple[Frame, Kept, float]]:
        return asyncio.create_task(frames.parsed(pull, connection, 0, lambda _: None))

    greedy = [asked(f"greedy {number % 2}") for number in range(1_000)]
    await asyncio.sleep(0.01)
    assert frames.reads.crowded and not all(task.done() for task in greedy)
    honest = [asked("honest") for _ in range(5)]
    done, _ = await asyncio.wait(honest, timeout=10)
    assert len(done) == len(honest)
    assert frames.small_reads.used_bytes < 100_000
    while greedy:
        now, _ = await asyncio.wait(greedy, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        assert now
        for task in now:
            task.result()[1].free()
            greedy.remove(task)
    for task in done:
        task.result()[1].free()
    assert not frames.small_reads.used_bytes and not frames.reads._used_bytes
