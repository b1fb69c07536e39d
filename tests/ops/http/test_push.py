"""Push in this process, on a real cluster: what all streams together may hold, and streams of dropped connections."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from shoal_contract.tasks import Tasks
from shoal_ops.http import limits
from shoal_ops.http.push import Push, Stream
from tests.ops.http.conftest import WAIT_S, Running

BODY = b"x" * 20_000


async def all_of(stream: Stream, count: int) -> list[int]:
    """Offsets of the next messages, acked."""
    found: list[int] = []
    async with asyncio.timeout(WAIT_S):
        while len(found) < count:
            assert not stream.ended
            for message in await stream.next(1):
                message.ack_nowait()
                found.append(message.offset)
    return found


async def until_ended(stream: Stream) -> None:
    """Without taking anything."""
    while not stream.ended:
        stream._changed.clear()
        await stream._changed.wait()


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
