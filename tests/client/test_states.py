"""What an application is told of its connection: slices lost, back and closed; errors that no call raises."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any

import pytest

import shoal
from shoal import State, StateChange
from shoal.telling import Telling
from shoal.testing import FakeCluster
from shoal.testing.memory_transport import MemorySession
from shoal_contract.errors import PermissionDenied
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import until


async def used(broker: shoal.Broker, cluster: FakeCluster, slice_name: str = "s01") -> tuple[str, str]:
    """A queue at home on a slice, bound to a key of the same."""
    queue, key = cluster.queue_with_home(slice_name), cluster.key_of(slice_name)
    await broker.declare(queue)
    await broker.bind(queue, key)
    return queue, key


async def test_states_are_told_from_the_first_answer_to_the_end() -> None:
    cluster, told = FakeCluster(), list[StateChange]()
    broker = cluster.connect(on_state=told.append)
    states = [broker.state]
    assert broker.slices == {}
    async with broker:
        states.append(broker.state)
        assert {state.state for state in broker.slices.values()} == {State.IDLE}
        await used(broker, cluster)
        assert broker.slices["s01"] == (State.OPEN, "") and broker.slices["s02"] == (State.IDLE, "")
        cluster.slices["s01"].go_away()
        await until(lambda: broker.slices["s01"].state == State.AWAY)
        assert broker.slices["s01"].reason
        assert broker.slices["s02"].state == State.IDLE
        cluster.slices["s01"].come_back()
        await until(lambda: broker.slices["s01"].state == State.OPEN)
    assert [*states, broker.state] == [State.IDLE, State.OPEN, State.CLOSED]
    assert {state.state for state in broker.slices.values()} == {State.CLOSED}
    assert [(change.slice, change.before, change.state) for change in told] == [
        ("", State.IDLE, State.OPEN),
        ("s01", State.IDLE, State.OPEN),
        ("s01", State.OPEN, State.AWAY),
        ("s01", State.AWAY, State.OPEN),
        ("", State.OPEN, State.CLOSED),
    ]
    assert [bool(change.reason) for change in told] == [False, False, True, False, False]


async def test_a_slice_is_back_although_nothing_is_asked_of_it() -> None:
    """Only a probe of the library's own can find that out."""
    cluster = FakeCluster()
    async with cluster.connect() as broker:
        await used(broker, cluster)
        slice_ = cluster.slices["s01"]
        frames = len(slice_.frames)
        slice_.cut()
        await until(lambda: len(slice_.frames) > frames)
        (probe,) = slice_.frames[frames:]
        assert probe.HasField("describe") and not probe.describe.queues
        await until(lambda: broker.slices["s01"].state == State.OPEN)


async def test_a_slice_is_away_as_long_as_one_of_its_streams_is() -> None:
    cluster, told = FakeCluster(), list[StateChange]()
    async with cluster.connect(on_state=told.append) as broker:
        queue, _ = await used(broker, cluster)
        async with broker.consume(queue):
            await until(lambda: {state.state for state in broker.slices.values()} == {State.OPEN})
            told.clear()
            cluster.slices["s01"].go_away()
            await until(lambda: broker.slices["s01"].state == State.AWAY)
            cluster.slices["s01"].come_back()
            await until(lambda: broker.slices["s01"].state == State.OPEN)
        assert [change.state for change in told if change.slice == "s01"] == [State.AWAY, State.OPEN]


async def test_a_closed_inbox_keeps_no_slice_away() -> None:
    cluster = FakeCluster()
    async with cluster.connect(deadline_s=1) as broker:
        async with broker.consume(()):
            cluster.slices["s03"].go_away()
            await until(lambda: broker.slices["s03"].state == State.AWAY)
        assert broker.slices["s03"].state == State.IDLE


async def test_a_silent_slice_counts_as_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.slice_session.SILENT_S", 0.5)
    cluster = FakeCluster()
    async with cluster.connect() as broker:
        _, key = await used(broker, cluster)
        cluster.slices["s01"].answering.clear()
        publishing = asyncio.ensure_future(broker.publish(key, b"x"))
        await until(lambda: broker.slices["s01"].state == State.AWAY)
        assert broker.slices["s01"].reason == "it has not answered for 0.5 s"
        cluster.slices["s01"].answering.set()
        await publishing
        assert broker.slices["s01"] == (State.OPEN, "")


