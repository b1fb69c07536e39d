"""Room for large frames: in their order, one in a turn of the loop, and a bounded number that wait."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import grpc
import pytest

from shoal_contract.decode_error import DecodeError
from shoal_contract.errors import Malformed, ResourceExhausted
from shoal_contract.limits import PARSED_AT_ONCE_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import kept_frames
from shoal_slice_node.adapters.answer_room import AnswerRoom, Reservation
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.kept_frames import Frame, Kept, KeptFrames, parse_frame
from shoal_slice_node.adapters.limits import (
    SMALL_ANSWER_BYTES,
    SMALL_FRAME_BYTES,
    SMALL_FRAME_KEPT_BYTES,
    SMALL_FRAMES_BYTES_MIN,
    SMALL_FRAMES_PART,
    UNPARSED_FACTOR,
)
from shoal_slice_node.core.checking.session_frames import is_read, kept_bytes_most

from .brokers import OPTIONS, connected, running, served
from .core_driver import bind, declare, publish
from .measured_frames import frame_of
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub


def kept_frames_of(small_bytes: int, reads_bytes: int, others_bytes: int, large: FrameRoom) -> KeptFrames:
    """With room for all answers."""
    return KeptFrames(small_bytes, reads_bytes, others_bytes, large, AnswerRoom(1 << 30))


async def test_one_large_frame_is_parsed_in_a_turn_of_the_loop() -> None:
    room = FrameRoom(1_000_000)
    in_turn: list[int] = []
    turn = 0

    async def parse() -> None:
        await room.take(1_000, "a")
        in_turn.append(turn)

    tasks = [asyncio.create_task(parse()) for _ in range(20)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        turn += 1
    assert len(set(in_turn)) == 20


async def test_frames_wait_in_their_order_for_what_others_give_back() -> None:
    room = FrameRoom(1_000)
    order: list[int] = []

    async def take(number: int, size_bytes: int) -> None:
        await room.take(size_bytes, "a")
        order.append(number)

    tasks = [asyncio.create_task(take(number, size)) for number, size in enumerate((600, 600, 100, 1_500))]
    done, _ = await asyncio.wait(tasks, timeout=0.05)
    assert order == [0] and len(done) == 1
    room.give(600)
    await asyncio.wait(tasks[:3])
    assert order == [0, 1, 2]
    room.give(600)
    room.give(100)
    await asyncio.wait_for(tasks[3], 5)
    room.give(1_500)
    assert not room._used_bytes and not room._waiting_bytes


async def test_who_leaves_while_it_waits_gives_back_what_it_has() -> None:
    room = FrameRoom(1_000)
    await room.take(1_000, "a")
    waits, next_one = (asyncio.create_task(room.take(500, "a")) for _ in range(2))
    await asyncio.sleep(0)
    waits.cancel()
    room.give(1_000)
    await asyncio.wait_for(next_one, 5)
    room.give(500)
    chosen = asyncio.create_task(room.take(500, "a"))
    await asyncio.sleep(0)
    room._next()  # Its turn has come, and it does not know yet.
    chosen.cancel()
    await asyncio.wait([chosen])
    assert not room._used_bytes and not room._waiting_bytes and not room._lines


async def test_connections_come_in_turn() -> None:
    """One connection of 190 sessions made everybody's large frames wait for seconds."""
    room = FrameRoom(1_000)
    order: list[str] = []

    async def take(connection: str) -> None:
        await room.take(700, connection)
        order.append(connection)
        room.give(700)

    async with asyncio.TaskGroup() as group:
        for connection in [*["many"] * 3, "one", "many"]:
            group.create_task(take(connection))
    assert order == ["many", "one", "many", "many", "many"]


async def test_frames_that_wait_are_bounded_and_who_has_most_gives_way() -> None:
    """150 sessions that sent one each at once took a node of 512 MiB to 771."""
    room = FrameRoom(1_000)
    await room.take(1_000, "a")
    greedy = [asyncio.create_task(room.take(1_000, "greedy")) for _ in range(4)]
    await asyncio.sleep(0)
    honest = asyncio.create_task(room.take(1_000, "honest"))
    done, _ = await asyncio.wait([*greedy, honest], timeout=0.05)
    (refused,) = done
    error = refused.exception()
    assert refused is greedy[3] and isinstance(error, ResourceExhausted)
    assert (error.limit, error.value) == (4_000, 5_000)
    for _ in range(4):
        room.give(1_000)
        for _ in range(4):
            await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*greedy[:3], honest), 5)
    assert not room._waiting_bytes and not room._lines


