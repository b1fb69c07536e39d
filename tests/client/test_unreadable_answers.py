"""Answers of slices that cannot be read: a typed error, at once, and the rest of the connection goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

import shoal
import shoal.testing
from shoal.core.backoff import Backoff
from shoal.gaps import Gap, UnheardGaps
from shoal.limits import GAPS_LOGGED_PER_S, READABLE_S
from shoal.testing.fake_slice import FakeSlice
from shoal_contract.chunk import encode_chunk
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import bound, until
from tests.client.fake_cluster import FakeCluster

RANGES = [(1, 1, 3), (1, 1, 1000), (1, 2, 2), (1, 2, 1), (100, 1, 101), (2, 1, 3), (1, 5, 6), (1, 1, 0)]
"""(first, low, to) that one message cannot be: none of it lies in the chunk, or more than it holds."""


def delivery(place: tuple[int, int, int], **more: Any) -> wire.Delivery:
    first, low, to = place
    return wire.Delivery(key=b"key", first=first, low=low, to=to, chunk=encode_chunk([b"x"]), **more)


@pytest.mark.parametrize("place", RANGES)
@pytest.mark.parametrize("live", [False, True])
async def test_a_delivery_of_offsets_that_its_chunk_does_not_hold_is_refused(
    cluster: FakeCluster, fake_broker: shoal.Broker, place: tuple[int, int, int], live: bool
) -> None:
    queue, _ = await bound(fake_broker, cluster)
    slice_ = cluster.home_of(queue)
    async with fake_broker.consume(queue) as inbox, asyncio.timeout(10):
        await until(lambda: any(one.queues for one in slice_._sessions))
        session = next(one for one in slice_._sessions if one.queues)
        told = delivery(place, handles=list(session.queues), live=live)
        session.outbox.put_nowait(wire.SessionResponse(deliveries=[told]))
        with pytest.raises(shoal.Malformed, match="offsets"):
            await anext(inbox)


@pytest.mark.parametrize("place", RANGES)
async def test_a_pull_refuses_offsets_that_the_chunk_does_not_hold(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, place: tuple[int, int, int]
) -> None:
    """What another slice gave is returned first."""
    queue, key = await bound(fake_broker, cluster)
    real = FakeSlice._answer

    def answer(self: FakeSlice, session: Any, request: wire.SessionRequest) -> wire.Answer:
        found = real(self, session, request)
        if request.WhichOneof("frame") == "pull" and not found.pulled.deliveries:
            found.pulled.deliveries.append(delivery(place))
        return found

    monkeypatch.setattr(FakeSlice, "_answer", answer)
    with pytest.raises(shoal.Malformed, match="offsets"):
        await fake_broker.pull(queue, 10, deadline_s=5)
    await fake_broker.publish(key, b"good")
    assert [message.body for message in await fake_broker.pull(queue, 10, deadline_s=5)] == [b"good"]


@pytest.mark.parametrize("place", RANGES)
async def test_a_leased_pull_refuses_offsets_that_the_chunk_does_not_hold(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, place: tuple[int, int, int]
) -> None:
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.publish(key, b"good")

    async def pull(self: FakeSlice, request: wire.PullRequest, context: object) -> wire.PullResponse:
        return wire.PullResponse(deliveries=[delivery(place)])

    monkeypatch.setattr(FakeSlice, "Pull", pull)
    with pytest.raises(shoal.Malformed, match="offsets"):
        await shoal.Leases(fake_broker).pull(queue, 10, lease_ms=60_000, deadline_s=5)


def answering(monkeypatch: pytest.MonkeyPatch, change: Callable[[wire.Answer], None]) -> None:
    """Has all slices answer frames as `change` leaves it."""
    real = FakeSlice._answer

    def answer(self: FakeSlice, session: Any, request: wire.SessionRequest) -> wire.Answer:
        found = real(self, session, request)
        change(found)
        return found

    monkeypatch.setattr(FakeSlice, "_answer", answer)


@pytest.mark.parametrize("more", [False, True])
async def test_descriptions_of_other_than_what_was_asked_for_are_refused(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    queue, key = await bound(fake_broker, cluster)

    def wrong(answer: wire.Answer) -> None:
        for described in (answer.description.queues, answer.description.keys):
            if described and more:
                described.add()
            elif described:
                del described[:]

    answering(monkeypatch, wrong)
    calls: list[Callable[[], Any]] = [
        lambda: fake_broker.describe(queue, deadline_s=5),
        lambda: fake_broker.describe_key(key, deadline_s=5),
        lambda: shoal.Leases(fake_broker).pull(queue, 1, lease_ms=60_000, deadline_s=5),
        lambda: fake_broker.bind("no-queue", key, deadline_s=5),
    ]
    for call in calls:
        with pytest.raises(shoal.Malformed, match=r"an answer of slice s0\d cannot be read"):
            await call()


async def test_changes_with_too_few_answers_are_refused(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, key = await bound(fake_broker, cluster)
    keys = [cluster.key_of("s01", "more"), key]

    def short(answer: wire.Answer) -> None:
        outcome = wire.Outcome.FromString(answer.outcome)
        for step in outcome.steps:
            del step.offsets[1:]
            del step.messages[:], step.positions[:]
        answer.outcome = outcome.SerializeToString()

    answering(monkeypatch, short)
    calls: list[Callable[[], Any]] = [
        lambda: fake_broker.bind(queue, keys, deadline_s=5),
        lambda: fake_broker.unbind(queue, keys, deadline_s=5),
        lambda: fake_broker.purge(queue, deadline_s=5),
    ]
    for call in calls:
        with pytest.raises(shoal.Malformed, match=r"cannot be read"):
            await call()


@pytest.mark.parametrize("told", ["ack timeouts", "a delivery"])
async def test_a_session_that_cannot_read_what_comes_begins_anew_in_pauses_that_grow(
    cluster: FakeCluster,
    fake_broker: shoal.Broker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    told: str,
) -> None:
    """It begins well each time: attaches are answered before."""
    queue, _ = await bound(fake_broker, cluster)
    slice_ = cluster.home_of(queue)
    real = FakeSlice._attach

    def attach(self: FakeSlice, session: Any, attach: wire.Attach, answer: wire.Attached) -> None:
        real(self, session, attach, answer)
        bad = wire.SessionResponse(ack_timeouts=wire.AckTimeouts(handles=list(attach.handles) * 3, ms=[1], lives=[1]))
        if told == "a delivery":
            bad = wire.SessionResponse(deliveries=[delivery((1, 1, 9), handles=list(attach.handles))])
        if entered.is_set():
            loop.call_later(0.001, session.outbox.put_nowait, bad)
        else:
            first_bad.append(lambda: session.outbox.put_nowait(bad))

    loop = asyncio.get_running_loop()
    entered, first_bad = asyncio.Event(), list[Callable[[], None]]()
    monkeypatch.setattr(FakeSlice, "_attach", attach)
    began, opened = loop.time(), len(slice_.opens)
    caplog.set_level(logging.WARNING, "shoal")
    async with fake_broker.consume(queue) as inbox, asyncio.timeout(20):
        entered.set()
        for put in first_bad:
            put()
        with pytest.raises(shoal.Malformed):
            await anext(inbox)
        await until(lambda: len(slice_.opens) - opened >= 8)
    assert loop.time() - began > 1.0, "the pauses are 10 ms, 20 ms, 40 ms ... at least"
    assert len(caplog.records) <= 8


def test_an_attempt_that_broke_on_what_it_brought_works_only_once_it_lasts() -> None:
    backoff = Backoff(lambda: 1.0, first_s=1.0, max_s=100.0)
    assert [backoff.pause_s(), backoff.pause_s()] == [1.0, 2.0]
    assert (backoff.distrust(), backoff.distrust()) == (False, True)
    backoff.reset()
    backoff.reset(READABLE_S / 2)
    assert backoff.pause_s() == 4.0
    backoff.reset(READABLE_S)
    assert backoff.pause_s() == 1.0
    backoff.pause_s()
    backoff.reset()
    assert (backoff.pause_s(), backoff.distrust()) == (1.0, False)


def test_gaps_that_no_callback_hears_of_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    gaps = UnheardGaps(lambda: now)
    caplog.set_level(logging.WARNING, "shoal")
    for first in range(100):
        gaps.log(Gap(b"q", b"k", first, first + 1, "dropped"))
    assert len(caplog.messages) == GAPS_LOGGED_PER_S
    assert caplog.messages[0] == "queue q does not get messages 0 to 0 of key k: dropped"
    now += 1
    gaps.log(Gap(b"q", b"k", 100, 102, "expired"))
    gaps.log(Gap(b"q", b"k", 102, 103, "expired"))
    assert caplog.messages[GAPS_LOGGED_PER_S:] == [
        "queue q does not get messages 100 to 101 of key k: expired (90 more such lines were left out)",
        "queue q does not get messages 102 to 102 of key k: expired",
    ]
