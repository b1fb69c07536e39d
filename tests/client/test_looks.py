"""Looks, describes and peeks, hold up nothing but other slow looks, and end at their slice when their callers leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

import shoal
from shoal import looks
from shoal.core.slow_looks import SlowLooks
from shoal.limits import FRAMES_IN_FLIGHT_MAX, LONG_QUESTION_BINDINGS, LOOK_QUICK_S, LOOKS_AT_ONCE_MAX
from shoal.testing import FakeCluster as MemoryCluster
from shoal.testing import FakeSlice
from shoal.testing.limits import PARTITIONS
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from shoal_runtime.tasks import Tasks
from tests.client.calls import bound, until
from tests.client.fake_cluster import FakeCluster

MANY = 3 * FRAMES_IN_FLIGHT_MAX
PROMPT_S = 30.0
PATIENT_S = 300.0
"""What is not prompt is answered at this deadline at the earliest."""


@pytest.fixture
async def many() -> AsyncIterator[Tasks]:
    """Callers that wait; they leave at the end."""
    async with Tasks("callers") as tasks:
        yield tasks


def waiting(tasks: Tasks, *calls: Coroutine[Any, Any, object]) -> list[asyncio.Task[object]]:
    return [tasks.start("call", call, awaited=True) for call in calls]


def looked_at(slice_: FakeSlice) -> list[str]:
    """The queues of the describes and peeks that came, in order."""
    found = [(frame.pull.queue or b"".join(frame.describe.queues[:1])).decode() for frame in slice_.frames]
    return [queue for queue in found if queue]


def keys_looked_at(slice_: FakeSlice) -> list[str]:
    """The keys of the describes that came, in order."""
    return [key.decode() for frame in slice_.frames for key in frame.describe.keys]


async def test_looks_whose_callers_have_left_hold_up_nothing(cluster: FakeCluster, many: Tasks) -> None:
    """They stayed in the window of frames of their session, and the slice did them to their end."""
    slice_ = cluster.slices["s01"]
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=PATIENT_S) as broker:
        queue, key = await bound(broker, cluster)
        slice_.ignored = {"describe", "pull"}
        for wave in range(2):
            before = len(looked_at(slice_))
            callers = [*(broker.describe(f"q{wave}{number}") for number in range(MANY)), broker.peek(queue, 1)]
            left = waiting(many, *callers)
            await until(lambda before=before: len(looked_at(slice_)) >= before + LOOKS_AT_ONCE_MAX)  # type: ignore[misc]
            for caller in left:
                caller.cancel()
        async with asyncio.timeout(PROMPT_S):
            assert (await broker.publish(key, b"x")).queues == 1
            await until(lambda: slice_.looks.under_way == 0, PROMPT_S)
            slice_.ignored = set()
            assert (await broker.describe(queue)).messages == 1
            assert [one.body for one in await broker.pull(queue, 1)] == [b"x"]


async def test_callers_that_wait_for_slow_looks_hold_up_each_other_alone(
    many: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "LOOK_QUICK_S", 0.05)
    cluster = MemoryCluster(["s01"])
    async with cluster.connect(deadline_s=PATIENT_S) as broker:
        slow = [f"slow{number}" for number in range(MANY)]
        leases, slice_ = shoal.Leases(broker), cluster.slices["s01"]
        await broker.declare([*slow, "small"])
        await broker.bind("small", "k")
        slice_.looks.slow_queues = {queue.encode() for queue in slow}
        calls = [call for queue in slow for call in (broker.describe(queue), broker.peek(queue, 1))]
        waiting(many, *calls, *(leases.pull(queue, 1, lease_ms=1000) for queue in slow))
        await until(lambda: slice_.looks.under_way >= LOOKS_AT_ONCE_MAX)
        async with asyncio.timeout(PROMPT_S):
            await broker.publish("k", b"x")
            assert (await broker.describe("small")).messages == 1
            assert [one.body for one in await broker.peek("small", 1)] == [b"x"]
            assert [one.body for one in await leases.pull("small", 1, lease_ms=1000)] == [b"x"]
        assert slice_.looks.under_way <= 2 * LOOKS_AT_ONCE_MAX


async def test_those_who_ask_the_same_share_the_look_that_begins_next(many: Tasks) -> None:
    cluster = MemoryCluster(["s01"])
    async with cluster.connect(deadline_s=30) as broker:
        slice_ = cluster.slices["s01"]
        await broker.declare("q")
        await broker.bind("q", "k")
        slice_.answering.clear()
        (first,) = waiting(many, broker.describe("q"))
        await until(lambda: slice_.looks.under_way == 1)
        others = waiting(many, *(broker.describe("q") for _ in range(9)))
        waiting(many, broker.publish("k", b"x"))
        await until(lambda: slice_.state.keys[b"k"].head > 1)
        assert slice_.looks.under_way == 1, "the next one begins when this one is over"
        others[0].cancel()
        slice_.answering.set()
        await asyncio.wait([first, *others])
        assert looked_at(slice_) == ["q", "q"]
        assert [one.result().messages for one in others[1:]] == [1] * 8, "they asked after the publish"  # type: ignore[attr-defined]


async def test_a_shared_look_lasts_as_long_as_its_most_patient_caller(many: Tasks) -> None:
    cluster = MemoryCluster(["s01"])
    async with cluster.connect(deadline_s=PATIENT_S) as broker:
        slice_ = cluster.slices["s01"]
        slice_.answering.clear()
        (first,) = waiting(many, broker.peek("q", 1))
        await until(lambda: slice_.looks.under_way == 1)
        (patient,) = waiting(many, broker.peek("q", 1))
        await asyncio.sleep(0)
        with pytest.raises(shoal.DeadlineExceeded, match="s01"):
            await broker.peek("q", 1, deadline_s=0.05)
        slice_.answering.set()
        await asyncio.wait([first, patient])
        assert isinstance(patient.exception(), shoal.NoSuchQueue), "it was answered"


async def test_flush_waits_for_looks(many: Tasks) -> None:
    cluster = MemoryCluster(["s01"])
    async with cluster.connect() as broker:
        slice_ = cluster.slices["s01"]
        slice_.answering.clear()
        looking = waiting(many, *(broker.describe("q") for _ in range(2)))
        await until(lambda: slice_.looks.under_way == 1)
        with pytest.raises(shoal.DeadlineExceeded, match="flush"):
            await broker.flush(deadline_s=0.05)
        slice_.answering.set()
        await broker.flush()
        assert not broker.connection.routing.looks._now
        await asyncio.wait(looking)
        assert not any(one.result().exists for one in looking)  # type: ignore[attr-defined]


async def test_a_look_goes_where_the_last_one_at_its_queue_belonged(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MemoryCluster(["s01"])
    async with cluster.connect(deadline_s=30) as broker:
        slice_, transport, apart = cluster.slices["s01"], broker.connection._transport, list[str]()
        call = transport.call

        async def noted(address: str, method: Any, request: Any, timeout_s: float, over: str = "") -> Any:
            if request.ByteSize() > len(wire.DescribeRequest(describe=wire.Describe()).SerializeToString()):
                apart.append(over)
            return await call(address, method, request, timeout_s, over)

        transport.call = noted  # type: ignore[assignment, method-assign]
        await broker.declare(["large", "long"])
        await broker.bind("large", [f"k{number}" for number in range(LONG_QUESTION_BINDINGS + 1)])
        await broker.describe("large")
        await broker.describe("large")
        assert apart == [looks.QUICK, looks.SLOW], "it has many bindings"
        await broker.unbind("large", "k1")
        await broker.describe("large")
        await broker.describe("large")
        assert apart[2:] == [looks.SLOW, looks.QUICK], "no more"
        monkeypatch.setattr(looks, "LOOK_QUICK_S", 0.01)
        slice_.looks.slow_queues = {b"long"}
        with pytest.raises(shoal.DeadlineExceeded, match="s01"):
            await broker.describe("long", deadline_s=0.1)
        slice_.looks.slow_queues = set()
        del apart[:]
        monkeypatch.setattr(looks, "LOOK_QUICK_S", 10)
        await broker.describe("long")
        await broker.describe("long")
        assert apart == [looks.SLOW, looks.QUICK], "it was slow, and is not"


async def test_looks_at_a_key_that_moved_go_to_its_new_owner(many: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The former owner was asked again and again until the deadline, also when the map named the new one."""
    monkeypatch.setattr(looks, "LOOK_QUICK_S", PATIENT_S)
    cluster = MemoryCluster(["s01", "s02"])
    key = cluster.key_of("s01")
    async with cluster.connect(deadline_s=PATIENT_S) as broker:
        await broker.configure(key, shoal.KeyOptions(history_messages=7))
        cluster.move({partition_of(key.encode(), PARTITIONS): "s02"}, tell=False)
        looking = waiting(many, *(broker.describe_key(key) for _ in range(9)))
        await until(lambda: bool(keys_looked_at(cluster.slices["s01"])))
        looking += waiting(many, broker.describe_key(key))
        cluster.announce()
        async with asyncio.timeout(PROMPT_S):
            await asyncio.wait(looking)
        assert [one.result().exists for one in looking] == [False] * 10  # type: ignore[attr-defined]
        assert keys_looked_at(cluster.slices["s02"]) == [key] * 2, "they share a look also where it moved"
        assert set(broker.connection.routing.looks._places) == {("s01", looks.QUICK), ("s02", looks.QUICK)}
        assert not broker.connection.routing.looks._now


