"""Streams of one queue that follow each other: the next one neither competes with the former one nor waits in vain."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

import shoal
from shoal.inbox_slice import InboxSlice
from shoal_ops.http import limits
from shoal_ops.http.events import EventResponse
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.push import Push
from shoal_runtime.tasks import Tasks
from tests.client.calls import fresh
from tests.ops.http.conftest import WAIT_S, Running
from tests.ops.http.pushed import all_of


async def two_lanes(push: Push, broker: shoal.Broker) -> None:
    """So that a stream of another queue could be opened beside one that is being closed, at once."""
    await broker.declare("lanes")
    await push.open(b"lanes")
    await push.open(b"lanes")
    assert len(push._lanes) == 2


@pytest.mark.parametrize("lane", [0, 1])
async def test_a_stream_that_is_opened_while_its_former_one_is_detached_gets_the_messages_in_order(
    running: Running, monkeypatch: pytest.MonkeyPatch, lane: int
) -> None:
    """It was attached beside the former one, and got what was published meanwhile before what that one gave back.
    `lane`: that of the former one; both are free for the next."""
    queue, key = fresh("reopened").encode(), fresh("reopened-key")

    async def slow(at_slice: InboxSlice) -> None:
        """As where the slice is late to answer that it gives nothing more."""
        await asyncio.sleep(WAIT_S)

    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await two_lanes(push, broker)
        await broker.declare(queue)
        await broker.bind(queue, [key])
        before = [await push.open(queue) for _ in range(lane)]
        stream = await push.open(queue)
        for one in before:
            await push.close(one)
        assert [queue in one.streams for one in push._lanes] == [lane == 0, lane == 1]
        await broker.publish_many(key, [b"x"] * 3)
        async with asyncio.timeout(WAIT_S):
            while not (batch := await stream.next(1)):
                assert not stream.ended
        stream.written(batch)
        monkeypatch.setattr(InboxSlice, "_give_back_first", slow)
        closing = tasks.start("close", push.close(stream))
        await asyncio.sleep(0)
        stream = await push.open(queue)
        await broker.publish(key, b"y")
        assert await all_of(stream, 4) == [1, 2, 3, 4]
        await closing
        assert [queue in one.streams for one in push._lanes] == [lane == 0, lane == 1]
        await push.stop()


async def test_the_next_stream_of_a_queue_with_an_exclusive_consumer_waits_for_its_former_one(
    running: Running,
) -> None:
    """It was refused as the former one was not detached yet. Also where it is not being closed yet: its reader has
    left, or it was ended."""
    async with shoal.connect(running.at) as broker, Tasks("test") as tasks:
        push = Push(broker, tasks)
        await two_lanes(push, broker)
        await broker.declare("only-one", shoal.QueueOptions(exclusive="oldest"))
        stream = await push.open(b"only-one")
        for how in ("closed", "left", "ended"):
            if how == "closed":
                closing = tasks.start("close", push.close(stream))
                await asyncio.sleep(0)
                opening = tasks.start("open", push.open(b"only-one"), awaited=True)
            else:
                if how == "left":
                    stream.left = True
                else:
                    stream.end("memory")
                opening = tasks.start("open", push.open(b"only-one"), awaited=True)
                await asyncio.sleep(0)
                closing = tasks.start("close", push.close(stream))
            stream = await opening
            await closing
        with pytest.raises(shoal.Conflict):
            await push.open(b"only-one")
        await push.stop()


async def test_the_stream_of_a_reader_that_connects_again_waits_for_its_former_one(running: Running) -> None:
    """The former one is not being closed yet: what it writes takes a while to end. The next one was refused."""
    queue, leaves, cancelled, may_end = fresh("again").encode(), asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def receive() -> Message:
        await leaves.wait()
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        try:
            await may_end.wait()
        finally:
            cancelled.set()
            await may_end.wait()

    async with shoal.connect(running.at) as broker, Tasks("test") as tasks, asyncio.timeout(WAIT_S):
        push = Push(broker, tasks)
        await two_lanes(push, broker)
        await broker.declare(queue, shoal.QueueOptions(exclusive="oldest"))
        response = EventResponse(push, await push.open(queue), Metrics(), auto_ack=False)
        answering = tasks.start("answer", response({"type": "http"}, receive, send))
        leaves.set()
        await cancelled.wait()
        opening = tasks.start("open", push.open(queue), awaited=True)
        await asyncio.sleep(0)
        may_end.set()
        stream = await opening
        await answering
        await push.close(stream)
        await push.stop()


async def test_a_stream_that_is_refused_as_it_begins_keeps_no_other_waiting(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had ended before: the next one waited for its end for as long as a call may take."""
    queue, begun, may_attach = fresh("refused").encode(), asyncio.Event(), asyncio.Event()
    attach = shoal.Inbox.attach

    async def refused(inbox: shoal.Inbox, *queues: bytes, deadline_s: float) -> None:
        begun.set()
        await may_attach.wait()
        raise shoal.Unavailable("away")

    async with shoal.connect(running.at) as broker, Tasks("test") as tasks, asyncio.timeout(limits.DEADLINE_S / 2):
        push = Push(broker, tasks)
        await two_lanes(push, broker)
        await broker.declare(queue)
        monkeypatch.setattr(shoal.Inbox, "attach", refused)
        opening = tasks.start("open", push.open(queue), awaited=True)
        await begun.wait()
        monkeypatch.setattr(shoal.Inbox, "attach", attach)
        (first,) = [one for lane in push._lanes if (one := lane.streams.get(queue)) is not None]
        first.end("taken over")
        following = tasks.start("open", push.open(queue), awaited=True)
        await asyncio.sleep(0)
        may_attach.set()
        with pytest.raises(shoal.Unavailable):
            await opening
        await push.close(await following)
        await push.stop()
