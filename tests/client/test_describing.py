"""Questions about many queues at a time: slices refuse those that have too many bindings together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence

import pytest

import shoal
from shoal import describing
from shoal.describing import Describing, is_too_large
from shoal.limits import DESCRIBE_QUEUES_MAX
from shoal.testing import FakeCluster
from shoal_contract.errors import DeadlineExceeded, NoRights, ResourceExhausted, ShoalError
from shoal_contract.limits import DESCRIBE_BINDINGS_SUBJECT
from shoal_contract.wire import slice_pb2 as wire

KEYS = 5
"""The bindings of each queue: keys of one slice. At its home it has one more, its direct key."""
QUEUES = [f"q{number}" for number in range(20)]


class Slice:
    """A slice that describes up to `bindings_max` bindings at a time. `asked`: the sizes of what it
    answered; `refused`: of what it refused."""

    def __init__(self, bindings_max: int, bindings: dict[bytes, int]) -> None:
        self.bindings_max = bindings_max
        self.bindings = bindings
        self.asked: list[int] = []
        self.refused: list[int] = []
        self.broken: ShoalError | None = None
        self.asked_while_broken = 0
        self.describing = Describing(self.ask)

    async def ask(self, slice_name: str, question: wire.Describe, deadline: float) -> wire.Description:
        if self.broken is not None:
            self.asked_while_broken += 1
            raise self.broken
        value = sum(self.bindings[queue] for queue in question.queues)
        if value > self.bindings_max:
            self.refused.append(len(question.queues))
            raise ResourceExhausted("too many", subject=DESCRIBE_BINDINGS_SUBJECT, value=value)
        self.asked.append(len(question.queues))
        described = [wire.QueueDescription(queue=one, binding_count=self.bindings[one]) for one in question.queues]
        return wire.Description(queues=described)

    async def look(self, queues: Sequence[bytes] = ()) -> list[describing.Described]:
        self.asked, self.refused = [], []
        return await self.describing.describe("s01", list(queues or self.bindings), 0)


def queues_of(bindings: list[int]) -> dict[bytes, int]:
    return {b"q%d" % number: count for number, count in enumerate(bindings)}


async def test_what_is_too_much_for_one_question_is_asked_in_smaller_ones() -> None:
    slice_ = Slice(200_000, queues_of([251] * 1_000))
    found = await slice_.look()
    assert [one.queue for one in found if not isinstance(one, ShoalError)] == list(slice_.bindings), "in order"
    assert (slice_.asked, slice_.refused) == ([500, 500], [1_000])
    await slice_.look()
    assert (slice_.asked, slice_.refused) == ([500, 500], []), "it is remembered what fits"


async def test_a_large_queue_does_not_make_the_questions_about_others_small() -> None:
    slice_ = Slice(200_000, queues_of([1] * 300 + [200_000] + [1] * 499))
    await slice_.look()
    assert sum(slice_.asked) == 800
    await slice_.look()
    assert sum(slice_.asked) == 800 and not slice_.refused
    assert len(slice_.asked) <= 12


async def test_a_queue_that_is_refused_alone_leaves_the_others_theirs() -> None:
    slice_ = Slice(200_000, queues_of([7, 200_001, 7, 7]))
    for _ in range(2):
        one, large, *others = await slice_.look()
        assert isinstance(large, ShoalError) and is_too_large(large)
        assert not any(isinstance(other, ShoalError) for other in (one, *others))
    assert slice_.refused == [1], "and is asked for alone the next time"


async def test_a_slice_that_fails_is_asked_no_further() -> None:
    slice_ = Slice(200_000, queues_of([1] * (2 * DESCRIBE_QUEUES_MAX + 1)))
    slice_.broken = DeadlineExceeded("the leader is away")
    assert await slice_.look() == [slice_.broken] * len(slice_.bindings)
    assert slice_.asked_while_broken == 1


async def test_sizes_are_tried_anew_once_they_are_old(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept_s, asked in (60.0, [1, 1]), (-1.0, [2]):
        monkeypatch.setattr(describing, "DESCRIBE_SIZES_KEPT_S", kept_s)
        slice_ = Slice(200_000, queues_of([150_000, 150_000]))
        await slice_.look()
        slice_.bindings = queues_of([5, 5])
        await slice_.look()
        assert slice_.asked == asked


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describing, "DESCRIBE_SIZES_MAX", 10)
    slice_ = Slice(10, queues_of([10] * 100))
    for first in range(0, 100, 4):
        await slice_.look([b"q%d" % number for number in range(first, first + 4)])
        assert len(slice_.describing._sizes["s01"]._fits) <= 10


async def test_the_log_has_a_refusal_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "shoal")
    slice_ = Slice(200_000, queues_of([7, 7]))
    slice_.broken = DeadlineExceeded("the leader is away")
    assert await slice_.look() == [slice_.broken] * 2
    assert not caplog.records, "the session tells that a slice is away"
    slice_.broken = NoRights("no")
    for _ in range(3):
        assert await slice_.look() == [slice_.broken] * 2
    assert [record.message for record in caplog.records] == ["slice s01 does not describe some queues: no"]
    monkeypatch.setattr(describing, "DESCRIBE_TOLD_S", 0.0)
    await slice_.look()
    assert len(caplog.records) == 2


def test_a_question_is_as_large_as_a_slice_takes() -> None:
    pieces = list(describing._Sizes().pieces([b"q%d" % number for number in range(2_500)], 1.0))
    assert [len(piece) for piece in pieces] == [DESCRIBE_QUEUES_MAX] * 2 + [500]


@pytest.fixture
async def memory() -> AsyncIterator[tuple[FakeCluster, shoal.Broker]]:
    """A cluster whose slices describe three of the queues at a time, and a connection to it."""
    cluster = FakeCluster()
    keys = [cluster.key_of("s02", f"key{number}") for number in range(KEYS)]
    async with cluster.connect() as broker:
        await broker.declare(QUEUES)
        for queue in QUEUES:
            await broker.bind(queue, keys)
        await broker.publish(keys[0], b"x")
        for slice_ in cluster.slices.values():
            slice_.state.describe_bindings_max = 3 * KEYS
        yield cluster, broker


async def test_a_drop_on_conditions_of_many_queues_with_many_bindings(
    memory: tuple[FakeCluster, shoal.Broker],
) -> None:
    cluster, broker = memory
    await broker.drop(QUEUES, if_unused=True)
    assert not any(slice_.state.queues.parts for slice_ in cluster.slices.values())


async def test_homes_are_asked_about_many_queues_with_many_bindings(memory: tuple[FakeCluster, shoal.Broker]) -> None:
    cluster, broker = memory
    at_home = [queue for queue in QUEUES if cluster.home_of(queue).name == "s02"]
    assert len(at_home) > 3, "these have their bindings at their home"
    homes, deadline = broker.connection.homes, broker.connection.deadline(None)
    lives = await asyncio.gather(*(homes.life_of(queue.encode(), deadline) for queue in QUEUES))
    assert all(lives)


async def test_a_queue_that_its_home_does_not_describe_fails_alone(memory: tuple[FakeCluster, shoal.Broker]) -> None:
    cluster, broker = memory
    at_home = [queue for queue in QUEUES if cluster.home_of(queue).name == "s02"]
    await broker.bind(at_home[0], [cluster.key_of("s02", f"more{number}") for number in range(4 * KEYS)])
    homes, deadline = broker.connection.homes, broker.connection.deadline(None)
    lives = await asyncio.gather(
        *(homes.life_of(queue.encode(), deadline) for queue in at_home), return_exceptions=True
    )
    assert isinstance(lives[0], ResourceExhausted)
    assert len(lives) > 3 and not any(isinstance(life, BaseException) for life in lives[1:])


async def test_backlogs_of_many_queues_with_many_bindings(memory: tuple[FakeCluster, shoal.Broker]) -> None:
    _, broker = memory
    leases = shoal.Leases(broker)
    found = await leases.backlogs([*QUEUES, "nobody"])
    assert [one.messages for one in found] == [1] * len(QUEUES) + [0]
    assert not any(one.silent or one.refused for one in found) and not found[-1].exists
    assert leases.bindings_of(QUEUES[0]) in (KEYS, KEYS + 1) and leases.bindings_of("nobody") is None


async def test_a_slice_that_refuses_leaves_the_backlogs_on_others(memory: tuple[FakeCluster, shoal.Broker]) -> None:
    cluster, broker = memory
    cluster.slices["s01"].refuse_frames = [ResourceExhausted("no room for answers", subject="answers")]
    found = await shoal.Leases(broker).backlogs(QUEUES)
    assert [(one.messages, one.silent) for one in found] == [(1, ("s01",))] * len(QUEUES)


async def test_a_queue_s_size_is_known_though_a_slice_is_silent(memory: tuple[FakeCluster, shoal.Broker]) -> None:
    cluster, broker = memory
    leases = shoal.Leases(broker)
    for slice_ in cluster.slices.values():
        slice_.refuse_frames = [ResourceExhausted("no room for answers", subject="answers")]
    assert (await leases.backlogs(QUEUES[:1]))[0].silent == tuple(cluster.slices)
    assert leases.bindings_of(QUEUES[0]) is None
    cluster.slices["s01"].refuse_frames = [ResourceExhausted("no room for answers", subject="answers")]
    await leases.backlogs(QUEUES[:1])
    assert (leases.bindings_of(QUEUES[0]) or 0) >= KEYS
    cluster.slices["s02"].refuse_frames = [ResourceExhausted("no room for answers", subject="answers")]
    await leases.backlogs(QUEUES[:1])
    assert (leases.bindings_of(QUEUES[0]) or 0) >= KEYS, "what is not told now counts as before"


async def test_a_queue_without_bindings_is_a_queue_of_known_size(memory: tuple[FakeCluster, shoal.Broker]) -> None:
    """A declared queue that nothing was sent to yet has none: it was taken for one of unknown size."""
    cluster, broker = memory
    await broker.declare("inbox")
    leases = shoal.Leases(broker)
    cluster.home_of("inbox").refuse_frames = [ResourceExhausted("no room for answers", subject="answers")]
    await leases.backlogs(["inbox"])
    assert leases.bindings_of("inbox") == 0, "as far as is known"
    leases = shoal.Leases(broker)
    await leases.backlogs(["inbox"])
    assert leases.bindings_of("inbox") == 0
    cluster.home_of("inbox").refuse_frames = [ResourceExhausted("no room for answers", subject="answers")]
    await leases.backlogs(["inbox"])
    assert leases.bindings_of("inbox") == 0, "what is not told now counts as before"
    await broker.drop("inbox")
    await leases.backlogs(["inbox"])
    assert leases.bindings_of("inbox") is None


async def test_sizes_of_so_many_queues_are_remembered(
    memory: tuple[FakeCluster, shoal.Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, broker = memory
    monkeypatch.setattr("shoal.leases.QUEUE_SIZES_MAX", 5)
    leases = shoal.Leases(broker)
    await leases.backlogs(QUEUES[:5])
    await leases.backlogs(QUEUES[:1])
    await leases.backlogs(QUEUES[5:6])
    known = [queue for queue in QUEUES if leases.bindings_of(queue) is not None]
    assert known == [QUEUES[0], *QUEUES[2:6]], "that which was not asked for the longest is forgotten"


async def test_a_queue_too_large_to_be_counted_is_pulled_all_the_same(
    memory: tuple[FakeCluster, shoal.Broker],
) -> None:
    cluster, broker = memory
    cluster.slices["s02"].state.describe_bindings_max = KEYS - 1
    leases = shoal.Leases(broker)
    (found,) = await leases.backlogs(QUEUES[:1])
    assert (found.exists, found.messages, found.refused, found.silent) == (True, 0, ("s02",), ())
    assert leases.bindings_of(QUEUES[0]) in (KEYS, KEYS + 1)
    assert [message.body for message in await leases.pull(QUEUES[0], 9, lease_ms=60_000)] == [b"x"]


async def test_a_sweep_looks_at_many_parts_with_many_bindings(memory: tuple[FakeCluster, shoal.Broker]) -> None:
    cluster, broker = memory
    names = [queue.encode() for queue in QUEUES]
    await broker.bind(QUEUES[0], [cluster.key_of("s02", f"more{number}") for number in range(4 * KEYS)])
    parts = await shoal.Parts(broker).look("s02", names, deadline_s=10)
    assert [part.queue for part in parts] == names[1:], "a part that is too large by itself is left out"
