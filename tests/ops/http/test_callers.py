"""Looks end at their slice when the caller has closed the HTTP connection, and hold up no other request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

import shoal
from shoal import leases
from shoal.testing import FakeCluster
from shoal_ops.http import limits
from shoal_ops.http.application import new_application
from shoal_ops.http.gate import Gate
from shoal_ops.http.gateway import Gateway
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.token import Token
from shoal_runtime.tasks import Tasks
from tests.client.calls import until
from tests.ops.http.caller import Caller

WAIT_S = 30


@pytest.fixture
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[FakeCluster, Gate]]:
    """A slice that answers no look at the queue `large`, and the gateway's application. No look is given up within
    WAIT_S, and no place given back."""
    monkeypatch.setattr(limits, "DEADLINE_S", 60 * WAIT_S)
    monkeypatch.setattr(limits, "TAKE_PATIENCE_S", 60 * WAIT_S)
    monkeypatch.setattr(leases, "LEASE_LOOK_S", 60 * WAIT_S)
    cluster = FakeCluster(["s01"])
    async with cluster.connect(deadline_s=60 * WAIT_S) as broker, Tasks("gateway") as tasks:
        await broker.declare(["large", "small"])
        await broker.bind("large", "k")
        cluster.slices["s01"].looks.slow_queues = {b"large"}
        gateway = Gateway(broker, Metrics(), tasks)
        yield cluster, new_application(gateway, Token())
        gateway.stop()


@pytest.mark.parametrize("path", ["/v1/queues/large", "/v1/queues/large/messages"])
async def test_a_look_ends_when_its_caller_has_left(served: tuple[FakeCluster, Gate], path: str) -> None:
    cluster, application = served
    looks = cluster.slices["s01"].looks
    async with asyncio.timeout(WAIT_S), Tasks("callers") as tasks:
        caller = Caller(application, path)
        asking = tasks.start("ask", caller.ask())
        await until(lambda: looks.under_way == 1)
        caller.leave()
        await asyncio.wait([asking])
        assert (caller.status, looks.under_way) == (499, 0)


async def test_a_key_is_not_looked_at_for_a_caller_that_has_left(served: tuple[FakeCluster, Gate]) -> None:
    cluster, application = served
    cluster.slices["s01"].ignored = {"describe"}
    async with asyncio.timeout(WAIT_S), Tasks("callers") as tasks:
        caller = Caller(application, "/v1/keys/k")
        asking = tasks.start("ask", caller.ask())
        await until(lambda: cluster.slices["s01"].looks.under_way == 1)
        caller.leave()
        await asyncio.wait([asking])
        assert cluster.slices["s01"].looks.under_way == 0


async def test_others_are_answered_whatever_is_looked_at(served: tuple[FakeCluster, Gate]) -> None:
    """Their looks and publishes waited for those of callers that had left, and were given up after ten seconds."""
    _, application = served
    async with asyncio.timeout(WAIT_S), Tasks("callers") as tasks:
        callers = [Caller(application, "/v1/queues/large") for _ in range(100)]
        for caller in callers:
            tasks.start("ask", caller.ask())
        await until(lambda: all(caller.looked_for for caller in callers))
        for caller in callers[::2]:
            caller.leave()
        for path in ("/v1/queues/small", "/v1/queues/small/messages", "/v1/keys/k"):
            other = Caller(application, path)
            await other.ask()
            assert other.status == 200, path


async def test_a_caller_that_leaves_takes_no_messages_and_no_place(served: tuple[FakeCluster, Gate]) -> None:
    """A pull looks first where the messages are. It went on, and what it took then came again after its lease only."""
    cluster, application = served
    state, looks = cluster.slices["s01"].state, cluster.slices["s01"].looks
    async with asyncio.timeout(WAIT_S), Tasks("callers") as tasks:
        caller = Caller(application, "/v1/queues/large/pull", "POST")
        asking = tasks.start("ask", caller.ask())
        await until(lambda: looks.under_way == 1)
        caller.leave()
        await asyncio.wait([asking])
    assert looks.under_way == 0 and not state.keys[b"k"].bindings[b"large"].given
    assert not [frame for frame in cluster.slices["s01"].frames if frame.HasField("pull")]


async def test_a_stream_is_not_opened_for_a_reader_that_has_left(served: tuple[FakeCluster, Gate]) -> None:
    """It was attached when the slice answered, beside the stream with which its reader had connected again."""
    cluster, application = served
    cluster.slices["s01"].ignored = {"attach"}
    async with asyncio.timeout(WAIT_S), Tasks("callers") as tasks:
        caller = Caller(application, "/v1/queues/small/events")
        asking = tasks.start("ask", caller.ask())
        await until(lambda: any(frame.HasField("attach") for frame in cluster.slices["s01"].frames))
        caller.leave()
        await asyncio.wait([asking])
        assert caller.status == 499


@pytest.mark.parametrize("what", ["", "/messages"])
async def test_many_that_look_at_one_queue_leave_places_to_others(served: tuple[FakeCluster, Gate], what: str) -> None:
    _, application = served
    async with asyncio.timeout(WAIT_S), Tasks("callers") as tasks:
        callers = [Caller(application, f"/v1/queues/large{what}") for _ in range(100)]
        for caller in callers:
            tasks.start("ask", caller.ask())
        await until(lambda: all(caller.looked_for for caller in callers))
        other = Caller(application, f"/v1/queues/small{what}")
        await other.ask()
        assert other.status == 200


@pytest.mark.parametrize(
    ("lister", "path"),
    [
        ("queues", "/v1/queues?prefix={}"),
        ("keys", "/v1/keys?prefix={}"),
        ("members", "/v1/keys/{}/members"),
        ("bindings", "/v1/queues/{}/bindings"),
    ],
)
async def test_many_that_list_one_name_leave_places_to_others(
    served: tuple[FakeCluster, Gate], monkeypatch: pytest.MonkeyPatch, lister: str, path: str
) -> None:
    async def listed(_: shoal.Admin, name: bytes, after: bytes, limit: int) -> SimpleNamespace:
        if name == b"large":
            await asyncio.Event().wait()
        return SimpleNamespace(items=[], next=None)

    monkeypatch.setattr(shoal.Admin, lister, listed)
    _, application = served
    async with asyncio.timeout(WAIT_S), Tasks("callers") as tasks:
        callers = [Caller(application, path.format("large")) for _ in range(20)]
        for caller in callers:
            tasks.start("ask", caller.ask())
        await until(lambda: all(caller.looked_for for caller in callers))
        other = Caller(application, path.format("small"))
        await other.ask()
        assert other.status == 200