async def test_a_frame_a_little_larger_than_those_of_others_is_not_always_the_one_that_ends() -> None:
    """Forty connections with a frame each chose so that it was never theirs."""
    room = FrameRoom(1_000)
    await room.take(1_000, "holds all")
    limit = UNPARSED_FACTOR * 1_000
    honest = asyncio.ensure_future(room.take(limit // 36, "honest"))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(room.take(limit // 40, f"{number}")) for number in range(60)]
    done, _ = await asyncio.wait([honest, *others], timeout=0.05)
    assert honest not in done and others[-1] in done
    late = asyncio.ensure_future(room.take(limit // 36, "late"))
    await asyncio.wait([late], timeout=0.05)
    error = late.exception()
    assert isinstance(error, ResourceExhausted) and "of this connection" not in error.message
    for task in (honest, *others):
        task.cancel()
    await asyncio.gather(honest, *others, return_exceptions=True)
    assert not room._waiting_bytes and not room._lines


async def test_as_many_frames_end_as_it_takes_and_no_more() -> None:
    room = FrameRoom(100)
    await room.take(100, "holds all")
    limit = UNPARSED_FACTOR * 100
    sizes = [limit // 4] * 4 + [10, 10, limit]
    peers = ["many"] * 4 + ["small", "tiny", "large"]
    tasks = [asyncio.ensure_future(room.take(size, peer)) for size, peer in zip(sizes, peers, strict=True)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ended = [peer for task, peer in zip(tasks, peers, strict=True) if task.done()]
    assert ended == ["many", "large"], "one for the two small ones, and the large one itself"
    assert room._waiting_bytes == 3 * (limit // 4) + 20
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not room._waiting_bytes and not room._lines


async def test_room_is_taken_at_once_only_where_none_waits_for_it() -> None:
    room = FrameRoom(1_000)
    assert room.take_now(600) and not room.take_now(600)
    waiting = asyncio.create_task(room.take(700, "a"))
    await asyncio.sleep(0)
    assert not room.take_now(100), "it would fit, but another one came before"
    room.give(600)
    await waiting
    room.give(700)
    assert not room._used_bytes


@pytest.mark.parametrize("kind", ["acks", "nacks", "attach", "detach", "describe", "change", "live"])
async def test_frames_that_wait_for_their_turns_are_bounded_as_parsed(tmp_path: Path, kind: str) -> None:
    """Parsed, a frame of 2,000 acks (28 KB) takes 1.3 MB: eight sessions send 48 MB of them. A frame of 1,000 names to
    attach takes 20 times its bytes: 480 sessions took a node of 400 MiB to 1,174."""
    async with running(tmp_path) as broker, served(broker, tmp_path) as address:
        limit, most = 1_000_000, 0
        broker.kept_frames = KeptFrames(limit, limit, limit, broker.large_frames, broker.answers)
        room = broker.kept_frames.reads if kind == "describe" else broker.kept_frames.others
        taken = room._fits

        def fits(size_bytes: int) -> bool:
            nonlocal most
            most = max(most, room._used_bytes)
            return taken(size_bytes)

        room._fits = fits  # type: ignore[method-assign]  # a look at what is used
        async with grpc.aio.insecure_channel(address) as channel:
            stub: SliceServiceAsyncStub = SliceServiceStub(channel)
            sessions = [await RawSession.open(stub) for _ in range(8)]
            steps = [declare("q"), bind("q", "k"), *(publish("k", *[b"x"] * 1000) for _ in range(4))]
            await sessions[0].change(*steps)
            frame = frame_of(kind)
            one = parse_frame(frame.SerializeToString()).bytes
            for _ in range(5):
                last = [await session.write(frame) for session in sessions]
            answered = sessions[0].read_until(lambda: last[0] in sessions[0].answers)
            await asyncio.wait_for(answered, 60)
            for session in sessions:
                session.call.cancel()
            async with asyncio.timeout(60):
                while room._used_bytes or room._waiting_bytes:  # noqa: ASYNC110 - rooms tell nobody
                    await asyncio.sleep(0.005)
        assert one <= most <= max(limit, kept_bytes_most(frame.ByteSize()))


async def test_what_a_session_leaves_behind_gives_its_room_back(tmp_path: Path) -> None:
    """A session that ends drops its work that waits for a turn, and no answer is made of it."""
    async with running(tmp_path) as broker, served(broker, tmp_path) as address:
        rooms = broker.kept_frames.reads, broker.kept_frames.others
        async with grpc.aio.insecure_channel(address) as channel:
            stub: SliceServiceAsyncStub = SliceServiceStub(channel)
            for kind in ("attach", "detach", "describe", "acks", "nacks", "change", "live"):
                session = await RawSession.open(stub)
                for _ in range(10):
                    await session.write(frame_of(kind))
                session.call.cancel()
            async with asyncio.timeout(60):
                while any(room._used_bytes or room._waiting_bytes for room in rooms):  # noqa: ASYNC110 - rooms tell nobody
                    await asyncio.sleep(0.005)
                await (await RawSession.open(stub)).change(declare("q"))
        assert not any(room._used_bytes for room in rooms)


async def test_what_is_no_frame_gives_its_room_back() -> None:
    frames = kept_frames_of(10_000, 10_000, 10_000, FrameRoom(10_000))
    steps: list[float] = []
    _, kept, _ = await frames.parsed(frame_of("detach").SerializeToString(), "a", 0, steps.append)
    waiting = asyncio.create_task(frames.parsed(b"\x22\xff", "b", 0, steps.append))
    other = asyncio.create_task(frames.parsed(b"\x22\xff", "c", 0, steps.append))
    await asyncio.sleep(0)
    kept.free()
    done = await asyncio.gather(waiting, other, return_exceptions=True)
    assert [type(error).__name__ for error in done] == ["Malformed", "Malformed"]
    assert not frames.others._used_bytes and not frames.others._waiting_bytes


async def test_a_large_frame_that_cannot_be_read_gives_its_room_back() -> None:
    """340 sessions with 70 KB of rubbish would have ended all large frames of everybody."""
    large = FrameRoom(100_000)
    frames = kept_frames_of(100_000, 100_000, 100_000, large)
    for _ in range(3):
        with pytest.raises(Malformed):
            await frames.parsed(b"\x22\xff" * 35_000, "hostile", 70_000, lambda _: None)
    assert not large._used_bytes and not frames.others._used_bytes


async def test_large_frames_beyond_the_room_for_them_are_all_worked_on(tmp_path: Path) -> None:
    """What takes their room and what gives it back are the same."""
    options = replace(OPTIONS, memory=replace(OPTIONS.memory, pending_bytes=512 << 10))
    async with running(tmp_path, options=options) as broker, connected(broker, tmp_path) as channel:
        async with asyncio.timeout(60):
            session = await RawSession.open(SliceServiceStub(channel))
            await session.change(declare("q"), bind("q", "k"))
            for _ in range(20):
                await session.change(publish("k", bytes(PARSED_AT_ONCE_BYTES_MAX + 5_000)))
        rooms = (broker.large_frames, broker.kept_frames.reads, broker.kept_frames.others)
        assert not any(room._used_bytes or room._waiting_bytes for room in rooms)
        assert not broker.kept_frames.small.used_bytes


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


async def test_room_of_a_frame_that_another_thread_collects_goes_to_the_next() -> None:
    """Garbage in circles is collected by whichever thread meets it, as the journal's."""
    frames = kept_frames_of(10_000, 10_000, 10_000, FrameRoom(10_000))
    data = frame_of("detach").SerializeToString()
    _, kept, _ = await frames.parsed(data, "a", 0, lambda _: None)
    kept.settle(10_000)
    waiting = asyncio.create_task(frames.parsed(data, "b", 0, lambda _: None))
    await asyncio.sleep(0)
    circle: list[object] = [kept]
    circle.append(circle)
    del kept, circle
    # A thread of its own: one of asyncio's wakes the loop when it ends, whatever it did.
    collecting = threading.Timer(0.1, gc.collect)
    collecting.start()
    _, other, _ = await asyncio.wait_for(waiting, 30)
    assert frames.others._used_bytes == other.bytes


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


async def test_describes_that_wait_for_their_answers_hold_up_no_other_frames() -> None:
    """A client that reads nothing kept the room of all frames, and with large ones the room to parse them, too."""
    large = FrameRoom(100_000)
    frames = kept_frames_of(1_000_000, 1_000_000, 1_000_000, large)
    describe = wire.SessionRequest(describe=wire.Describe(queues=[b"%0250d" % number for number in range(1000)]))
    data = describe.SerializeToString()
    held: list[Kept] = []
    waiting: list[asyncio.Task[tuple[Frame, Kept, float]]] = []
    for number in range(8):
        task = asyncio.create_task(frames.parsed(data, f"hostile {number}", len(data), lambda _: None))
        await asyncio.wait([task], timeout=0.05)
        if task.done():
            held.append(task.result()[1])
            large.give(len(data))
        else:
            waiting.append(task)
    assert held and waiting
    change = wire.SessionRequest(change=wire.Change(steps=[publish("k", bytes(70_000))]).SerializeToString())
    for request, large_bytes in ((frame_of("detach"), 0), (change, 70_000)):
        parsed = frames.parsed(request.SerializeToString(), "honest", large_bytes, lambda _: None)
        frame, kept, _ = await asyncio.wait_for(parsed, 10)
        assert frame.kind != "describe"
        kept.free()
        if large_bytes:
            large.give(large_bytes)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    for one in held:
        one.free()
    assert not frames.reads._used_bytes and not frames.others._used_bytes and not large._used_bytes


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


async def test_few_connections_leave_others_their_small_parts() -> None:
    frames = kept_frames_of(1 << 20, 100_000, 100_000, FrameRoom(100_000))
    greedy = [asyncio.create_task(ask_small(frames, f"{number % 40}")) for number in range(40 * 200)]
    await asyncio.sleep(0.5)
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
    assert not frames.small.used_bytes and frames.reads._used_bytes
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
        assert bool(frames.small.used_bytes) is has_room and bool(frames.reads._used_bytes) is not has_room
        kept.free()
        while answers.has_room_for_small:
            answers.reserve(held.append, "hostile", SMALL_ANSWER_BYTES)
    for one in held:
        one.release()


async def ask_for_many(frames: KeptFrames, data: bytes) -> None:
    held = [await frames.parsed(data, "greedy", 0, lambda _: None) for _ in range(100)]
    assert held
