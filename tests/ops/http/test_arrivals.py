"""Pulls that wait: they are woken whatever other queues wait, and a look that fails is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

import pytest

import shoal
from shoal.testing import FakeCluster
from shoal_contract.errors import NoRights, ShoalError
from shoal_ops.http import limits
from shoal_ops.http.arrivals import Arrivals, _Lane
from shoal_runtime.tasks import Tasks

WAIT_S = 60.0
NONE = shoal.Backlog(True, 0, (), ())
SOME = shoal.Backlog(True, 1, ("s01",), (), ("s01",))


class FakeLeases:
    """Tells backlogs. `bindings`: queue -> its bindings, else 1; `held`: queues that have no answer until `answer`."""

    def __init__(self) -> None:
        self.bindings: dict[bytes, int | None] = {}
        self.backlog: dict[bytes, shoal.Backlog] = {}
        self.held: set[bytes] = set()
        self.answer = asyncio.Event()
        self.asked: list[list[bytes]] = []
        self.looks = asyncio.Condition()
        self.error: ShoalError | None = None

    def bindings_of(self, queue: bytes) -> int | None:
        return self.bindings.get(queue, 1)

    async def backlogs(self, queues: Sequence[bytes]) -> list[shoal.Backlog]:
        async with self.looks:
            self.asked.append(list(queues))
            self.looks.notify_all()
        if self.held.intersection(queues):
            await self.answer.wait()
        if self.error is not None:
            raise self.error
        return [self.backlog.get(queue, NONE) for queue in queues]

    async def looked(self, count: int) -> None:
        """Waits for so many further looks."""
        async with asyncio.timeout(WAIT_S), self.looks:
            end = len(self.asked) + count
            await self.looks.wait_for(lambda: len(self.asked) >= end)


@pytest.fixture
def leases() -> FakeLeases:
    return FakeLeases()


@pytest.fixture
async def tasks(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Tasks]:
    monkeypatch.setattr(limits, "LOOK_EVERY_S_MIN", 0.0)
    monkeypatch.setattr(limits, "LOOK_EVERY_S_MAX", 0.001)
    async with Tasks("test") as tasks:
        yield tasks


def started(leases: object, tasks: Tasks) -> tuple[Arrivals, asyncio.Task[None]]:
    """What looks, and a caller that does not leave."""
    arrivals = Arrivals(leases)  # type: ignore[arg-type]
    tasks.start("look", arrivals.look())

    async def stay() -> None:
        await asyncio.Event().wait()

    return arrivals, tasks.start("gone", stay())


async def test_pulls_of_small_queues_do_not_wait_for_looks_at_large_ones(leases: FakeLeases, tasks: Tasks) -> None:
    leases.bindings = {b"large": 100_000, b"medium": 10_000, b"unknown": None}
    leases.held = set(leases.bindings)
    leases.backlog = {b"h": SOME}
    arrivals, gone = started(leases, tasks)
    others = [tasks.start("pull", arrivals.wait(queue, -1, WAIT_S, gone)) for queue in leases.bindings]
    async with asyncio.timeout(WAIT_S):
        assert await arrivals.wait(b"h", -1, WAIT_S, gone) == 1
    assert not any(other.done() for other in others)


async def test_large_queues_are_asked_for_a_few_at_a_time_in_turn(leases: FakeLeases, tasks: Tasks) -> None:
    names = [b"large%d" % number for number in range(5)]
    leases.bindings = dict.fromkeys(names, 100_000)
    arrivals, gone = started(leases, tasks)
    pulls = [tasks.start("pull", arrivals.wait(name, -1, WAIT_S, gone)) for name in names]
    await leases.looked(6)
    assert all(len(asked) <= limits.LOOK_QUEUES_LARGE for asked in leases.asked)
    assert leases.asked[:6] == [[name] for name in [*names, names[0]]]
    leases.backlog = dict.fromkeys(names, SOME)
    async with asyncio.timeout(WAIT_S):
        assert await asyncio.gather(*pulls) == [1] * 5


async def test_a_queue_that_turns_out_to_be_large_goes_to_the_large_ones(leases: FakeLeases, tasks: Tasks) -> None:
    arrivals, gone = started(leases, tasks)
    pulls = [tasks.start("pull", arrivals.wait(name, -1, WAIT_S, gone)) for name in (b"large", b"h")]
    await leases.looked(1)
    assert leases.asked[-1] == [b"large", b"h"]
    leases.bindings = {b"large": 100_000}
    await leases.looked(3)
    assert [b"large"] in leases.asked and leases.asked[-1] in ([b"large"], [b"h"]) and len(arrivals) == 2
    leases.backlog = dict.fromkeys([b"large", b"h"], SOME)
    async with asyncio.timeout(WAIT_S):
        await asyncio.gather(*pulls)
    assert len(arrivals) == 0


async def test_queues_of_unknown_size_are_asked_for_together(leases: FakeLeases, tasks: Tasks) -> None:
    """As many pulls as may wait took 20 s of looks, one after the other."""
    names = [b"new%d" % number for number in range(40)]
    leases.bindings = dict.fromkeys(names)
    arrivals, gone = started(leases, tasks)
    pulls = [tasks.start("pull", arrivals.wait(name, -1, WAIT_S, gone)) for name in names]
    await leases.looked(2)
    assert leases.asked[:2] == [names] * 2
    leases.backlog = {names[-1]: SOME}
    async with asyncio.timeout(WAIT_S):
        assert await pulls[-1] == 1
    assert not any(pull.done() for pull in pulls[:-1])


@pytest.mark.parametrize("queue", [b"large", b"h"])
async def test_a_pull_of_a_queue_that_no_slice_counts_looks_again_after_a_while(
    queue: bytes, leases: FakeLeases, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RETRY_S", WAIT_S)
    leases.bindings = {b"large": 100_000}
    leases.backlog = {queue: NONE._replace(refused=("s01",))}
    arrivals, gone = started(leases, tasks)
    early = tasks.start("pull", arrivals.wait(queue, 0, WAIT_S, gone))
    await leases.looked(3)
    assert not early.done()
    monkeypatch.setattr(limits, "RETRY_S", -1.0)
    async with asyncio.timeout(WAIT_S / 2):
        assert await arrivals.wait(queue, 0, WAIT_S, gone) == 0
    assert len(arrivals) == 1 and not early.done()


async def test_a_pull_of_a_queue_that_others_have_leased_whole_looks_again_after_a_while(
    leases: FakeLeases, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease may have ended: the backlog is the same, and there is something to take."""
    monkeypatch.setattr(limits, "RETRY_S", WAIT_S)
    leases.backlog = {b"h": SOME}
    arrivals, gone = started(leases, tasks)
    early = tasks.start("pull", arrivals.wait(b"h", SOME.messages, WAIT_S, gone))
    await leases.looked(3)
    assert not early.done()
    monkeypatch.setattr(limits, "RETRY_S", -1.0)
    later = tasks.start("pull", arrivals.wait(b"h", SOME.messages, WAIT_S, gone))
    async with asyncio.timeout(WAIT_S / 2):
        assert await later == 1
    assert len(arrivals) == 1 and not early.done()


