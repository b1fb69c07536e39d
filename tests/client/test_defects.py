"""Whatever dies inside a connection, its waiters are failed in words, deadlines hold, and the next call passes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import shoal
from shoal import map_watch, slice_session
from shoal.core import gather, ledger
from shoal.core.publish_requests import PublishRequest
from shoal.core.requests import BindRequest, DeclareRequest
from shoal_contract.errors import NotOwner
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import bound, until
from tests.client.fake_cluster import PARTITIONS, FakeCluster


class Fault:
    """Raises in place of a method for as long as it is on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        self.on = True
        self.met = 0
        real = getattr(owner, name)

        def method(*arguments: Any, **more: Any) -> Any:
            if self.on:
                self.met += 1
                raise ZeroDivisionError("made up")
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, method)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(ledger.Ledger, "take"), (ledger.Ledger, "find"), (ledger.Ledger, "numbered"), (gather.ChangeFrame, "answered")],
)
async def test_what_dies_in_a_session_fails_its_waiters_and_the_next_call_passes(
    cluster: FakeCluster,
    fake_broker: shoal.Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: Any,
    name: str,
) -> None:
    _, key = await bound(fake_broker, cluster)
    fault = Fault(monkeypatch, owner, name)
    with caplog.at_level(logging.WARNING), pytest.raises(shoal.ShoalError, match="made up") as caught:
        await fake_broker.publish(key, b"x", deadline_s=5)
    assert isinstance(caught.value, shoal.Unavailable | shoal.Malformed)
    fault.on = False
    assert fault.met >= 1
    assert name == "answered" or "ZeroDivisionError" in caplog.text
    assert (await fake_broker.publish(key, b"y", deadline_s=5)).queues == 1


