"""What drops left behind is ended later: how often slices are asked for it, and where it is the home that did not
answer. On the fake; test_drops.py has what a drop asks itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

import shoal
from shoal import Broker
from shoal.core.backoff import Backoff
from shoal.dropping import Dropping, _may_be_done
from shoal.homes import Homes
from shoal.leftovers import Leftovers
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import until
from tests.client.fake_cluster import FakeCluster

AGAIN_S = 0.02
REFUSAL = shoal.ResourceExhausted("this slice takes no changes now: checkpoints fail", subject="checkpoint")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.leftovers.PARTS_LEFT_AGAIN_S", AGAIN_S)


async def with_parts(broker: Broker, cluster: FakeCluster, home: str, *names: str, count: int = 2) -> list[str]:
    """Declares queues with this home, and makes parts of them on slices. Returns the queues."""
    queues = [cluster.queue_with_home(home, f"queue{number}-{names[0]}") for number in range(count)]
    await broker.declare(queues)
    for queue in queues:
        await broker.bind(queue, [cluster.key_of(name) for name in names])
    return queues


def parts_on(cluster: FakeCluster, name: str) -> list[str]:
    return [queue.decode() for queue in cluster.slices[name].state.queues.parts]


class Refusing:
    """A slice that drops no part that it has, but of those in `taken`."""

    def __init__(self, cluster: FakeCluster, name: str) -> None:
        self.taken: set[str] = set()
        state = cluster.slices[name].state
        real = state._drop

        def drop(queue: bytes, *arguments: Any) -> Any:
            if queue in state.queues.parts and queue.decode() not in self.taken:
                raise REFUSAL
            return real(queue, *arguments)

        state._drop = drop  # type: ignore[method-assign, assignment]


class Pauses(Backoff):
    """Keeps the pauses of all places, and waits for none; `last_s` instead, where it is given."""

    told: list[float]
    last_s = 0.0

    def pause_s(self) -> float:
        self.told.append(self._next_s)
        super().pause_s()
        return 0.0 if len(self.told) == 1 else self.last_s


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> type[Pauses]:
    class Told(Pauses):
        told: list[float] = []  # noqa: RUF012 - of all its objects

    monkeypatch.setattr("shoal.leftovers.PARTS_LEFT_AGAIN_S", 1.0)
    monkeypatch.setattr("shoal.leftovers.Backoff", Told)
    return Told


async def test_a_slice_that_refuses_is_asked_less_and_less_often(
    fake_broker: Broker, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = await with_parts(fake_broker, cluster, "s01", "s02")
    Refusing(cluster, "s02")
    asked_s: list[float] = []
    real = Leftovers.end

    async def end(self: Leftovers, slice_name: str, some: Any, deadline: float) -> dict[bytes, Any]:
        if slice_name == "s02" and some:
            asked_s.append(asyncio.get_running_loop().time())
        return await real(self, slice_name, some, deadline)

    with pytest.raises(shoal.ResourceExhausted, match="slice s02 did not say so"):
        await fake_broker.drop(queues)
    monkeypatch.setattr(Leftovers, "end", end)
    await until(lambda: len(asked_s) == 5)
    pauses_s = [after - before for before, after in pairwise(asked_s)]
    least_s = [AGAIN_S * 2**number / 2 for number in range(1, 5)]  # Each is shortened by up to a half.
    assert all(pause >= least for pause, least in zip(pauses_s, least_s, strict=True)), (pauses_s, least_s)


async def test_pauses_double_to_a_minute_and_begin_anew_when_something_succeeded(
    fake_broker: Broker, cluster: FakeCluster, pauses: type[Pauses]
) -> None:
    queues = await with_parts(fake_broker, cluster, "s01", "s02")
    slice_ = Refusing(cluster, "s02")
    with pytest.raises(shoal.ResourceExhausted):
        await fake_broker.drop(queues)
    await until(lambda: len(pauses.told) >= 9)
    assert pauses.told[:9] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    slice_.taken.add(queues[0])
    await until(lambda: 1 in pauses.told[9:] and pauses.told[-1] == 60)
    anew = pauses.told.index(1, 9)
    assert pauses.told[anew : anew + 3] == [1, 2, 4]
    slice_.taken.add(queues[1])
    await until(lambda: not parts_on(cluster, "s02"))


async def test_parts_of_many_queues_cost_a_round_one_frame_of_a_kind(
    fake_broker: Broker, cluster: FakeCluster, pauses: type[Pauses]
) -> None:
    queues = await with_parts(fake_broker, cluster, "s01", "s02", count=40)
    slice_ = Refusing(cluster, "s02")
    with pytest.raises(shoal.ResourceExhausted):
        await fake_broker.drop(queues)
    for one in cluster.slices.values():
        one.frames.clear()
    await until(lambda: len(pauses.told) >= 4)
    slice_.taken.update(queues)
    await until(lambda: not parts_on(cluster, "s02"))
    kinds = [frame.WhichOneof("frame") for frame in cluster.slices["s02"].frames]
    assert kinds.count("describe") <= len(pauses.told) and kinds.count("change") <= len(pauses.told)
    assert len(cluster.slices["s01"].frames) <= len(pauses.told)


async def test_a_place_that_pauses_holds_up_no_other(
    fake_broker: Broker, cluster: FakeCluster, pauses: type[Pauses], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.leftovers.PLACES_AT_ONCE_MAX", 1)
    pauses.last_s = 1_000.0
    there = await with_parts(fake_broker, cluster, "s01", "s02")
    here = await with_parts(fake_broker, cluster, "s01", "s03")
    Refusing(cluster, "s02")
    slice_ = Refusing(cluster, "s03")
    with pytest.raises(shoal.ResourceExhausted):
        await fake_broker.drop(there)
    await until(lambda: len(pauses.told) == 2)  # From now on it pauses for long.
    monkeypatch.setattr("shoal.leftovers.Backoff", Backoff)
    monkeypatch.setattr("shoal.leftovers.PARTS_LEFT_AGAIN_S", AGAIN_S)
    with pytest.raises(shoal.ResourceExhausted):
        await fake_broker.drop(here)
    slice_.taken.update(here)
    await until(lambda: not parts_on(cluster, "s03"))
    assert parts_on(cluster, "s02") == there


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("how", ["the caller stops waiting", "the deadline is over"])
async def test_parts_are_ended_where_the_home_did_not_answer(
    how: str, count: int, fake_broker: Broker, cluster: FakeCluster
) -> None:
    """The home drops the queues, and its answer is late."""
    queues, home = await with_parts(fake_broker, cluster, "s01", "s02", "s03", count=count), cluster.slices["s01"]
    await fake_broker.publish(cluster.key_of("s02"), b"of the first life")
    home.answering.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3 if how == "the caller stops waiting" else 10):
            await fake_broker.drop(queues, deadline_s=10 if how == "the caller stops waiting" else 0.3)
    home.answering.set()
    home.cut()
    await fake_broker.declare(queues)
    await until(lambda: not parts_on(cluster, "s02") and not parts_on(cluster, "s03"))
    assert parts_on(cluster, "s01") == queues and not await fake_broker.pull(queues[0], 9)


async def test_what_was_dropped_before_the_caller_left_is_ended_elsewhere(
    fake_broker: Broker, cluster: FakeCluster
) -> None:
    """A home that looked at enough bindings for one change is asked again for the rest: meanwhile the caller leaves."""
    queues, home = await with_parts(fake_broker, cluster, "s01", "s02"), cluster.slices["s01"]
    real, asked = home.state._drop, 0

    def drop(queue: bytes, *arguments: Any) -> Any:
        nonlocal asked
        if queue == queues[1].encode():
            asked += 1
            if asked == 1:
                raise shoal.ResourceExhausted("so many bindings in one change")
            home.answering.clear()
        return real(queue, *arguments)

    home.state._drop = drop  # type: ignore[method-assign, assignment]
    dropping = asyncio.create_task(fake_broker.drop(queues, if_empty=True))
    await until(lambda: asked == 2)
    dropping.cancel()
    home.answering.set()
    await until(lambda: not parts_on(cluster, "s02"))
    assert not parts_on(cluster, "s01")


async def test_what_a_drop_that_is_cancelled_did_not_come_to_ask_is_ended(
    fake_broker: Broker, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The homes have answered, and one slice is still asked."""
    asking = asyncio.Event()
    real = Dropping._drop_at

    async def drop_at(self: Dropping, slice_name: str, *arguments: Any) -> dict[bytes, Any]:
        if slice_name == "s02":
            asking.set()
            await asyncio.Event().wait()
        return await real(self, slice_name, *arguments)

    monkeypatch.setattr(Dropping, "_drop_at", drop_at)
    queues = await with_parts(fake_broker, cluster, "s01", "s02", "s03")
    dropping = asyncio.create_task(fake_broker.drop(queues))
    await asking.wait()
    assert parts_on(cluster, "s02") == queues and not parts_on(cluster, "s01")
    dropping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropping
    await until(lambda: not parts_on(cluster, "s02") and not parts_on(cluster, "s03"))


