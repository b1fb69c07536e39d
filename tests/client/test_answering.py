"""A slice that answers no unary call is told as away, as one that answers no session; and as back when it answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

import shoal
from shoal import State, StateChange
from shoal.answering import Answering
from shoal.limits import LOOKS_AT_ONCE_MAX
from shoal.looks import SLOW
from shoal.testing import FakeCluster, FakeSlice
from shoal_contract.errors import NotOwner
from shoal_runtime.tasks import Tasks
from tests.client.calls import until

PATIENT_S = 60.0
"""A deadline beyond all that a test waits for."""


@pytest.fixture
async def many() -> AsyncIterator[Tasks]:
    """Callers that wait; they leave at the end."""
    async with Tasks("callers") as tasks:
        yield tasks


@pytest.fixture
def told() -> list[StateChange]:
    return []


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "shoal")
    return caplog


def soon(monkeypatch: pytest.MonkeyPatch, silent_s: float = 0.3) -> None:
    monkeypatch.setattr("shoal.answering.SILENT_S", silent_s)
    monkeypatch.setattr("shoal.answering.SILENT_ASK_S", 0.02)
    monkeypatch.setattr("shoal.looks.LOOK_QUICK_S", 0.05)
    monkeypatch.setattr("shoal.broker.CLOSE_S", 0.1)


def held_up(slice_: FakeSlice, method: str, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Lets calls of one method wait for the event that is returned."""
    goes_on, real = asyncio.Event(), getattr(slice_, method)

    async def waits(request: object, context: object) -> object:
        await goes_on.wait()
        return await real(request, context)

    monkeypatch.setattr(slice_, method, waits)
    return goes_on


def asked_nothing(slice_: FakeSlice) -> int:
    """The number of empty questions that came."""
    return sum(frame.HasField("describe") and not frame.describe.ListFields() for frame in slice_.frames)


def states(told: list[StateChange], slice_name: str = "s01") -> list[State]:
    return [change.state for change in told if change.slice == slice_name]


async def test_a_slice_that_only_answers_looks_is_open(told: list[StateChange]) -> None:
    cluster = FakeCluster(["s01", "s02"])
    async with cluster.connect(on_state=told.append) as broker:
        await broker.describe_key(cluster.key_of("s01"))
        assert broker.slices == {"s01": (State.OPEN, ""), "s02": (State.IDLE, "")}
    assert states(told) == [State.OPEN]