async def test_a_pull_ends_at_once_if_its_queue_is_gone_and_goes_on_if_a_slice_is_silent(
    leases: FakeLeases, tasks: Tasks
) -> None:
    """A slice that is silent may be the one that has the queue."""
    gone_here = NONE._replace(exists=False)
    leases.backlog = {b"h": gone_here._replace(silent=("s01",))}
    arrivals, gone = started(leases, tasks)
    pull = tasks.start("pull", arrivals.wait(b"h", 0, WAIT_S, gone))
    await leases.looked(3)
    assert not pull.done()
    leases.backlog = {b"h": gone_here}
    async with asyncio.timeout(WAIT_S / 2):
        assert await pull == 0


async def test_a_look_that_fails_is_told_once_while_it_does(
    leases: FakeLeases, tasks: Tasks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "shoal_ops")
    leases.error = NoRights("this client may not look")
    arrivals, gone = started(leases, tasks)
    pull = tasks.start("pull", arrivals.wait(b"h", -1, WAIT_S, gone))
    await leases.looked(3)
    assert len(caplog.records) == 1 and "this client may not look" in caplog.text
    leases.error = None
    await leases.looked(3)
    assert len(caplog.records) == 2 and "are woken again" in caplog.records[1].message
    leases.error = NoRights("this client may not look")
    await leases.looked(3)
    assert len(caplog.records) == 3
    arrivals.end_all()
    assert await pull == -1


