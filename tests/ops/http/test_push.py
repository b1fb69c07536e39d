"""Push in this process, on a real cluster: what all streams together may hold, and streams of dropped connections."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from shoal_ops.http import limits
from shoal_ops.http.push import Push, Stream, size_of
from shoal_runtime.tasks import Tasks
from tests.client.calls import fresh, offsets_made_equal
from tests.ops.http.conftest import WAIT_S, Running
from tests.ops.http.pushed import all_of

BODY = b"x" * 20_000


async def until_ended(stream: Stream) -> None:
    """Without taking anything."""
    while not stream.ended:
        stream._changed.clear()
        await stream._changed.wait()


async def test_a_reader_that_is_behind_loses_live_messages(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WINDOW_BYTES", 3 * len(BODY))
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await broker.declare("live-behind")
        stream = await push.open(b"live-behind")
        for _ in range(30):
            await broker.send("live-behind", BODY, live=True)
        await broker.send("live-behind", b"last")
        async with asyncio.timeout(WAIT_S):
            while not any(isinstance(one, shoal.Message) and one.body == b"last" for one, _ in stream._held.values()):
                stream._changed.clear()
                await stream._changed.wait()
        assert len(stream._held) == 4, "three live ones filled it; a stored one is never lost"
        await push.close(stream)
        assert push.held_bytes == 0
        await push.stop()


async def test_the_stream_that_holds_most_is_ended_when_memory_is_short(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HELD_BYTES_MAX", 100_000)
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await broker.declare(["held-most", "held-little"])
        most, little = await push.open(b"held-most"), await push.open(b"held-little")
        await broker.send("held-little", b"small")
        for _ in range(6):
            await broker.send("held-most", BODY)
        async with asyncio.timeout(WAIT_S):
            await until_ended(most)
        assert (most.ended, await most.next(0)) == ("memory", [])
        assert await all_of(little, 1) == [1], "the other goes on"
        await push.close(most)
        assert push.held_bytes == 0
        monkeypatch.undo()  # Else it may be ended again, as fast as messages come.
        again = await push.open(b"held-most")
        assert await all_of(again, 6) == [1, 2, 3, 4, 5, 6], "nothing is lost"
        await push.stop()


async def test_as_many_are_ended_as_memory_wants_also_where_the_writer_hangs(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HELD_BYTES_MAX", 3 * len(BODY))
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        queues = [f"hang-{number}" for number in range(6)]
        await broker.declare(queues)
        streams = [await push.open(queue.encode()) for queue in queues]
        for stream, queue in zip(streams, queues, strict=True):
            # Each has one batch that is never written, and more behind it.
            await broker.send(queue, b"first")
            async with asyncio.timeout(WAIT_S):
                while not await stream.next(1):
                    assert not stream.ended
        for _ in range(3):
            for queue in queues:
                await broker.send(queue, BODY)
        async with asyncio.timeout(WAIT_S):
            while sum(stream.ended == "memory" for stream in streams) < 3:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)
        assert push.held_bytes <= limits.HELD_BYTES_MAX
        for stream in streams:
            await push.close(stream)
        assert push.held_bytes == 0
        await push.stop()


async def test_a_stream_that_holds_little_goes_on_whatever_ended_ones_are_writing(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What hung in the writers of ended streams was above the bound alone: then all others were ended, too."""
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        queues = [f"lent-{number}" for number in range(4)]
        await broker.declare([*queues, "little"])
        little = await push.open(b"little")
        streams = [await push.open(queue.encode()) for queue in queues]
        for stream, queue in zip(streams, queues, strict=True):
            await broker.send(queue, BODY)
            async with asyncio.timeout(WAIT_S):
                while not await stream.next(1):  # It is written for ever.
                    assert not stream.ended
        monkeypatch.setattr(limits, "HELD_BYTES_MAX", 2 * len(BODY))
        for number in range(3):
            await broker.send("little", b"%d" % number)
        assert await all_of(little, 3) == [1, 2, 3]
        assert not little.ended and [stream.ended for stream in streams].count("memory") == 3
        await push.stop()


async def test_what_is_being_written_counts_as_held(running: Running) -> None:
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await broker.declare("lent")
        stream = await push.open(b"lent")
        await broker.send("lent", BODY)
        async with asyncio.timeout(WAIT_S):
            while not (batch := await stream.next(1)):
                assert not stream.ended
        assert push.held_bytes == stream.held_bytes == batch.held_bytes > len(BODY)
        stream.written(batch)
        assert push.held_bytes == 0
        await push.stop()