@pytest.mark.parametrize("quick_s", [0.01, PATIENT_S])
async def test_looks_at_a_key_leave_a_former_owner_that_is_silent(
    many: Tasks, monkeypatch: pytest.MonkeyPatch, quick_s: float
) -> None:
    """Those that asked before the map came, and those that ask then."""
    monkeypatch.setattr(looks, "LOOK_QUICK_S", quick_s)
    cluster = MemoryCluster(["s01", "s02"])
    key, former = cluster.key_of("s01"), cluster.slices["s01"]
    async with cluster.connect(deadline_s=PATIENT_S) as broker:
        former.answering.clear()
        looking = waiting(many, broker.describe_key(key))
        await until(lambda: len(keys_looked_at(former)) == (2 if quick_s < PROMPT_S else 1))
        looking += waiting(many, broker.describe_key(key))
        elsewhere = waiting(many, broker.describe_key(cluster.key_of("s01", "other")))
        await until(lambda: former.looks.under_way == 2)
        broker.connection.map.listen(lambda _: looking.extend(waiting(many, broker.describe_key(key))))
        cluster.move({partition_of(key.encode(), PARTITIONS): "s02"})
        await until(lambda: len(looking) == 3)
        async with asyncio.timeout(PROMPT_S):
            await asyncio.wait(looking)
        assert [one.exception() for one in looking] == [None] * 3
        assert keys_looked_at(cluster.slices["s02"]) == [key] * 2, "the last one joined the one that had not begun"
        assert former.looks.under_way == 1 and not elsewhere[0].done(), "what has not moved stays"
        former.answering.set()
        await asyncio.wait(elsewhere)


