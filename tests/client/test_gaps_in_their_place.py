"""Gaps after a lost stream: they wait with the deliveries around them until the life of their queue is known."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import shoal
from shoal import held_back
from shoal.core.pending_acks import PendingAcks
from shoal.core.repeat_rules import HandOutRepeats
from shoal.gaps import GapNews
from shoal.held_back import HeldBack
from shoal.inbox_slice import InboxSlice
from shoal.limits import DELIVERY_OVERHEAD_BYTES
from shoal.stopped_handles import StoppedHandles
from shoal.testing import FakeCluster
from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import until


def part(queues: dict[int, bytes], unconfirmed: set[int]) -> tuple[Any, list[tuple[str, int]]]:
    """A part of an inbox without a session, and what it hands out: gap or message, and the first offset."""
    found: list[tuple[str, int]] = []

    async def came(item: Any) -> None:
        found.append(("gap", item._gap.first) if isinstance(item, GapNews) else ("message", item.first))

    attachments: Any = SimpleNamespace(
        epoch=0, unconfirmed=unconfirmed, complete=True, presume_ended=unconfirmed.difference_update
    )
    made: Any = object.__new__(InboxSlice)
    made.__dict__.update(
        held=HeldBack(attachments),
        _queues=queues,
        _on_delivery=came,
        _any_detached=False,
        _stopped=StoppedHandles(SimpleNamespace()),  # type: ignore[arg-type]  # no session
        _dropped=SimpleNamespace(handles=()),
        _era=SimpleNamespace(stream=1),
        attachments=attachments,
        draining=False,
        rule=HandOutRepeats(PendingAcks(tuple)),
        repeats=None,
        last_handle=0,
    )
    return made, found


def response(gaps: list[tuple[int, int, int]], messages: list[tuple[int, int]]) -> wire.SessionResponse:
    """Gaps: handle, first, to. Messages: handle, offset."""
    chunk = encode_chunk([b"x"])
    return wire.SessionResponse(
        gaps=[
            wire.Gap(key=b"k", handles=[handle], first=first, to=to, why=wire.GAP_REASON_EXPIRED)
            for handle, first, to in gaps
        ],
        deliveries=[
            wire.Delivery(key=b"k", handles=[handle], first=offset, low=offset, to=offset + 1, chunk=chunk)
            for handle, offset in messages
        ],
    )


async def test_a_gap_does_not_overtake_a_delivery_that_waits() -> None:
    made, found = part({1: b"q"}, unconfirmed := {1})
    await made.delivered(response([], [(1, 5)]))
    await made.delivered(response([(1, 6, 9)], [(1, 9)]))
    assert found == [] and made.holding
    unconfirmed.clear()
    await made.delivered(wire.SessionResponse())
    assert found == [("message", 5), ("gap", 6), ("message", 9)] and not made.holding


async def test_a_gap_waits_alone_until_the_life_of_its_queue_is_known() -> None:
    made, found = part({1: b"q", 2: b"p"}, unconfirmed := {1})
    await made.delivered(response([(2, 1, 2), (1, 1, 4)], []))
    assert found == [("gap", 1)] and len(made.held._held) == 1
    made._queues.pop(1)  # It was detached meanwhile: the buffer tells it.
    unconfirmed.clear()
    await made.delivered(wire.SessionResponse())
    assert found == [("gap", 1), ("gap", 1)] and not made.holding


async def test_a_gap_that_waits_outlives_its_stream() -> None:
    made, found = part({1: b"q"}, unconfirmed := {1})
    await made.delivered(response([(1, 6, 9)], [(1, 9)]))
    made.held.stream_ended()
    assert found == [] and made.holding
    unconfirmed.clear()
    await made.delivered(response([], [(1, 9)]))
    assert found == [("gap", 6), ("message", 9)] and not made.holding


async def test_gaps_that_wait_while_the_inbox_closes_are_told() -> None:
    heard: list[shoal.Gap] = []
    async with asyncio.timeout(30), FakeCluster(["s01"]).connect() as broker:
        await broker.declare("q")
        async with broker.consume("q", on_gap=heard.append) as inbox:
            (handle,), made = inbox._queues, inbox._slices["s01"]
            made.attachments.unconfirmed = {handle}
            await made.delivered(response([(handle, 1, 4)], [(handle, 4)]))
            made.stream_ended()
            assert heard == []
    assert heard == [shoal.Gap(b"q", b"k", 1, 4, "expired")]


@pytest.mark.parametrize("way", ["detach", "lost", "cancelled"])
async def test_a_gap_on_its_way_while_its_queue_leaves_is_told_with_its_name(way: str) -> None:
    heard: list[shoal.Gap] = []
    async with asyncio.timeout(30), (cluster := FakeCluster(["s01"])).connect() as broker:
        await broker.declare("q")
        async with broker.consume("q", on_gap=heard.append) as inbox:
            (handle,), made = inbox._queues, inbox._slices["s01"]
            cluster.slices["s01"].answering.clear()
            detaching = asyncio.ensure_future(inbox.detach("q") if way != "lost" else asyncio.sleep(0))
            await asyncio.sleep(0)
            if way == "lost":
                inbox._lose(handle)
            if way == "cancelled":
                detaching.cancel()
                await asyncio.wait([detaching])
            await made.delivered(response([(handle, 1, 4), (99, 1, 4)], []))
            assert heard == [shoal.Gap(b"q", b"k", 1, 4, "expired")]
            cluster.slices["s01"].answering.set()
            await asyncio.wait([detaching])
            await until(lambda: not made._stopped.leaving)


async def test_gaps_that_wait_count_in_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_back, "INBOX_BYTES_MAX", 3 * (DELIVERY_OVERHEAD_BYTES + 8))
    made, found = part({1: b"q"}, {1})
    for first in range(1, 4):
        await made.delivered(response([(1, first, first + 1)], []))
    assert found == []
    await made.delivered(response([(1, 4, 5)], []))
    assert [first for _, first in found] == [1, 2, 3, 4] and not made.holding


@pytest.mark.parametrize("drop_repeats", [True, False])
async def test_a_gap_behind_the_last_message_holds_up_no_drain(drop_repeats: bool) -> None:
    heard: list[object] = []
    async with asyncio.timeout(30), FakeCluster(["s01"]).connect() as broker:
        await broker.declare("q")
        await broker.send("q", b"1")
        async with broker.consume("q", on_gap=heard.append, drop_repeats=drop_repeats) as inbox:
            (handle,), made = inbox._queues, inbox._slices["s01"]
            (await inbox.get()).ack_nowait()
            await made.delivered(response([(handle, 1, 4)], []))
            assert heard == []
            drained = asyncio.ensure_future(inbox.drain(deadline_s=5))
            async for message in inbox:
                raise AssertionError(message)
            await made.delivered(response([(handle, 4, 6)], []))
            await drained
    assert heard == [shoal.Gap(b"q", b"k", 1, 4, "expired"), shoal.Gap(b"q", b"k", 4, 6, "expired")]


async def test_a_gap_that_no_program_asks_for_holds_up_no_drain() -> None:
    heard: list[object] = []
    async with asyncio.timeout(30), FakeCluster(["s01"]).connect() as broker:
        await broker.declare("q")
        await broker.publish_many("@q", [b"1", b"2"])
        async with broker.consume("q", on_gap=heard.append) as inbox:
            (handle,) = inbox._queues
            first = await inbox.get()
            await inbox._slices["s01"].delivered(response([(handle, 1, 4)], []))
            drained = asyncio.ensure_future(inbox.drain(deadline_s=5))
            await first.ack()
            await inbox.flush()
            assert heard == [], "a message is before it"
            await (await inbox.get()).ack()
            await drained
    assert heard == [shoal.Gap(b"q", b"k", 1, 4, "expired")]
