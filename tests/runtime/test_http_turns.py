"""HTTP's share of the event loop: one head in each turn of it, whatever comes on however many connections."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from shoal_runtime.http import limits
from shoal_runtime.http.connections import Connections, Waits
from shoal_runtime.http.kept_text import KeptText
from shoal_runtime.http.turns import Turns
from tests.runtime.conftest import SMALL, Served, until

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class LoopTurns:
    """Counts the turns of the event loop while it is entered."""

    def __init__(self) -> None:
        self.now = 0
        self._counting = False

    @contextmanager
    def counted(self) -> Iterator[None]:
        self._counting = True
        self._count()
        try:
            yield
        finally:
            self._counting = False

    def _count(self) -> None:
        self.now += 1
        if self._counting:
            asyncio.get_running_loop().call_soon(self._count)


async def test_one_request_is_read_in_a_turn_of_the_loop(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Health and figures for 150 connections with twenty requests in a row held the loop for half a second."""
    turns, begun = LoopTurns(), Counter[int]()
    answering: Any = served.guard._application

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        begun[turns.now] += 1
        await answering(scope, receive, send)

    monkeypatch.setattr(served.guard, "_application", noting)
    peers = await served.many(20)
    with turns.counted():
        for peer in peers:
            peer.writer.write(20 * HEALTH)
        for peer in peers:
            assert [await peer.answer() for _ in range(20)] == 20 * [(200, {"healthy": True})]
    assert begun.total() == 400 and max(begun.values()) == 1


async def test_a_body_of_tiny_pieces_is_read_a_few_at_a_time(served: Served) -> None:
    head = b"POST /length HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    peer, pieces, turns = await served.connect(head), 8_000, LoopTurns()
    await until(lambda: served.guard.active == 1)
    with turns.counted():
        await peer.send(b"1\r\nx\r\n" * pieces + b"0\r\n\r\n")
        assert await peer.answer() == (200, {"length": pieces})
    assert turns.now > pieces / limits.EVENTS_PER_TURN


async def test_who_is_small_waits_for_one_turn_of_each_connection(served: Served) -> None:
    """Not for all that they have sent."""
    greedy = await served.many(10)
    for peer in greedy:
        peer.writer.write(500 * HEALTH)
    await asyncio.gather(*(peer.answer() for peer in greedy))
    assert await served.is_healthy()
    for peer in greedy:
        await peer.answer()
        unread = peer.reader._buffer.count(b"healthy")  # type: ignore[attr-defined]
        assert unread < 400, "it was not answered to the end before the other was"
        peer.writer.transport.abort()


async def test_beside_grpc_there_are_pauses_and_the_first_comes_at_once() -> None:
    times = list[float]()

    class Turner:
        def turn(self) -> None:
            times.append(time.perf_counter())

    Turns(pause_s=3600).ask(Turner())
    await until(lambda: times)
    turns = Turns(pause_s=0.02)
    for _ in range(4):
        turns.ask(Turner())
    await until(lambda: len(times) == 5)
    assert min(after - before for before, after in pairwise(times[1:])) > 0.01
    left = Turner()
    turns.ask(left)
    turns.leave(left)
    assert left not in turns


def test_a_connection_that_waits_for_its_turn_does_not_go_before_silent_ones() -> None:
    connections = Connections[str](3, 60.0)
    for number, name in enumerate(("small", "again", "idle")):
        connections.opened(name, number)
    connections.asks("small")
    for name in ("again", "idle"):
        connections.waits(name, Waits.NEXT, 3)
    connections.asks("again")
    assert connections.opened("new", 4) == "idle"
    connections.asks("new")
    assert connections.opened("newer", 4) == "again", "it was answered before"


def test_where_all_wait_for_their_first_turn_there_is_an_end_to_newcomers() -> None:
    connections = Connections[int](SMALL.connections_max, 60.0)
    most = limits.CONNECTIONS_FACTOR * SMALL.connections_max
    for number in range(most):
        assert connections.opened(number, number / 1000) is None
        connections.asks(number)
    assert connections.opened(most, 1) == most - 1
    assert len(connections) == most


def test_whoever_waits_for_a_turn_is_not_late() -> None:
    """A process that is busy sees what has come later than it came."""
    connections = Connections[str](10, 60.0)
    for name in ("silent", "sent"):
        connections.opened(name, 0)
    connections.asks("sent")
    assert connections.late(limits.HEAD_S) == ["silent"]


def test_waiting_for_a_turn_buys_no_time() -> None:
    connections = Connections[str](10, 60.0)
    connections.opened("drips", 0)
    for second in range(1, int(limits.HEAD_S)):
        connections.asks("drips")
        connections.had_turn("drips")
        connections.waits("drips", Waits.HEAD, second)
    assert connections.late(limits.HEAD_S) == ["drips"]


def test_what_metrics_answers_is_rendered_at_most_once_in_its_time() -> None:
    now_s, rendered = 0.0, Counter[str]()

    def render() -> bytes:
        rendered["times"] += 1
        return b"%d" % rendered["times"]

    kept = KeptText(render, lambda: now_s)
    assert [kept.now() for _ in range(100)] == 100 * [b"1"]
    now_s = limits.METRICS_KEPT_S
    assert [kept.now() for _ in range(100)] == 100 * [b"2"]