@pytest.mark.parametrize("quick_s", [0.01, PATIENT_S])
async def test_looks_at_a_key_that_moved_wait_for_no_place_at_its_former_owner(
    many: Tasks, monkeypatch: pytest.MonkeyPatch, quick_s: float
) -> None:
    """Others that have not moved hold all places there."""
    monkeypatch.setattr(looks, "LOOK_QUICK_S", quick_s)
    monkeypatch.setattr(looks, "LOOKS_AT_ONCE_MAX", 1)
    cluster = MemoryCluster(["s01", "s02"])
    key, former = cluster.key_of("s01"), cluster.slices["s01"]
    async with cluster.connect(deadline_s=PATIENT_S) as broker:
        former.answering.clear()
        waiting(many, broker.describe_key(cluster.key_of("s01", "other")))
        await until(lambda: len(keys_looked_at(former)) == (2 if quick_s < PROMPT_S else 1))
        (looking,) = waiting(many, broker.describe_key(key))
        await until(lambda: not broker.connection.routing.looks._next or quick_s > PROMPT_S)
        cluster.move({partition_of(key.encode(), PARTITIONS): "s02"})
        async with asyncio.timeout(PROMPT_S):
            await asyncio.wait([looking])
        assert looking.exception() is None and former.looks.under_way == 1
        former.answering.set()


