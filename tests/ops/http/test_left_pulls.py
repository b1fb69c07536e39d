"""What a pull took whose caller has left is given back, and is no delivery."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

import shoal
from shoal.testing import FakeCluster
from shoal_ops.http.application import new_application
from shoal_ops.http.gate import Gate
from shoal_ops.http.gateway import Gateway
from shoal_ops.http.metrics import Metrics
from shoal_ops.http.token import Token
from shoal_runtime.tasks import Tasks
from tests.client.calls import until
from tests.ops.http.caller import Caller

WAIT_S = 30
PULL = "/v1/queues/q/pull"


@pytest.fixture
async def served() -> AsyncIterator[tuple[FakeCluster, Gate]]:
    """Two slices with a message each, and the gateway's application."""
    cluster = FakeCluster(["s01", "s02"])
    async with cluster.connect(deadline_s=WAIT_S) as broker, Tasks("gateway") as tasks:
        await broker.declare("q")
        await broker.bind("q", keys := [cluster.key_of("s01"), cluster.key_of("s02")])
        for key in keys:
            await broker.publish(key, b"x")
        gateway = Gateway(broker, Metrics(), tasks)
        yield cluster, new_application(gateway, Token())
        gateway.stop()


def given(cluster: FakeCluster) -> list[int]:
    """How many messages of each slice are out, or were delivered."""
    bindings = [one.state.keys[key].bindings[b"q"] for one in cluster.slices.values() for key in one.state.keys]
    return [len(binding.given) + sum(binding.times_given.values()) for binding in bindings]


async def test_what_slices_gave_before_a_caller_left_is_given_back(
    served: tuple[FakeCluster, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, application = served
    asked = asyncio.Event()

    async def silent(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(cluster.slices["s02"], "Pull", silent)
    async with asyncio.timeout(WAIT_S), Tasks("callers") as tasks:
        caller = Caller(application, PULL, "POST")
        asking = tasks.start("ask", caller.ask())
        await asked.wait()
        assert sum(given(cluster)) == 2
        caller.leave()
        await asyncio.wait([asking])
        await until(lambda: sum(given(cluster)) == 0)


class Reader(Caller):
    """Keeps what it was sent. `leave_in`: leaves after so many turns of the loop."""

    read = b""

    def leave_in(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self.leave_in, turns - 1)
        else:
            self.leave()

    async def _send(self, message: Any) -> None:
        self.read += message.get("body", b"")
        await super()._send(message)


@pytest.mark.parametrize("turns", [*range(9), 100])
async def test_a_caller_that_leaves_as_its_pull_ends_is_answered_or_takes_nothing(
    served: tuple[FakeCluster, Gate], monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """It got no messages where it had left in the turn in which they came, and they were out and counted."""
    cluster, application = served
    reader = Reader(application, PULL, "POST")
    pull = shoal.Leases.pull

    async def pulled(*given: Any, **terms: Any) -> list[shoal.Message]:
        found = await pull(*given, **terms)
        reader.leave_in(turns)
        return found

    monkeypatch.setattr(shoal.Leases, "pull", pulled)
    async with asyncio.timeout(WAIT_S):
        await reader.ask()
    answered = len(json.loads(reader.read)["messages"])
    assert answered in ([0] if turns < 3 else [0, 2] if turns < 100 else [2]), "it left before the answer, or behind it"
    await until(lambda: sum(given(cluster)) == 2 * answered)