async def test_a_slice_that_answers_no_look_is_away_until_it_does(
    told: list[StateChange], log: pytest.LogCaptureFixture, many: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look had a warning of its own, nothing said that the slice answers again, and no callback heard of it."""
    soon(monkeypatch)
    cluster = FakeCluster(["s01"])
    slice_ = cluster.slices["s01"]
    async with cluster.connect(deadline_s=PATIENT_S, on_state=told.append) as broker:
        await broker.describe("q")
        slice_.answering.clear()
        for number in range(LOOKS_AT_ONCE_MAX):
            many.start("look", broker.describe(f"q{number}"), awaited=True)
            many.start("look", broker.peek(f"q{number}", 1), awaited=True)
        many.start("ack", shoal.Leases(broker).ack("q", [shoal.Done("k", 1, 2)]), awaited=True)
        await until(lambda: broker.slices["s01"].state == State.AWAY)
        assert broker.slices["s01"].reason == "it has not answered for 0.3 s"
        asked = len(slice_.frames)
        await until(lambda: len(slice_.frames) > asked + 3)  # It is asked again, and silent.
        slice_.answering.set()
        await until(lambda: len(many) == 0)
        await until(lambda: broker.slices["s01"].state == State.OPEN)
    assert states(told) == [State.OPEN, State.AWAY, State.OPEN]
    assert [record.getMessage() for record in log.records] == [
        "slice s01 has not answered for 0.3 s: calls that need it wait until their deadlines",
        "slice s01 answers again",
    ]


@pytest.mark.parametrize("silent", [False, True])
async def test_it_is_told_although_each_call_ends_before(
    silent: bool, told: list[StateChange], log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A health check asks now and then, with a short deadline; nothing else asks."""
    soon(monkeypatch)
    cluster = FakeCluster(["s01"])
    slice_ = cluster.slices["s01"]
    async with cluster.connect(on_state=told.append) as broker:
        if silent:
            slice_.answering.clear()
        else:
            slice_.go_away()
        with pytest.raises(shoal.DeadlineExceeded):
            await broker.describe("q", deadline_s=0.05)
        await until(lambda: broker.slices["s01"].state == State.AWAY)
        reason = broker.slices["s01"].reason
        assert reason == ("it has not answered for 0.3 s" if silent else "no slice answers at s01:1")
        slice_.come_back()
        await until(lambda: broker.slices["s01"].state == State.OPEN)
        asked = len(slice_.frames)
        assert (await broker.describe("q")).exists is False
        assert len(slice_.frames) == asked + 1, "it is asked for its state no more"
    assert states(told) == [State.AWAY, State.OPEN]
    assert len(log.records) == 2


async def test_slow_looks_make_no_slice_away(
    told: list[StateChange], log: pytest.LogCaptureFixture, many: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon(monkeypatch, silent_s=10)
    cluster = FakeCluster(["s01"])
    slice_ = cluster.slices["s01"]
    slice_.looks.slow_queues = {b"slow"}
    async with cluster.connect(deadline_s=PATIENT_S, on_state=told.append) as broker:
        many.start("look", broker.describe("slow"), awaited=True)
        await until(lambda: asked_nothing(slice_) >= 3)
        answering = broker.connection.calls._answering["s01", SLOW]
        began_s = answering._quiet_since_s
        assert began_s is not None
        await until(lambda: (answering._quiet_since_s or 0) > began_s)
        assert broker.slices["s01"].state == State.OPEN and slice_.looks.under_way == 1
    assert states(told) == [State.OPEN] and not log.records


async def test_a_slice_that_takes_no_publish_is_away_although_it_answers_looks(
    told: list[StateChange], many: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publish never takes long at a slice that is well: its disk may hang."""
    soon(monkeypatch)
    cluster = FakeCluster(["s01"])
    goes_on = held_up(cluster.slices["s01"], "Publish", monkeypatch)
    async with cluster.connect(deadline_s=PATIENT_S, on_state=told.append) as broker:
        publishing = many.start("publish", broker.publish("k", b"x", idempotency_key="once"), awaited=True)
        await until(lambda: broker.slices["s01"].state == State.AWAY)
        await broker.describe("q")
        assert broker.slices["s01"].state == State.AWAY, "the publish waits"
        goes_on.set()
        assert (await publishing).messages == 1
        await until(lambda: broker.slices["s01"].state == State.OPEN)
    assert states(told) == [State.AWAY, State.OPEN]


async def test_pulls_that_take_long_make_no_slice_away_that_answers_others(
    told: list[StateChange], many: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull of a large queue may take seconds at a slice that is well."""
    soon(monkeypatch, silent_s=10)
    cluster = FakeCluster(["s01"])
    goes_on = held_up(cluster.slices["s01"], "Pull", monkeypatch)
    async with cluster.connect(deadline_s=PATIENT_S, on_state=told.append) as broker:
        await broker.declare("q")
        await broker.publish("@q", b"x")
        pulling = many.start("pull", shoal.Leases(broker).pull("q", 1, lease_ms=1_000), awaited=True)
        await until(lambda: asked_nothing(cluster.slices["s01"]) >= 3)
        assert broker.slices["s01"].state == State.OPEN
        goes_on.set()
        await pulling
    assert State.AWAY not in states(told)


async def test_an_administration_out_of_reach_makes_no_slice_away(
    told: list[StateChange], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is at a port of its own, which clients often cannot reach: one call made the slice away for ever."""
    soon(monkeypatch)
    cluster = FakeCluster(["s01"])
    cluster.slices["s01"].admin_address = "127.0.0.1:1"
    async with cluster.connect(deadline_s=0.1, on_state=told.append) as broker:
        with pytest.raises(shoal.ShoalError):
            await shoal.Admin(broker).figures("s01")
        await until(lambda: asked_nothing(cluster.slices["s01"]) > 0)
        await until(lambda: all(one._asking is None for one in broker.connection.calls._answering.values()))
        assert broker.slices["s01"].state == State.OPEN
        asked = len(cluster.slices["s01"].frames)
        await broker.describe("q", deadline_s=PATIENT_S)
        assert len(cluster.slices["s01"].frames) == asked + 1, "it is asked for its state no more"
    assert State.AWAY not in states(told)


async def test_a_refusal_is_an_answer(told: list[StateChange]) -> None:
    cluster = FakeCluster(["s01"])
    async with cluster.connect(on_state=told.append) as broker:
        with pytest.raises(shoal.NoSuchQueue):
            await broker.peek("none", 1)
        assert broker.slices["s01"].state == State.OPEN
        (kept, *_) = broker.connection.calls._answering.values()
        assert kept._quiet_since_s is None


async def gone() -> None:
    raise shoal.Unavailable("it is gone")


async def silent(timeout_s: float) -> None:
    await asyncio.get_running_loop().create_future()


async def test_of_a_slice_that_left_the_map_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    soon(monkeypatch)
    async with FakeCluster(["s01"]).connect() as broker:
        of = broker.connection
        answering = Answering("s09", of.map, of.telling, of._tasks, silent, may_take_long=True)
        with pytest.raises(shoal.Unavailable):
            await answering.attempt(gone())
        await until(lambda: answering._asking is None and answering._quiet_since_s is None)
        assert of.telling.state_of("s09").state == State.IDLE


async def test_what_a_program_holds_its_loop_for_is_no_silence_of_a_slice(
    many: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that did so for more than 5 s was told that all slices are away, and a moment later that they are
    back: their answers lay in the socket."""
    soon(monkeypatch, silent_s=3_600)
    async with FakeCluster(["s01"]).connect() as broker:
        of = broker.connection
        answering = Answering("s01", of.map, of.telling, of._tasks, silent, may_take_long=False)
        many.start("call", answering.attempt(silent(0)))
        await until(lambda: answering._timer is not None)
        held_s = 7_200
        answering._due_s -= held_s
        assert answering._quiet_since_s is not None
        answering._quiet_since_s -= held_s
        answering._look()
        assert of.telling.state_of("s01").state == State.IDLE
        answering._quiet_since_s -= held_s
        answering._look()
        assert of.telling.state_of("s01").state == State.AWAY


async def test_a_slice_that_answers_is_asked_for_nothing_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What says that the key is another slice's is an answer, too."""
    soon(monkeypatch, silent_s=10)
    async with FakeCluster(["s01"]).connect() as broker:
        of = broker.connection
        answering = Answering("s01", of.map, of.telling, of._tasks, silent, may_take_long=True)
        with pytest.raises(shoal.Unavailable):
            await answering.attempt(gone())
        await until(lambda: answering._asking is not None)
        asking = answering._asking

        async def refuses() -> None:
            raise NotOwner("it is of s02")

        with pytest.raises(NotOwner):
            await answering.attempt(refuses())
        assert asking is not None and answering._asking is None and answering._quiet_since_s is None
        await until(asking.done)
        assert asking.cancelled() and of.telling.state_of("s01").state == State.OPEN


async def test_nothing_is_asked_behind_the_end_of_the_connection(many: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    soon(monkeypatch)
    monkeypatch.setattr("shoal.broker.CLOSE_S", 0.1)
    cluster = FakeCluster(["s01"])
    async with cluster.connect() as broker:
        cluster.slices["s01"].answering.clear()
        many.start("look", broker.describe("q"), awaited=True)
        await until(lambda: asked_nothing(cluster.slices["s01"]) > 0)
    asked = len(cluster.slices["s01"].frames)
    kept = broker.connection.calls._answering.values()
    await until(lambda: all(one._timer is None for one in kept))
    assert len(cluster.slices["s01"].frames) == asked and cluster.slices["s01"].looks.under_way == 0