async def test_messages_of_several_keys_with_one_offset_wait_side_by_side(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known by its offset alone, each one would take the place of the one before, which no reader saw."""
    came: list[object] = []
    put = Stream.put

    def noted(stream: Stream, message: shoal.Message | shoal.Gap, held_bytes: int) -> None:
        put(stream, message, held_bytes)
        came.append(message)

    monkeypatch.setattr(Stream, "put", noted)
    rooms = sorted(fresh("one-offset") for _ in range(8))
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await broker.declare(["offsets", "one-offset"])
        await broker.bind("offsets", rooms)
        last = await offsets_made_equal(broker, rooms)
        await broker.bind("one-offset", rooms)
        stream = await push.open(b"one-offset")
        assert {(await broker.publish(room, b"x")).offset for room in rooms} == {last + 1}
        async with asyncio.timeout(WAIT_S):
            while len(came) < len(rooms):
                stream._changed.clear()
                await stream._changed.wait()
        batch = await stream.next(1)
        assert sorted(one.key for one in batch if isinstance(one, shoal.Message)) == rooms
        stream.written(batch)
        assert push.held_bytes == 0
        await push.stop()


async def test_a_queue_that_is_not_there_leaves_no_trace(running: Running) -> None:
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        with pytest.raises(shoal.NoSuchQueue):
            await push.open(b"not-there-yet")
        assert len(push) == 0
        await broker.declare("not-there-yet")
        await broker.send("not-there-yet", b"x")
        assert await all_of(await push.open(b"not-there-yet"), 1) == [1]
        await push.stop()


async def test_the_number_of_streams_is_bounded(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAMS_MAX", 2)
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await broker.declare(["bound-1", "bound-2", "bound-3"])
        first = await push.open(b"bound-1")
        await push.open(b"bound-2")
        with pytest.raises(shoal.ResourceExhausted, match="event streams: 3; the limit is 2"):
            await push.open(b"bound-3")
        await push.close(first)
        await push.open(b"bound-3")
        await push.stop()


async def test_headers_count_as_held(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that were not read held 500 messages each of any headers, which counted as nothing."""
    headers = {"x": b"y" * len(BODY)}
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await broker.declare("held-headers")
        stream = await push.open(b"held-headers")
        for live in (False, True):
            await broker.send("held-headers", b"z", headers=headers, live=live)
            async with asyncio.timeout(WAIT_S):
                while not (batch := await stream.next(1)):
                    assert not stream.ended
            assert push.held_bytes == batch.held_bytes > len(BODY)
            assert size_of(batch[0]) > len(BODY)
            stream.written(batch)
        assert push.held_bytes == 0
        await push.stop()


async def test_a_chunk_counts_until_its_last_message_is_written(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that left one message of each chunk kept all of the chunk in memory."""
    monkeypatch.setattr(limits, "EVENT_BATCH_BYTES", 1)
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await broker.declare("tail")
        await broker.bind("tail", ["tail-key"])
        stream = await push.open(b"tail")
        await broker.publish_many("tail-key", [BODY] * 5)
        whole = 0
        for left in range(5, 0, -1):
            async with asyncio.timeout(WAIT_S):
                while not (batch := await stream.next(1)):
                    assert not stream.ended
            whole = whole or push.held_bytes
            assert len(batch) == 1 and push.held_bytes >= 5 * len(BODY), left
            stream.written(batch)
        assert whole < 6 * len(BODY)
        assert push.held_bytes == 0
        await push.stop()


async def test_what_no_reader_was_written_counts_no_delivery(running: Running) -> None:
    """Where the stream is closed with messages that wait, and where it was ended before."""
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await broker.declare("unwritten", shoal.QueueOptions(max_deliveries=1))
        for number in range(10):
            await broker.send("unwritten", b"%d" % number)
        for end in (False, True):
            stream = await push.open(b"unwritten")
            async with asyncio.timeout(WAIT_S):
                while len(stream._held) < 5:
                    stream._changed.clear()
                    await stream._changed.wait()
            if end:
                stream.end("stalled")
            await push.close(stream)
        assert await all_of(await push.open(b"unwritten"), 10) == list(range(1, 11))
        await push.stop()
    async with shoal.connect(running.at) as broker:
        assert (await broker.describe("unwritten")).messages == 0


async def cut(push: Push) -> None:
    """Every slice loses its stream to the one inbox."""
    async with asyncio.timeout(WAIT_S):
        for at_slice in push._lanes[0].inbox._slices.values():
            while (stream := at_slice.session._stream) is None:  # noqa: ASYNC110 - cut before, and not back yet
                await asyncio.sleep(0.01)
            stream.cancel()


async def test_what_comes_again_is_handed_out_as_an_ack_past_the_inbox_may_have_changed_nothing(
    running: Running,
) -> None:
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await broker.declare("again")
        for number in range(3):
            await broker.send("again", b"%d" % number)
        stream = await push.open(b"again")
        leases = shoal.Leases(broker)
        for expected in ([1, 2, 3], [2, 3]):
            offsets: list[int] = []
            async with asyncio.timeout(WAIT_S):
                while len(offsets) < len(expected):
                    batch = await stream.next(1)
                    offsets += [one.offset for one in batch if isinstance(one, shoal.Message)]
                    stream.written(batch)
            assert offsets == expected
            await leases.ack("again", [shoal.Done("@again", 1, 2)])
            await cut(push)
        await push.stop()


async def test_what_comes_again_while_it_waits_is_held_once(running: Running) -> None:
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await broker.declare("waits")
        for number in range(3):
            await broker.send("waits", b"%d" % number)
        stream = await push.open(b"waits")
        async with asyncio.timeout(WAIT_S):
            while len(stream._held) < 3:
                stream._changed.clear()
                await stream._changed.wait()
            held, held_bytes = list(stream._held.values()), stream.held_bytes
            await cut(push)
            while any(one is other for one, other in zip(held, stream._held.values(), strict=True)):
                stream._changed.clear()
                await stream._changed.wait()
        assert stream.held_bytes == push.held_bytes == held_bytes
        assert await all_of(stream, 3) == [1, 2, 3]
        await push.close(stream)
        assert push.held_bytes == 0
        await push.stop()
