"""Bodies of many values: they are read in a thread, one at a time, connections in turn, and small ones go before."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException

from shoal.core.offset_ranges import with_range
from shoal_contract.errors import ResourceExhausted, TooLarge
from shoal_ops.http import bounded_json, limits, models, problem, routes_transactions
from shoal_ops.http.bounded_json import BoundedRoute
from shoal_ops.http.large_work import LargeWork, cost_of
from shoal_ops.http.models_transactions import AckStep, Committed, Done, Transaction
from shoal_ops.http.routes_messages import _in_parts, done_of

LARGE = limits.SMALL_WORK_VALUES + 1


def peer(port: int) -> dict[str, Any]:
    return {"type": "http", "client": ("127.0.0.1", port)}


class Told(models.PublishBatch):
    """A batch that knows the thread in which it was made."""

    _thread: int = 0

    def model_post_init(self, context: Any) -> None:
        self._thread = threading.get_ident()


async def until_waiting(work: LargeWork, count: int) -> None:
    while len(work) < count:  # noqa: ASYNC110 - a turn of the loop each
        await asyncio.sleep(0)


@pytest.fixture
def large_work() -> Iterator[LargeWork]:
    made = LargeWork()
    yield made
    made.stop()


async def test_small_work_is_done_at_once_and_large_work_in_a_thread(large_work: LargeWork) -> None:
    here = threading.get_ident()
    assert await large_work.do(peer(1), LARGE - 1, threading.get_ident) == here
    assert await large_work.do(peer(1), LARGE, threading.get_ident) != here


async def test_connections_have_turns_and_small_work_goes_before(large_work: LargeWork) -> None:
    go, order = threading.Event(), []

    def held() -> None:
        go.wait()

    async def work(name: str, port: int, cost: int = LARGE) -> None:
        await large_work.do(peer(port), cost, lambda: order.append(name))

    first = [asyncio.ensure_future(large_work.do(peer(port), LARGE, held)) for port in (8, 9)]
    waiting = [asyncio.ensure_future(work(f"a{number}", 1)) for number in range(3)]
    waiting.append(asyncio.ensure_future(work("b", 2)))
    await until_waiting(large_work, 6)
    await work("small", 3, 1)
    assert order == ["small"]
    go.set()
    await asyncio.gather(*first, *waiting)
    assert order == ["small", "a0", "b", "a1", "a2"]
    assert len(large_work) == 0


async def test_large_work_in_the_loop_is_done_by_few_at_a_time_and_small_work_beside_it(large_work: LargeWork) -> None:
    """Each transaction of 1,000 steps took a part of every turn of the loop, however many there were."""
    now, most, done = 0, 0, []

    async def steps(name: str, port: int, cost: int) -> None:
        nonlocal now, most
        async with large_work.turn(peer(port), cost):
            now += cost == LARGE
            most = max(most, now)
            for _ in range(20):
                await asyncio.sleep(0)
            now -= cost == LARGE
        done.append(name)

    large = [asyncio.ensure_future(steps(f"large {number}", number, LARGE)) for number in range(6)]
    await until_waiting(large_work, 6)
    await steps("small", 9, LARGE - 1)
    assert done.index("small") <= limits.LARGE_WORK_MAX
    await asyncio.gather(*large)
    assert most == limits.LARGE_WORK_MAX
    assert len(large_work) == 0


async def test_what_leaves_its_turn_lets_others_go_on(large_work: LargeWork) -> None:
    async def fails() -> None:
        async with large_work.turn(peer(1), LARGE):
            raise ValueError("made up")

    async def waits() -> None:
        async with large_work.turn(peer(2), LARGE):
            await asyncio.Event().wait()

    waiting = [asyncio.ensure_future(waits()) for _ in range(8)]
    await until_waiting(large_work, 8)
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    with pytest.raises(ValueError, match="made up"):
        await asyncio.wait_for(fails(), 10)
    async with asyncio.timeout(10), large_work.turn(peer(3), LARGE):
        assert len(large_work) == 1
    assert len(large_work) == 0


async def test_so_many_wait_and_more_are_asked_to_slow_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WAITING_LARGE_WORK_MAX", 3)
    bounded, go = LargeWork(), threading.Event()
    waiting = [asyncio.ensure_future(bounded.do(peer(port), LARGE, go.wait)) for port in range(5)]
    await until_waiting(bounded, 5)
    with pytest.raises(ResourceExhausted, match="large bodies"):
        await bounded.do(peer(9), LARGE, go.wait)
    go.set()
    assert await asyncio.gather(*waiting) == [True] * 5
    bounded.stop()


@pytest.fixture
async def reader(large_work: LargeWork) -> AsyncIterator[httpx.AsyncClient]:
    """An application with one route, which answers in which thread its body was checked."""
    application = FastAPI(exception_handlers={HTTPException: problem.answer_http_exception})
    application.router.route_class = BoundedRoute
    application.state.gateway = SimpleNamespace(large_work=large_work)

    @application.post("/")
    async def post(request: Request, batch: Told) -> dict[str, int]:
        return {"messages": len(batch.messages), "thread": batch._thread}

    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def test_a_large_body_is_checked_in_the_thread_and_only_once(reader: httpx.AsyncClient) -> None:
    here = threading.get_ident()
    small = (await reader.post("/", json={"messages": [{"body": ""}]})).json()
    assert small == {"messages": 1, "thread": here}
    large = (await reader.post("/", json={"messages": [{"body": ""}] * LARGE})).json()
    assert large["messages"] == LARGE
    assert large["thread"] != here


async def test_the_values_of_a_body_of_many_bytes_are_counted_in_the_thread(
    reader: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    def noted(body: bytes) -> int:
        counted.append(threading.get_ident())
        return bounded_json.check_json(body)

    monkeypatch.setattr(bounded_json, "_cost_of", noted)
    for size_bytes in (100, limits.COUNTED_AT_ONCE_BYTES):
        found = (await reader.post("/", json={"messages": [{"body": "x" * size_bytes}]})).json()
        assert found["messages"] == 1
    here = threading.get_ident()
    assert [thread == here for thread in counted] == [True, False], "each once"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (json.dumps({"messages": [{"body": ""}] * LARGE + [{"no": 1}]}), "the field no is not known here"),
        (
            json.dumps({"messages": [{"body": ""}] * LARGE + [{"body": 1}]}),
            f"body.messages.{LARGE}.body: .*valid string",
        ),
        (json.dumps([1] * LARGE), "body: .*dictionary"),
    ],
)
async def test_a_large_body_that_does_not_fit_is_refused_as_a_small_one(
    reader: httpx.AsyncClient, body: str, told: str
) -> None:
    answer = await reader.post("/", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["title"]) == (400, "Malformed")
    assert re.search(told, answer.json()["detail"])


def test_a_long_text_costs_as_much_as_many_values() -> None:
    assert cost_of(2, 4 << 20) > limits.SMALL_WORK_VALUES > cost_of(2, 64 << 10)


def acks(*ranges: tuple[int, int], key: str = "{r}a") -> AckStep:
    return AckStep.model_validate(
        {"queue": "q", "ranges": [{"key": key, "first": first, "end": end} for first, end in ranges]}
    )


def test_the_acks_of_a_transaction_are_merged_before_the_library_gets_them() -> None:
    """Each range that the library adds is compared with those before it."""
    most = limits.ACKS_PER_CALL_MAX
    [backwards, few] = routes_transactions._merged([acks(*((at, at + 1) for at in range(most, 0, -1))), acks((7, 9))])
    assert [(one.key, one.first, one.end) for one in backwards] == [(b"{r}a", 1, most + 1)]
    assert with_range((), 7, 9)[0] == ((few[0].first, few[0].end),)


def test_merged_acks_name_the_same_offsets() -> None:
    """Ranges that overlap, touch, are equal, or lie within each other."""
    random = Random(1)
    for _ in range(300):
        starts = [random.randrange(1, 30) for _ in range(random.randrange(1, 8))]
        ranges = [(first, first + random.choice((1, 1, 2, 5, 20))) for first in starts]
        [merged] = routes_transactions._merged([acks(*ranges)])
        named = [offset for one in merged for offset in range(one.first, one.end)]
        assert named == sorted({offset for first, end in ranges for offset in range(first, end)}), ranges
    of_two = [step for key in ("{r}a", "{r}b") for step in [acks((1, 10), (2, 3), key=key)]]
    assert [[(one.first, one.end) for one in merged] for merged in routes_transactions._merged(of_two)] == [
        [(1, 10)]
    ] * 2


def test_more_ranges_than_a_transaction_may_have_are_refused_unmerged() -> None:
    half = limits.TRANSACTION_STEPS_MAX // 2 + 1
    steps = [acks(*((2 * at, 2 * at + 1) for at in range(1, half + 1)), key=key) for key in ("{r}a", "{r}b")]
    with pytest.raises(TooLarge, match="ranges of offsets that a transaction acks: 1002; the limit is 1000"):
        routes_transactions._merged(steps)


async def test_many_acks_are_handed_to_the_library_in_parts() -> None:
    count = 2 * limits.ACKS_PER_STEP + 1
    done = done_of(acks(*((at, at + 1) for at in range(1, count + 1))))
    parts = list(_in_parts(done))
    assert [len(part) for part, _ in parts] == [limits.ACKS_PER_STEP, limits.ACKS_PER_STEP, 1]
    assert [one for part, _ in parts for one in part] == done
    assert all(0 < left_s <= limits.DEADLINE_S for _, left_s in parts)


async def test_transactions_of_many_steps_take_their_turns(
    large_work: LargeWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their steps, and the answers to these: others' requests waited behind all of them at once."""
    steps = 4 * limits.STEP_VALUES
    under_way: Counter[int] = Counter()
    at_once: Counter[int] = Counter()
    most = loop_turn = 0
    released, all_taken = asyncio.Event(), asyncio.Event()

    def take(gateway: object, transaction: FakeTransaction, number: int, *_: object) -> Callable[[], Done]:
        nonlocal most
        under_way[transaction.number] += 1
        most = max(most, sum(0 < some < steps for some in under_way.values()))
        if under_way.total() == 20 * steps:
            all_taken.set()

        def answer() -> Done:
            at_once[loop_turn] += 1
            under_way[transaction.number] -= 1
            return Done()

        return answer

    class FakeTransaction:
        """A transaction that is committed when all are to be."""

        numbers = count()

        def __init__(self) -> None:
            self.number = next(self.numbers)

        async def __aenter__(self) -> FakeTransaction:
            return self

        async def __aexit__(self, *_: object) -> None:
            await released.wait()

    async def nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(routes_transactions, "_take", take)
    monkeypatch.setattr(routes_transactions, "let_go", nothing)
    gateway: Any = SimpleNamespace(large_work=large_work, broker=SimpleNamespace(transaction=FakeTransaction))
    publish = {"publish": {"key": "k", "body": ""}}

    async def transact(port: int) -> Committed:
        request = Request(peer(port))
        wanted = Transaction.model_validate({"steps": [publish] * steps})
        return await routes_transactions.transact(request, gateway, wanted)

    calls = [asyncio.create_task(transact(port)) for port in range(20)]
    await all_taken.wait()
    assert most <= limits.LARGE_WORK_MAX, "the steps"
    released.set()
    while not all(call.done() for call in calls):
        await asyncio.sleep(0)
        loop_turn += 1
        assert sum(0 < some < steps for some in under_way.values()) <= limits.LARGE_WORK_MAX, "the answers"
    assert max(at_once.values()) <= limits.LARGE_WORK_MAX * limits.STEP_VALUES
    assert all(len(call.result().steps) == steps for call in calls)