@pytest.mark.parametrize("how", ["refused", "conflict", "nothing is left"])
async def test_nothing_is_noted_where_the_home_said_that_it_did_not_drop(
    how: str, fake_broker: Broker, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[bytes] = []
    real = Leftovers.end_later

    def end_later(self: Leftovers, parts: Iterable[tuple[bytes, Iterable[str]]]) -> None:
        found = [(queue, list(slices)) for queue, slices in parts]
        noted.extend(queue for queue, slices in found for _ in slices)
        real(self, found)

    monkeypatch.setattr(Leftovers, "end_later", end_later)
    queues = await with_parts(fake_broker, cluster, "s01", "s02")
    if how == "refused":
        Refusing(cluster, "s01")
        with pytest.raises(shoal.ResourceExhausted):
            await fake_broker.drop(queues)
    elif how == "conflict":
        async with fake_broker.consume(queues):
            with pytest.raises(shoal.Conflict):
                await fake_broker.drop(queues, if_unused=True)
    else:
        await fake_broker.drop(queues)
    assert not noted


async def test_a_queue_that_its_home_did_not_drop_keeps_its_parts(fake_broker: Broker, cluster: FakeCluster) -> None:
    """The home was away, so that the request was never sent."""
    queues, home = await with_parts(fake_broker, cluster, "s01", "s02"), cluster.slices["s01"]
    await home.stop()
    await until(lambda: bool(fake_broker._routing.session("s01").away))
    with pytest.raises(shoal.DeadlineExceeded):
        await fake_broker.drop(queues, deadline_s=0.3)
    await home.start()
    leftovers = fake_broker._dropping._leftovers
    assert leftovers._count
    await until(lambda: not leftovers._count)
    assert parts_on(cluster, "s01") == parts_on(cluster, "s02") == queues


async def test_what_a_second_drop_left_is_not_forgotten_with_what_the_first_one_left(
    fake_broker: Broker, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a round ends the part of the first life, the queue lives anew and is dropped again."""
    asking, go = asyncio.Event(), asyncio.Event()
    real = Homes.lives_of

    async def late(self: Homes, queues: Any, deadline: float) -> Any:
        asking.set()
        await go.wait()
        return await real(self, queues, deadline)

    (queue,) = await with_parts(fake_broker, cluster, "s01", "s02", count=1)
    slice_ = cluster.slices["s02"]
    slice_.refuse_frames += [REFUSAL]
    with pytest.raises(shoal.ResourceExhausted):
        await fake_broker.drop(queue)
    monkeypatch.setattr(Homes, "lives_of", late)
    await asking.wait()
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, cluster.key_of("s02"))
    slice_.refuse_frames += [REFUSAL]
    with pytest.raises(shoal.ResourceExhausted):
        await fake_broker.drop(queue)
    assert parts_on(cluster, "s02") == [queue]
    go.set()
    await until(lambda: not parts_on(cluster, "s02"))


async def test_a_caller_that_leaves_while_the_connection_closes_is_cancelled(
    fake_broker: Broker, cluster: FakeCluster
) -> None:
    """What it leaves cannot be asked for any more: no task can be started."""
    (queue,) = await with_parts(fake_broker, cluster, "s01", "s02", count=1)
    cluster.slices["s01"].answering.clear()
    dropping = asyncio.create_task(fake_broker.drop(queue))
    await until(lambda: not parts_on(cluster, "s01"))
    fake_broker.connection._tasks.cancel()
    dropping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dropping


class Places:
    """Homes, and slices with parts, as `Leftovers` sees them. `life`, `part`: the incarnations that the home and each
    slice tell."""

    def __init__(self, life: int | None = 0, part: int = 0) -> None:
        self.life, self.part = life, part
        self.dropped: list[int] = []
        self.describing = self
        self.tasks: set[asyncio.Task[None]] = set()

    async def describe(self, slice_name: str, queues: Sequence[bytes], deadline: float) -> list[Any]:
        return [wire.QueueDescription(queue=queue, exists=True, incarnation=self.part) for queue in queues]

    async def lives_of(self, queues: Sequence[bytes], deadline: float) -> dict[bytes, Any]:
        return dict.fromkeys(queues, None if self.life is None else SimpleNamespace(incarnation=self.life))

    async def ask(self, requests: Sequence[tuple[str, Any]]) -> list[Any]:
        self.dropped.append(self.part)
        return [[None]]

    def home_of(self, queue: bytes) -> str:
        return queue.decode()

    def in_background(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.create_task(work))


@pytest.mark.parametrize(
    ("life", "part", "ends"),
    [(None, 0, True), (None, 7, True), (8, 7, True), (7, 7, False), (7, 0, False), (0, 7, False)],
)
async def test_a_part_ends_only_if_it_is_known_to_be_of_another_life(life: int | None, part: int, ends: bool) -> None:
    """A life that is not known, 0, may be the one that the home has."""
    places = Places(life, part)
    leftovers: Any = Leftovers(places, places)  # type: ignore[arg-type]
    await leftovers.end("s01", [b"q"], asyncio.get_running_loop().time() + 60)
    assert places.dropped == [part] * ends


async def test_a_bounded_number_of_places_is_asked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.leftovers.PARTS_LEFT_AGAIN_S", 0.0)
    monkeypatch.setattr("shoal.leftovers.PLACES_AT_ONCE_MAX", 3)
    places, asked, most, done = Places(), 0, 0, asyncio.Event()
    answers = asyncio.Semaphore(0)

    async def end(slice_name: str, queues: Sequence[bytes], deadline: float) -> dict[bytes, Any]:
        nonlocal asked, most
        asked += 1
        most = max(most, asked)
        if asked >= 3:
            done.set()
        await answers.acquire()
        asked -= 1
        return dict.fromkeys(queues)

    leftovers = Leftovers(places, places)  # type: ignore[arg-type]
    monkeypatch.setattr(leftovers, "end", end)
    leftovers.end_later((b"home%d" % number, ["s01"]) for number in range(20))
    async with asyncio.timeout(30):
        await done.wait()
        for _ in range(20):
            await asyncio.sleep(0)
            answers.release()
        await until(lambda: not leftovers._left)
    assert most == 3


def test_a_home_that_may_have_dropped_the_queue_leaves_its_parts_to_be_ended() -> None:
    """One that cannot read an answer, too: the request came through."""
    unsure = (shoal.Unavailable("x"), shoal.DeadlineExceeded("x"), shoal.Malformed("x"))
    sure = (shoal.ResourceExhausted("x"), shoal.NoSuchQueue("x"), shoal.Conflict("x"))
    assert [_may_be_done(error) for error in (*unsure, *sure)] == [True] * 3 + [False] * 3