async def test_a_look_that_is_given_up_soon_is_no_slow_one() -> None:
    cluster = MemoryCluster(["s01"])
    async with cluster.connect() as broker:
        cluster.slices["s01"].looks.slow_queues = {b"q"}
        with pytest.raises(shoal.DeadlineExceeded):
            await broker.describe("q", deadline_s=LOOK_QUICK_S / 10)
        assert not len(broker.connection.routing.looks._slow)


async def test_a_key_without_an_owner_that_takes_it_names_what_its_slice_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.map_watch.MAP_SUSPECT_S", PATIENT_S)  # No other redirector tells the newer map.
    cluster = MemoryCluster(["s01", "s02"])
    key = cluster.key_of("s01")
    async with cluster.connect() as broker:
        cluster.move({partition_of(key.encode(), PARTITIONS): "s02"}, tell=False)
        told = (
            "question to slice s01: no newer map came before the call's deadline"
            f" (slice s01 refuses: key {key} is of slice s02)"
        )
        with pytest.raises(shoal.DeadlineExceeded) as raised:
            await broker.describe_key(key, deadline_s=0.3)
        assert str(raised.value) == told
        assert set(broker.connection.routing.looks._places) == {("s01", looks.QUICK)}, "it was not slow"


async def test_looks_end_with_their_connection(many: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are under way, that wait for another one or for a place, and that are repeated."""
    monkeypatch.setattr("shoal.broker.CLOSE_S", 0.1)
    cluster = MemoryCluster(["s01", "s02"])
    async with cluster.connect() as broker:
        cluster.slices["s01"].answering.clear()
        cluster.slices["s02"].go_away()
        queues = [cluster.queue_with_home("s01", f"q{number}") for number in range(LOOKS_AT_ONCE_MAX + 1)]
        calls = [broker.describe(queue) for queue in (*queues, queues[0])]
        calls += [broker.describe_key(cluster.key_of("s02"))]  # type: ignore[list-item]
        looking = waiting(many, *calls)
        await until(lambda: cluster.slices["s01"].looks.under_way == LOOKS_AT_ONCE_MAX)
    await asyncio.wait(looking)
    for one in looking:
        error = one.exception()
        assert isinstance(error, shoal.Unavailable) and "the connection was closed" in str(error)
    with pytest.raises(shoal.Unavailable, match="closed"):
        await broker.describe("q")


async def test_nothing_is_kept_of_looks_that_are_over() -> None:
    cluster = MemoryCluster(["s01"])
    async with cluster.connect() as broker:
        await broker.declare("q")
        for number in range(5):
            await broker.describe(f"q{number}")
            await broker.describe_key(f"k{number}")
        kept = broker.connection.routing.looks
        assert not kept._next and not kept._now and len(kept._places) == 1


def test_what_is_remembered_of_slow_looks_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.core.slow_looks.SLOW_LOOKS_MAX", 2)
    slow = SlowLooks()
    for queue in b"abc":
        slow.note("peek", bytes([queue]), is_slow=True)
    assert len(slow) == 2 and not slow.any_is_slow("peek", [b"a"]) and slow.any_is_slow("peek", [b"a", b"c"])
    assert not slow.any_is_slow("describe", [b"c"])
    slow.note("peek", b"c", is_slow=False)
    assert len(slow) == 1 and not slow.any_is_slow("peek", [b"c"])