async def test_an_inbox_survives_a_defect_and_loses_nothing(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, key = await bound(fake_broker, cluster)
    async with fake_broker.consume(queue) as inbox, asyncio.timeout(10):
        fault = Fault(monkeypatch, shoal.inbox_slice.InboxSlice, "_deliver")
        await fake_broker.publish(key, b"one")
        await until(lambda: fault.met > 0)
        fault.on = False
        assert (await anext(inbox)).body == b"one"


async def test_a_request_that_cannot_be_written_is_refused_in_the_call_and_harms_no_other(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = await bound(fake_broker, cluster)
    fault = Fault(monkeypatch, DeclareRequest, "put")
    publish = fake_broker.publish_nowait(key, b"x")
    with pytest.raises(ZeroDivisionError):
        await fake_broker.declare("q")
    assert (await publish).queues == 1
    fault.on = False
    await fake_broker.declare("q")
    room = fake_broker._routing.session("s01").room
    assert room._used_bytes == 0, "what was refused gave its room back"


async def test_a_request_refused_half_written_leaves_its_step_as_it_was() -> None:
    frame = gather.ChangeFrame(lambda request, error: None)
    for keys in ([b"a"], [b"b", "no bytes"], [b"c", b"d"]):
        request = BindRequest(b"q", keys, shoal.NOW, 1e9)  # type: ignore[arg-type]  # what no check lets through
        with contextlib.suppress(TypeError):
            frame.add(request)
    sent = wire.SessionRequest()
    assert frame.fill(sent)
    (step,) = wire.Change.FromString(sent.change).steps
    assert (list(step.binds.key_counts), list(step.binds.keys)) == ([1, 2], [b"a", b"c", b"d"])


@contextlib.contextmanager
def everything_dead(session: slice_session.SliceSession) -> Iterator[None]:
    for task in session._tasks._running:
        task.cancel()
    yield


async def test_deadlines_hold_though_all_tasks_of_a_session_are_dead(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    loop = asyncio.get_running_loop()
    with everything_dead(fake_broker._routing.session("s01")):
        calls: list[Callable[[], Any]] = [
            lambda: fake_broker.publish(key, b"x", deadline_s=0.2),
            lambda: fake_broker.declare(queue, deadline_s=0.2),
            lambda: fake_broker.bind(queue, key, deadline_s=0.2),
            lambda: fake_broker.pull(queue, 1, deadline_s=0.2),
            lambda: fake_broker.drop(queue, deadline_s=0.2),
            lambda: fake_broker.purge(queue, deadline_s=0.2),
            lambda: fake_broker.flush(deadline_s=0.2),
        ]
        began = loop.time()
        for call in calls:
            with pytest.raises(TimeoutError):
                await call()
        assert loop.time() - began < 10


async def test_a_failing_deadline_keeps_no_other_from_being_kept(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = await bound(fake_broker, cluster)
    cluster.slices["s01"].answering.clear()
    fault = Fault(monkeypatch, gather.ChangeFrame, "expire")
    lost = fake_broker.publish_nowait(key, b"x", deadline_s=0.1)
    await until(lambda: fault.met > 0)
    fault.on = False
    with pytest.raises(shoal.DeadlineExceeded):
        await fake_broker.publish(key, b"y", deadline_s=0.2)
    assert not lost.done()
    cluster.slices["s01"].answering.set()
    assert (await lost).queues == 1


async def test_an_inbox_that_is_left_while_it_is_entered_waits_for_no_session(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, _ = await bound(fake_broker, cluster)
    for slice_ in cluster.slices.values():
        slice_.answering.clear()
    never = asyncio.Event()

    async def hang(*_: Any) -> None:
        await never.wait()

    monkeypatch.setattr(slice_session.SliceSession, "close", hang)

    async def consume() -> None:
        async with fake_broker.consume(queue):
            pass

    entering = asyncio.create_task(consume())
    await until(lambda: any(slice_.opens for slice_ in cluster.slices.values()))
    entering.cancel()
    _, left = await asyncio.wait([entering], timeout=5)
    assert not left and entering.cancelled()
    monkeypatch.undo()
    never.set()


async def test_leaving_a_connection_is_bounded_though_a_session_does_not_end(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shoal.broker.CLOSE_S", 0.2)
    monkeypatch.setattr("shoal.inbox.CLOSE_S", 0.2)
    monkeypatch.setattr("shoal.slice_session.SESSION_END_S", 0.1)
    stubborn, ended = asyncio.Event(), asyncio.Event()

    async def ignores_its_end(session: slice_session.SliceSession) -> None:
        while not stubborn.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await stubborn.wait()
        ended.set()

    async with asyncio.timeout(20):
        with caplog.at_level(logging.ERROR):
            async with shoal.connect(cluster.redirectors[0].address, deadline_s=1) as broker:
                monkeypatch.setattr(slice_session.SliceSession, "_serve", ignores_its_end)
                future = broker.publish_nowait("key", b"x")
                inbox = broker.consume(())
                await inbox.__aenter__()
        stubborn.set()  # Before anything is asserted: the test's loop cannot end before this task has ended.
        await ended.wait()
        with pytest.raises(shoal.OutcomeUnknown):
            await future
        assert "did not end within 0.1 s" in caplog.text


async def test_the_map_is_followed_on_after_a_defect(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fault = Fault(monkeypatch, map_watch, "next_map")
    cluster.move({0: "s02"})
    await until(lambda: fault.met > 0)
    fault.on = False
    await until(lambda: fake_broker.map_version == 2)
    assert "failed unexpectedly" in caplog.text

    def listener(_: Any) -> None:
        raise ZeroDivisionError("made up")

    fake_broker.connection.map.listen(listener)
    cluster.move({0: "s03"})
    await until(lambda: fake_broker.map_version == 3)
    await fake_broker.declare("q")


async def test_publishes_wait_for_a_newer_map_on_after_a_defect(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = await bound(fake_broker, cluster, "s01")
    partition = partition_of(key.encode(), PARTITIONS)
    cluster.move({partition: "s02"}, tell=False)
    refused = fake_broker.publish_nowait(key, b"lost")
    await until(lambda: len(fake_broker._routing._held) == 1)
    fault = Fault(monkeypatch, PublishRequest, "put")
    cluster.announce()
    with pytest.raises(shoal.Unavailable, match="made up"):
        await refused
    fault.on = False
    cluster.move({partition: "s03"}, tell=False)
    again = fake_broker.publish_nowait(key, b"kept")
    cluster.announce()
    assert (await again).offset == 0


async def test_a_refusal_of_publishes_beyond_the_bound_is_typed(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key = await bound(fake_broker, cluster)
    monkeypatch.setattr("shoal.core.held.REROUTE_BYTES_MAX", 100)
    cluster.slices["s01"].refuse_frames.append(NotOwner("moved", map_version=2))
    with pytest.raises(shoal.ResourceExhausted, match="wait for a newer map"):
        await fake_broker.publish(key, b"x")


async def test_a_call_on_a_closed_connection_says_that_nothing_was_sent(cluster: FakeCluster) -> None:
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as broker:
        queue, key = await bound(broker, cluster)
        await shoal.Admin(broker).queues()
        unused, done = cluster.key_of("s03"), shoal.Done(key, 1, 2)
        cluster.slices["s01"].answering.clear()
        frames = cluster.slices["s01"].frames
        before = len(frames)
        under_way = broker.publish_nowait(key, b"x")
        await until(lambda: len(frames) > before)
        await broker._routing.close()
        with pytest.raises(shoal.Unavailable, match="session to slice s01 is closed; the outcome of what was under"):
            await under_way
        cluster.slices["s01"].answering.set()
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "publish": lambda: broker.publish(key, b"x"),
        "publish elsewhere": lambda: broker.publish(unused, b"x"),
        "publish with an idempotency key": lambda: broker.publish(key, b"x", idempotency_key="a"),
        "declare": lambda: broker.declare(queue),
        "describe": lambda: broker.describe(queue),
        "pull": lambda: broker.pull(queue, 1),
        "pull with a lease": lambda: shoal.Leases(broker).pull(queue, 1, lease_ms=1000),
        "ack by name": lambda: shoal.Leases(broker).ack(queue, [done]),
        "list": lambda: shoal.Admin(broker).queues(),
    }
    for name, call in calls.items():
        with pytest.raises(shoal.Unavailable) as refused:
            await call()
        assert "the connection is closed; nothing of this call was sent; connect anew" in str(refused.value), name


async def test_unary_calls_under_way_when_the_connection_closes_say_that_their_outcome_is_unknown(
    cluster: FakeCluster,
) -> None:
    """gRPC cancels them, and their callers heard of a cancellation that nobody had asked for."""
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=20) as broker:
        queue, key = await bound(broker, cluster)
        for slice_ in cluster.slices.values():
            slice_.answering.clear()
        publishing = asyncio.ensure_future(broker.publish(key, b"x", idempotency_key="a"))
        acking = asyncio.ensure_future(shoal.Leases(broker).ack(queue, [shoal.Done(key, 1, 2)]))
        cancelled = asyncio.ensure_future(broker.publish(key, b"y", idempotency_key="b"))
        await asyncio.sleep(0.05)
        cancelled.cancel()
        closing = asyncio.ensure_future(broker.__aexit__(None, None, None))
        await asyncio.sleep(0)
        for call in (publishing, acking):
            with pytest.raises(shoal.Unavailable, match="outcome of what was under way is unknown"):
                await asyncio.wait_for(asyncio.shield(call), 20)
        await asyncio.wait([cancelled])
        assert cancelled.cancelled()
        await closing
        for slice_ in cluster.slices.values():
            slice_.answering.set()


@pytest.mark.parametrize("when", ["before", "while it enters", "after"])
async def test_no_inbox_outlives_its_connection(when: str, cluster: FakeCluster) -> None:
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=20) as broker:
        queue, _ = await bound(broker, cluster)
        inbox = broker.consume(queue)
        entering: asyncio.Future[shoal.Inbox] | None = None
        if when == "before":
            await inbox.__aenter__()
        elif when == "while it enters":
            cluster.slices["s01"].answering.clear()
            entering = asyncio.ensure_future(inbox.__aenter__())
            await asyncio.sleep(0.05)
    cluster.slices["s01"].answering.set()
    with pytest.raises(shoal.Unavailable):
        await asyncio.wait_for(entering or inbox.__aenter__(), 10)
    await until(lambda: not any(slice_.session_count for slice_ in cluster.slices.values()))
