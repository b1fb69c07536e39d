"""Admission of unary calls: connections in turn, and nobody is kept out by who has most or holds up others."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_runtime.limits import BLAME_S
from shoal_runtime.places import PlacesLimits
from shoal_runtime.unread import Unread
from shoal_slice_node.adapters.admission import Admission
from shoal_slice_node.adapters.limits import (
    UNARY,
    UNARY_UNREAD_BYTES_MAX,
    UNARY_WORK_BYTES,
    UNARY_WORKED_EACH_MAX,
    UNARY_WORKING_BYTES_HIGH,
    UNARY_WORKING_BYTES_MAX,
)


class Calls:
    """Made-up calls that have their places until they are told to end. `order`: whose turn it was, in order."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.order: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.ends = asyncio.Event()

    async def begin(self, *peers: str) -> None:
        self.tasks += [asyncio.create_task(self._call(peer)) for peer in peers]
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def _call(self, peer: str) -> None:
        async with self.admission.places.place(peer):
            self.order.append(peer)
            await self.ends.wait()

    async def end(self) -> list[BaseException | None]:
        self.ends.set()
        return await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_unread_answers_are_counted() -> None:
    admission = Admission(Unread())
    large = UNARY_UNREAD_BYTES_MAX // 2 - UNARY_WORK_BYTES
    with admission.unread(large), admission.unread(large):
        assert not admission.crowded_by_answers
        with admission.unread(1):
            assert admission.crowded_by_answers
        assert not admission.crowded_by_answers


async def test_a_connection_with_many_calls_keeps_nobody_out() -> None:
    """Two connections filled the line of all: every call of the others was refused."""
    each = UNARY.places_each_max
    calls = Calls(Admission(Unread(), limits=PlacesLimits(2 * each, each, waiting_max=300, waiting_each_max=200)))
    await calls.begin(*["a", "b"] * (each + 150))
    assert calls.admission.places.waiting == 300
    await calls.begin(*["honest"] * 3)
    assert calls.admission.places.waiting == 300
    refused = [error for error in await calls.end() if error is not None]
    assert len(refused) == 3 and all(isinstance(error, ResourceExhausted) for error in refused)
    assert calls.order.count("honest") == 3 and not calls.admission.places.waiting


async def test_who_held_up_others_comes_after_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """200 connections whose calls said nothing kept everyone waiting for 6 s."""
    now_s = 0.0
    monkeypatch.setattr("shoal_runtime.places.time.monotonic", lambda: now_s)
    calls = Calls(Admission(Unread()))
    await calls.begin(*[f"silent-{number}" for number in range(UNARY.places_max + 50)], "silent-1")
    for number in range(UNARY.places_max + 50):
        calls.admission.places.blame(f"silent-{number}")
    await calls.begin("honest", "silent-0")
    calls.tasks[3].cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert calls.order[UNARY.places_max] == "honest"
    now_s += BLAME_S + 1
    await calls.begin("silent-0", "silent-2")
    await calls.end()
    assert (
        len(calls.order) == UNARY.places_max + 55
        and not calls.admission.places._last
        and not calls.admission.places._lines
    )


class Worked:
    """Made-up calls of connections that are read, and worked on until they are told to end."""

    def __init__(self, admission: Admission, size_bytes: int = 0) -> None:
        self.admission = admission
        self.size_bytes = size_bytes
        self.begun: Counter[str] = Counter()
        self.ends = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self, *peers: str) -> None:
        self.tasks += [asyncio.create_task(self._call(peer)) for peer in peers]
        for _ in range(3 * len(peers)):
            await asyncio.sleep(0)

    async def _call(self, peer: str) -> None:
        async with self.admission.places.place(peer) as leave:
            with self.admission.read(peer, leave), self.admission.working(self.size_bytes):
                self.begun[peer] += 1
                await self.ends.wait()

    async def end(self) -> None:
        self.ends.set()
        await asyncio.gather(*self.tasks)
        admission = self.admission
        assert admission.places._free == UNARY.places_max and not admission._working_bytes and not admission._worked
        assert not admission.places.waiting


async def test_long_work_of_many_connections_keeps_nobody_out() -> None:
    """Eight connections with 90 describes of 20,000 bindings each made other calls wait for 3 to 20 s."""
    worked = Worked(Admission(Unread()))
    busy = [f"busy-{number}" for number in range(12)]
    await worked.begin(*busy * 90)
    assert worked.begun == dict.fromkeys(busy, UNARY_WORKED_EACH_MAX)
    await worked.begin("honest")
    assert worked.begun["honest"] == 1
    await worked.end()
    assert worked.begun["busy-3"] == 90


async def test_where_much_is_worked_on_each_connection_has_one_call_and_at_last_none_is_read() -> None:
    worked = Worked(Admission(Unread()), UNARY_WORKING_BYTES_HIGH)
    await worked.begin(*["a"] * 5)
    assert worked.begun["a"] == 1
    await worked.begin(*["b"] * 5)
    assert worked.begun["b"] == 1
    others = [f"other-{number}" for number in range(20)]
    await worked.begin(*others)
    assert worked.begun.total() == -(-UNARY_WORKING_BYTES_MAX // UNARY_WORKING_BYTES_HIGH)
    await worked.end()
    assert worked.begun.total() == 30


async def test_answers_that_nobody_takes_stop_nobody_else() -> None:
    """24 connections that each did not take the answer to a publish of 1 MB stopped every unary call for 30 s."""
    admission = Admission(Unread())
    ends = asyncio.Event()

    async def call(peer: str) -> None:
        async with admission.places.place(peer) as leave:
            with admission.read(peer, leave):
                with admission.working(UNARY_WORKING_BYTES_MAX):
                    await asyncio.sleep(0)
                with admission.unread(10):
                    await ends.wait()

    tasks = [asyncio.ensure_future(call(f"stalled-{number}")) for number in range(30)]
    await asyncio.sleep(0)
    while admission.places.waiting:  # noqa: ASYNC110 - they come in one after the other
        await asyncio.sleep(0)
    async with asyncio.timeout(5), admission.places.place("honest"):
        ends.set()
    await asyncio.gather(*tasks)
