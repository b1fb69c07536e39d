"""Lists over slices that answer what no slice should: a call ends, with a page or a typed error."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import shoal
from shoal.limits import LIST_QUESTIONS_MAX
from shoal.slice_calls import SliceCalls
from shoal_contract.wire import admin_pb2 as wire
from shoal_contract.wire.slice_pb2 import BindingDescription
from tests.client.fake_admin import FakeAdmin
from tests.client.fake_cluster import FakeCluster


@asynccontextmanager
async def answering(
    monkeypatch: pytest.MonkeyPatch, deadline_s: float, **answers: Callable[[Any], Any]
) -> AsyncIterator[shoal.Admin]:
    """An administration whose slices answer calls of these names so."""
    for name, answer in answers.items():

        async def call(self: FakeAdmin, request: Any, context: object, answer: Callable[[Any], Any] = answer) -> Any:
            return answer(request)

        monkeypatch.setattr(FakeAdmin, name, call, raising=False)
    cluster = FakeCluster(["s01", "s02"])
    await cluster.start()
    try:
        async with shoal.connect(cluster.redirectors[0].address, deadline_s=deadline_s) as broker, asyncio.timeout(20):
            yield shoal.Admin(broker)
    finally:
        await cluster.stop()


def binding(key: bytes) -> wire.ListedBinding:
    return wire.ListedBinding(binding=BindingDescription(key=key))


async def test_a_slice_that_lists_nothing_and_goes_on_ends_the_page_early(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def nothing(request: wire.ListBindingsRequest) -> wire.ListBindingsResponse:
        asked.append(request.after)
        return wire.ListBindingsResponse(next=len(asked).to_bytes(2, "big"))

    async with answering(monkeypatch, 5, ListBindings=nothing) as admin:
        first = await admin.bindings("q")
        assert (first.items, first.next, len(asked)) == ((), f"s01.{LIST_QUESTIONS_MAX:04x}", LIST_QUESTIONS_MAX)
        second = await admin.bindings("q", first.next)
        assert (second.next, asked[LIST_QUESTIONS_MAX]) == (f"s01.{2 * LIST_QUESTIONS_MAX:04x}", bytes((0, 10)))


async def test_short_pages_of_slices_are_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(request: wire.ListBindingsRequest) -> wire.ListBindingsResponse:
        number = int.from_bytes(request.after, "big") + 1
        following = number.to_bytes(1, "big") if number < LIST_QUESTIONS_MAX else b""
        return wire.ListBindingsResponse(bindings=[binding(b"%d" % number)], next=following)

    async with answering(monkeypatch, 5, ListBindings=one) as admin:
        found = await admin.bindings("q")
        assert (len(found.items), found.next) == (2 * LIST_QUESTIONS_MAX, "")


async def test_all_questions_of_one_page_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines: list[float] = []
    real = SliceCalls.ask_slice

    async def ask(self: SliceCalls, slice_of: Any, method: Any, request: Any, deadline: float, **more: Any) -> Any:
        deadlines.append(deadline)
        return await real(self, slice_of, method, request, deadline, **more)

    def on_and_on(request: wire.ListBindingsRequest) -> wire.ListBindingsResponse:
        return wire.ListBindingsResponse(next=request.after + b"x")

    monkeypatch.setattr(SliceCalls, "ask_slice", ask)
    async with answering(monkeypatch, 5, ListBindings=on_and_on) as admin:
        await admin.bindings("q")
    assert len(deadlines) == LIST_QUESTIONS_MAX and len(set(deadlines)) == 1


async def test_a_page_that_leads_to_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Callable[[Any], Any]] = {
        "ListBindings": lambda request: wire.ListBindingsResponse(next=b"x"),
        "ListMembers": lambda request: wire.ListMembersResponse(queues=[b"m"], next=b"x"),
        "ListKeys": lambda request: wire.ListKeysResponse(keys=[b"k"], queues=[1], next=b"x"),
        "ListQueues": lambda request: wire.ListQueuesResponse(queues=[b"q"], next=b"x"),
    }
    async with answering(monkeypatch, 5, **answers) as admin:
        refused = [
            lambda: admin.bindings("q"),
            lambda: admin.members("k", "78"),
            lambda: admin.keys(after="x"),
            lambda: admin.queues(after="x"),
        ]
        for call in refused:
            with pytest.raises(shoal.Malformed, match=r"slice s0\d cannot be read: the next page"):
                await call()  # type: ignore[no-untyped-call]


async def test_keys_without_as_many_counts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with answering(monkeypatch, 5, ListKeys=lambda request: wire.ListKeysResponse(keys=[b"k"])) as admin:
        with pytest.raises(shoal.Malformed, match=r"slice s0\d cannot be read: 1 keys with 0 counts"):
            await admin.keys()