def test_a_lane_takes_its_share_of_the_time_however_long_looks_take() -> None:
    small = _Lane("small", 500, 1_000, limits.LOOK_SHARE_MAX)
    large = _Lane("large", float("inf"), 2, limits.LOOK_SHARE_MAX_LARGER)
    assert small.pause_s(0.0, False) == limits.LOOK_EVERY_S_MIN
    assert small.pause_s(0.01, False) == pytest.approx(0.09), "a tenth"
    assert small.pause_s(0.5, False) == limits.LOOK_EVERY_S_MAX
    assert (small.pause_s(4.0, False), large.pause_s(4.0, False)) == (6.0, 16.0)
    assert (small.pause_s(4.0, True), large.pause_s(4.0, True)) == (limits.LOOK_EVERY_S_MAX, 16.0)


async def test_pulls_of_queues_that_are_only_declared_are_of_small_ones(tasks: Tasks) -> None:
    """They were of unknown size until something was sent there, and asked for one at a time: 400 of them were woken
    after up to 23 s."""
    cluster = FakeCluster()
    queues = [f"inbox{number}" for number in range(20)]
    async with cluster.connect() as broker:
        await broker.declare(queues)
        leases = shoal.Leases(broker)
        for queue in queues:
            assert not await leases.pull(queue, 1, lease_ms=1_000)
        arrivals, gone = started(leases, tasks)
        pulls = [tasks.start("pull", arrivals.wait(queue.encode(), -1, WAIT_S, gone)) for queue in queues]
        while len(arrivals) < len(queues):
            await broker.publish(cluster.key_of("s01"), b"x")
        assert [len(lane.waiters) for lane in arrivals._lanes] == [len(queues), 0, 0, 0]
        await broker.send(queues[-1], b"x")
        async with asyncio.timeout(WAIT_S / 2):
            assert await pulls[-1] == 1
        assert not any(pull.done() for pull in pulls[:-1])


async def test_pulls_of_queues_with_many_bindings_are_woken(tasks: Tasks) -> None:
    """Of three queues of 70,000 bindings, or 800 of 251, a slice refused the one question about all that waited: no
    pull was woken any more."""
    cluster = FakeCluster()
    keys = [cluster.key_of("s02", f"key{number}") for number in range(5)]
    queues = [f"q{number}" for number in range(7)]
    async with cluster.connect() as broker:
        await broker.declare(queues)
        for queue in queues:
            await broker.bind(queue, keys)
        for slice_ in cluster.slices.values():
            slice_.state.describe_bindings_max = 2 * len(keys)
        arrivals, gone = started(shoal.Leases(broker), tasks)
        pulls = [tasks.start("pull", arrivals.wait(queue.encode(), -1, WAIT_S, gone)) for queue in queues]
        while not cluster.slices["s02"].frames or len(arrivals) < len(queues):
            await broker.publish(cluster.key_of("s01"), b"x")
        await broker.publish(keys[0], b"x")
        async with asyncio.timeout(WAIT_S / 2):
            assert await asyncio.gather(*pulls) == [1] * len(queues)
