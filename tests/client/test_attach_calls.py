"""Calls of one inbox that attach the same queue: one that succeeds has it attached, whatever becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

import shoal
from shoal.attachments import Attachments
from shoal.core.frames import Frame
from shoal.testing import FakeCluster, FakeSlice
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import take, until

WAIT_S = 30


def silent_home(cluster: FakeCluster) -> tuple[str, FakeSlice]:
    """A queue, and its home, which answers nothing before `answering` is set."""
    return cluster.queue_with_home("s01"), cluster.slices["s01"]


async def attach_asked(inbox: shoal.Inbox, home: FakeSlice, *queues: str, deadline_s: float = 20) -> asyncio.Task[None]:
    """A call that attaches queues, after its home was asked."""
    frames = len(home.frames)
    task = asyncio.ensure_future(inbox.attach(*queues, deadline_s=deadline_s))
    await until(lambda: any(frame.HasField("attach") for frame in home.frames[frames:]))
    return task


@pytest.mark.parametrize("ending", ["cancelled", "late", "refused"])
async def test_the_second_call_attaches_where_the_first_gives_up(ending: str) -> None:
    cluster = FakeCluster()
    queue, home = silent_home(cluster)
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker, broker.consume([]) as inbox:
        await broker.declare(queue)
        others = [cluster.queue_with_home("s01", "missing")] if ending == "refused" else []
        home.answering.clear()
        first = await attach_asked(inbox, home, queue, *others, deadline_s=0.2 if ending == "late" else 20)
        second = asyncio.ensure_future(inbox.attach(queue))
        await asyncio.sleep(0)
        assert not second.done()
        if ending == "cancelled":
            first.cancel()
        elif ending == "late":
            await asyncio.wait([first])
        home.answering.set()
        await second
        with pytest.raises((asyncio.CancelledError, shoal.DeadlineExceeded, shoal.NoSuchQueue)):
            await first
        await broker.send(queue, b"x")
        assert [message.body for message in await take(inbox, 1)] == [b"x"]


async def test_each_of_two_calls_hears_that_a_queue_does_not_exist() -> None:
    cluster = FakeCluster()
    queue, home = silent_home(cluster)
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker, broker.consume([]) as inbox:
        home.answering.clear()
        first = await attach_asked(inbox, home, queue)
        second = asyncio.ensure_future(inbox.attach(queue))
        await asyncio.sleep(0)
        home.answering.set()
        for call in (first, second):
            with pytest.raises(shoal.NoSuchQueue):
                await call


async def test_the_second_call_ends_at_its_deadline_and_leaves_the_first_alone() -> None:
    cluster = FakeCluster()
    queue, home = silent_home(cluster)
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker, broker.consume([]) as inbox:
        await broker.declare(queue)
        home.answering.clear()
        first = await attach_asked(inbox, home, queue)
        with pytest.raises(shoal.DeadlineExceeded, match=f"attach of queue {queue}, which another call attaches"):
            await inbox.attach(queue, deadline_s=0.1)
        cancelled = asyncio.ensure_future(inbox.attach(queue))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        home.answering.set()
        await first
        await broker.send(queue, b"x")
        assert [message.body for message in await take(inbox, 1)] == [b"x"]


async def test_a_detach_outlives_the_attaches_before_it() -> None:
    cluster = FakeCluster()
    queue, home = silent_home(cluster)
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker, broker.consume([]) as inbox:
        await broker.declare(queue)
        home.answering.clear()
        first = await attach_asked(inbox, home, queue)
        second = asyncio.ensure_future(inbox.attach(queue))
        await asyncio.sleep(0)
        detaching = asyncio.ensure_future(inbox.detach(queue))
        await asyncio.sleep(0)
        first.cancel()
        home.answering.set()
        await asyncio.wait([first, second, detaching])
        assert not second.exception() and not detaching.exception()
        assert not inbox._queues and not inbox._attach_calls._under_way
        assert (await broker.describe(queue)).attached_sessions == 0


async def test_an_attach_that_fails_late_leaves_a_later_one_of_its_queue_alone() -> None:
    cluster = FakeCluster()
    queue, home = silent_home(cluster)
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker, broker.consume([]) as inbox:
        await broker.declare(queue)
        home.ignored = {"attach", "nacks"}
        first = await attach_asked(inbox, home, queue, deadline_s=0.5)
        detaching = asyncio.ensure_future(inbox.detach(queue, deadline_s=5))
        await asyncio.sleep(0)
        later = asyncio.ensure_future(inbox.attach(queue))
        with pytest.raises(shoal.DeadlineExceeded):
            await first
        home.ignored = set()
        home.cut()
        await asyncio.gather(later, detaching)
        await broker.send(queue, b"x")
        assert [message.body for message in await take(inbox, 1)] == [b"x"]


async def test_a_queue_that_does_not_exist_and_is_detached_meanwhile_harms_no_other_of_its_call() -> None:
    cluster = FakeCluster()
    absent, home = silent_home(cluster)
    queue, other = cluster.queue_with_home("s02"), cluster.slices["s02"]
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker, broker.consume([]) as inbox:
        await broker.declare(queue)
        other.answering.clear()
        attaching = await attach_asked(inbox, home, absent, queue)
        await until(lambda: bool(inbox._slices["s01"].attachments.absent))
        home.ignored = {"nacks"}
        with pytest.raises(shoal.DeadlineExceeded):
            await inbox.detach(absent, deadline_s=0.2)
        other.answering.set()
        await attaching
        await broker.send(queue, b"x")
        assert [message.body for message in await take(inbox, 1)] == [b"x"]


@pytest.mark.parametrize("ending", ["done", "cancelled", "late"])
@pytest.mark.parametrize("detaches", [1, 2])
async def test_an_attach_goes_behind_a_detach_of_its_queue(ending: str, detaches: int) -> None:
    """A slice refuses a queue that its session has, and the whole inbox failed."""
    cluster = FakeCluster()
    queue, other = cluster.queue_with_home("s01"), cluster.queue_with_home("s02")
    home = cluster.slices["s01"]
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await broker.declare([queue, other])
        async with broker.consume([queue, other]) as inbox:
            home.ignored = set() if ending == "done" else {"nacks"}
            deadline_s = 0.2 if ending == "late" else 20
            calls = [asyncio.ensure_future(inbox.detach(queue, deadline_s=deadline_s)) for _ in range(detaches)]
            await asyncio.sleep(0)
            attaching = asyncio.ensure_future(inbox.attach(queue))
            await asyncio.sleep(0.05)
            if ending == "cancelled":
                calls[0].cancel()
            await asyncio.wait(calls)
            await attaching
            for one in (queue, other):
                await broker.send(one, b"x")
            assert [message.body for message in await take(inbox, 2)] == [b"x", b"x"]


async def test_a_detach_takes_back_an_attach_that_waits_for_an_earlier_detach() -> None:
    cluster = FakeCluster()
    queue, home = silent_home(cluster)
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await broker.declare(queue)
        async with broker.consume([queue]) as inbox:
            home.answering.clear()
            calls = []
            for call in (inbox.detach, inbox.attach, inbox.detach):
                calls.append(asyncio.ensure_future(call(queue)))
                await asyncio.sleep(0.02)
            assert not any(call.done() for call in calls), "a second detach is not done before the first"
            with pytest.raises(shoal.DeadlineExceeded, match=f"detach of queue {queue}, which another call detaches"):
                await inbox.detach(queue, deadline_s=0.1)
            home.answering.set()
            await asyncio.gather(*calls)
            assert inbox._handles == {}


async def test_a_queue_that_does_not_exist_is_detached_while_another_slice_is_slow() -> None:
    cluster = FakeCluster()
    absent, home = silent_home(cluster)
    other = cluster.slices["s02"]
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker, broker.consume([]) as inbox:
        other.answering.clear()
        attaching = await attach_asked(inbox, home, absent)
        await until(lambda: bool(inbox._slices["s01"].attachments.absent))
        await asyncio.wait([asyncio.ensure_future(inbox.detach(absent, deadline_s=0.2))])
        other.answering.set()
        await attaching


async def test_an_attach_takes_nothing_that_was_asked_for_behind_a_detach() -> None:
    """Where many frames waited to be sent, a queue was attached anew before its detach: the slice refused it, and all
    of the inbox failed."""
    queues: dict[int, bytes] = {}
    sent: list[Frame] = []
    nothing: Any = lambda *told: None  # noqa: E731
    attachments = Attachments("s01", queues, wire.Attach(), sent.append, nothing, nothing, nothing, nothing)

    def written(frames: Iterable[Frame]) -> list[list[int]]:
        """The handles that each frame attaches or detaches; a frame with none is not sent."""
        requests = [(frame, wire.SessionRequest()) for frame in frames]
        filled = [request for frame, request in requests if frame.fill(request)]
        return [list(one.attach.handles or one.detach.handles) for one in filled]

    attachments.begin_stream()
    for handle in (1, 2):
        queues[handle] = b"q%d" % handle
        attachments.attach([handle])
    attachments.leave([1])
    del queues[1]
    queues[3] = b"q1"
    attachments.attach([3])
    queues[4] = b"q4"
    attachments.attach([4])
    assert written(sent) == [[2], [1], [3, 4]]
    attachments.leave([3])
    del queues[3]
    queues[5] = b"q1"
    attachments.end_stream()
    attachments.attach([5])
    assert written(attachments.begin_stream()) == [[2, 4, 5]]


def test_an_answer_says_nothing_of_queues_that_left_meanwhile() -> None:
    """A handle is never used again: what was kept of it would stay for good."""
    nothing: Any = lambda *told: None  # noqa: E731
    attachments = Attachments("s01", {2: b"q2"}, wire.Attach(), nothing, nothing, nothing, nothing, nothing)
    attachments.answered([1, 2], wire.Attached(absent=[1, 2], lives=[0, 0], ack_timeouts_ms=[0, 0]))
    assert attachments.absent == {2}


async def test_an_attach_beside_a_detach_waits_for_no_silent_slice_that_is_not_the_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A person who logged out and in again was not attached for as long as the detach waited."""
    monkeypatch.setattr("shoal.attach_calls.ATTACH_OTHERS_S", 0.1)
    cluster = FakeCluster()
    queue, other = cluster.queue_with_home("s01"), cluster.slices["s02"]
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await broker.declare(queue)
        async with broker.consume([queue]) as inbox:
            other.ignored = {"nacks", "attach", "detach"}
            detaching = asyncio.ensure_future(inbox.detach(queue))
            await asyncio.sleep(0)
            await asyncio.wait_for(inbox.attach(queue), 5)
            assert not detaching.done(), "it still waits for the slice"
            await broker.send(queue, b"x")
            assert [message.body for message in await take(inbox, 1)] == [b"x"]
            detaching.cancel()
            await asyncio.wait([detaching])