@pytest.mark.parametrize("ask", ["publish", "pull", "bind"])
async def test_a_silent_slice_is_back_though_what_was_asked_of_it_had_expired_before_a_stream_stood(
    ask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No stream was lost, and nothing was sent on the first one: no answer said that the slice is back."""
    monkeypatch.setattr("shoal.slice_session.SILENT_S", 0.5)
    network, write = asyncio.Event(), MemorySession.write

    async def write_later(session: MemorySession, request: wire.SessionRequest) -> None:
        await network.wait()
        await write(session, request)

    monkeypatch.setattr(MemorySession, "write", write_later)
    cluster = FakeCluster(["s01"])
    async with cluster.connect(deadline_s=3) as broker:
        calls = {"publish": broker.publish("key", b"x"), "pull": broker.pull("q", 1), "bind": broker.bind("q", "key")}
        asked = asyncio.ensure_future(calls.pop(ask))
        for other in calls.values():
            other.close()
        await until(lambda: broker.slices["s01"].state == State.AWAY)
        await asyncio.wait([asked])
        assert isinstance(asked.exception(), shoal.DeadlineExceeded)
        network.set()
        await until(lambda: broker.slices["s01"] == (State.OPEN, ""))


async def test_redirectors_that_are_away_leave_slices_open(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, told = FakeCluster(), list[StateChange]()
    async with cluster.connect(on_state=told.append) as broker:
        _, key = await used(broker, cluster)
        addresses = [redirector.address for redirector in cluster.redirectors]
        for redirector in cluster.redirectors:
            redirector.address = "elsewhere:1"
        stream = broker.connection.map._stream
        assert stream is not None
        stream.cancel()
        await until(lambda: broker.state == State.AWAY)
        assert (await broker.publish(key, b"x")).queues == 1
        assert broker.slices["s01"].state == State.OPEN
        for redirector, address in zip(cluster.redirectors, addresses, strict=True):
            redirector.address = address
        await until(lambda: broker.state == State.OPEN)
    changes = [change for change in told if change.slice == ""]
    assert [change.state for change in changes] == [State.OPEN, State.AWAY, State.OPEN, State.CLOSED]
    assert "there is no redirector at redirector-" in changes[1].reason


async def test_a_callback_may_use_the_connection_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    cluster, states = FakeCluster(), list[State]()
    published: list[asyncio.Future[shoal.Receipt]] = []

    def on_state(change: StateChange) -> None:
        if change.slice == "s01":
            states.append(change.state)
            published.append(broker.publish_nowait(key, b"from within a callback"))
            raise ValueError("a mistake of the application")

    key = cluster.key_of("s01")
    async with cluster.connect(on_state=on_state) as broker:
        await used(broker, cluster)
        await until(lambda: bool(published))
        assert (await published[0]).messages == 1
        cluster.slices["s01"].cut()
        await until(lambda: states[1:] == [State.AWAY, State.OPEN])
        assert [(await one).queues for one in published[1:]] == [1, 1]
    told = [record for record in caplog.records if "a callback of the application failed" in record.getMessage()]
    assert len(told) == 3 and all(record.exc_info for record in told)


class Coroutine:
    async def __call__(self, change: object) -> None: ...


async def coroutine_function(change: object) -> None: ...


@pytest.mark.parametrize("name", ["on_state", "on_error"])
@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (7, "must be a function, not int"),
        ("print", "must be a function, not str"),
        (coroutine_function, "not a coroutine function"),
        (Coroutine(), "not a coroutine function"),
        (functools.partial(coroutine_function), "not a coroutine function"),
    ],
    ids=["number", "text", "coroutine function", "object", "partial"],
)
def test_what_is_no_plain_function_is_refused(name: str, wrong: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be .*{problem.removeprefix('must be ')}"):
        shoal.connect("localhost", **{name: wrong})


async def test_too_many_errors_are_counted_and_not_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shoal.telling.TOLD_WAITING_MAX", 250)
    told: list[Exception] = []
    telling = Telling(on_error=told.append)
    errors = [shoal.NoSuchQueue(str(number)) for number in range(300)]
    for error in errors:
        telling.error(error)
    assert told == []
    await asyncio.sleep(0)
    assert told == errors[:100], "others have a turn between"
    await until(lambda: "50 states or errors were not told" in caplog.text)
    assert told == errors[:250]
    telling.error(errors[0])
    telling.closed()
    assert len(told) == 251, "the end tells all that waits"
    telling.error(errors[0])
    await asyncio.sleep(0)
    assert len(told) == 251, "and nothing comes after it"


async def test_refused_acks_are_told_although_nothing_flushes() -> None:
    cluster, errors = FakeCluster(), list[Exception]()
    async with cluster.connect(on_error=errors.append) as broker:
        queue, key = await used(broker, cluster)
        await broker.publish_many(key, [b"1", b"2"])
        (pulled,) = await broker.pull(queue, 1)
        cluster.slices["s01"].refuse_frames = [PermissionDenied("not you")]
        await pulled.ack()
        await until(lambda: bool(errors))
        async with broker.consume(queue) as inbox:
            message = await anext(inbox)
            cluster.slices["s01"].refuse_frames = [PermissionDenied("nor you")]
            await message.ack()
            await until(lambda: len(errors) == 2)
            with pytest.raises(PermissionDenied):
                await inbox.get(timeout=5)
    assert [str(error) for error in errors] == ["not you", "nor you"]


async def test_a_defect_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, errors = FakeCluster(), list[Exception]()
    async with cluster.connect(on_error=errors.append) as broker:
        _, key = await used(broker, cluster)
        session = broker.connection.routing.session("s01")

        def broken() -> None:
            raise ZeroDivisionError("a defect")

        monkeypatch.setattr(session._ledger, "take", broken)
        with pytest.raises(shoal.Unavailable, match="failed unexpectedly"):
            await broker.publish(key, b"x")
        monkeypatch.undo()
        await until(lambda: broker.slices["s01"].state == State.OPEN)
        assert (await broker.publish(key, b"x")).queues == 1
    assert any("ZeroDivisionError" in str(error) for error in errors)


async def test_the_log_tells_the_beginning_and_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "shoal")
    cluster = FakeCluster()
    async with cluster.connect() as broker:
        await used(broker, cluster)
        cluster.move({0: "s02"})
        await until(lambda: broker.map_version == cluster.map.version)
    lines = [(record.levelno, record.getMessage()) for record in caplog.records if record.name == "shoal"]
    assert lines[0] == (logging.INFO, "connected: map version 1, slices s01, s02, s03")
    assert lines[-1] == (logging.INFO, "connection closed")
    assert (logging.DEBUG, "requests to slice s01: opens stream 1 to s01:1") in lines
    assert (logging.DEBUG, f"map version {cluster.map.version} in place of 1") in lines


async def test_a_connection_that_cannot_be_opened_is_closed() -> None:
    cluster, told = FakeCluster(), list[StateChange]()
    for redirector in cluster.redirectors:
        redirector.address += "0"
    broker = cluster.connect(deadline_s=0.1, on_state=told.append)
    for redirector in cluster.redirectors:
        redirector.address = "elsewhere:1"
    with pytest.raises(shoal.Unavailable, match="no cluster answers at"):
        async with broker:
            pass
    assert broker.state == State.CLOSED
    assert [(change.before, change.state) for change in told] == [(State.IDLE, State.AWAY), (State.AWAY, State.CLOSED)]


async def test_background_work_that_fails_is_told() -> None:
    async def fail() -> None:
        raise ZeroDivisionError("a defect")

    errors: list[Exception] = []
    async with FakeCluster().connect(on_error=errors.append) as broker:
        broker.connection.routing.in_background("work", fail())
        await until(lambda: bool(errors))
    assert [str(error) for error in errors] == ["a defect"]


async def test_a_slice_without_room_for_queues_is_told(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster(["s01"])
    slice_ = cluster.slices["s01"]
    async with cluster.connect() as broker:
        await broker.declare("queue")
        async with broker.consume("queue") as inbox:
            slice_.refuse_attaches = [shoal.ResourceExhausted("no room")]
            slice_.cut()
            await until(lambda: "slice s01 attaches no more queues now, and is asked again: no room" in caplog.text)
            await broker.send("queue", b"x")
            assert (await inbox.get(timeout=10)).body == b"x"
