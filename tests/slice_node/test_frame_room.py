"""Room for large frames: in their order, one in a turn of the loop, and a bounded number that wait."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from shoal_contract.errors import Malformed, ResourceExhausted, Unavailable
from shoal_contract.limits import PARSED_AT_ONCE_BYTES_MAX
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.kept_frames import Frame, Kept, KeptFrames, parse_frame
from shoal_slice_node.adapters.limits import (
    UNPARSED_FACTOR,
)
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import Kind
from shoal_slice_node.core.checking.session_frames import kept_bytes_most
from shoal_slice_node.core.node.commit import Item

from .brokers import OPTIONS, connected, running, served
from .core_driver import bind, declare, publish
from .frame_rooms import kept_frames_of
from .looped_node import change_of, looped
from .measured_frames import frame_of
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub


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


async def test_small_frames_do_not_keep_a_large_one_waiting() -> None:
    """400 sessions of frames of 64 KB kept one of 100 KB waiting for as long as they went on."""
    async with looped() as (node, _):
        node.disk.hold = held = threading.Event()
        payload = change_of(publish("k", bytes(1 << 20)))
        for number in range(60):
            node.loop.submit(Item(Kind.CHANGE, payload, lambda _: None, lambda _: None), number)
        assert node.commit.pending_bytes > 48 << 20
        await asyncio.wait_for(node.loop.large_frames.take(100_000, "large"), 10)
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        item = Item(Kind.CHANGE, payload, answer.set_result, answer.set_result, large_bytes=100_000)
        node.loop.submit(item, "large")
        held.set()
        assert isinstance(await asyncio.wait_for(answer, 10), Effects)
        assert not node.loop.large_frames._used_bytes


async def test_who_waits_with_a_large_frame_hears_that_the_loop_ends() -> None:
    async with looped() as (node, _):
        await node.loop.large_frames.take(1 << 30, "one")
        waiting = asyncio.create_task(node.loop.large_frames.take(1 << 20, "other"))
        await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await waiting
