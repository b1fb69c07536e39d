"""What an interrupted drop left on other slices is found and dropped; what is declared or dropped meanwhile is not
harmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import shoal
from shoal_contract.options import DURABLE
from shoal_ops.sweep.sweeper import Sweeper
from tests.client.fake_cluster import FakeCluster


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster(["s01", "s02", "s03"])
    await cluster.start()
    yield cluster
    await cluster.stop()


@pytest.fixture
async def broker(cluster: FakeCluster) -> AsyncIterator[shoal.Broker]:
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as broker:
        yield broker


async def queues(broker: shoal.Broker, cluster: FakeCluster, count: int) -> list[str]:
    """Queues with a part on every slice."""
    names = [f"queue-{number}" for number in range(count)]
    keys = [cluster.key_of(name) for name in cluster.slices]
    await broker.declare(names)
    for name in names:
        await broker.bind(name, keys)
    return names


def home(cluster: FakeCluster, queue: str) -> str:
    return cluster.owner_of(f"@{queue}").name


def interrupt_drop(cluster: FakeCluster, queue: str) -> None:
    """As a drop that ends between the home and the others."""
    cluster.slices[home(cluster, queue)].state.queues.drop(queue.encode(), 0)


def parts(cluster: FakeCluster, queue: str) -> int:
    return sum(queue.encode() in slice_.state.queues for slice_ in cluster.slices.values())


async def test_what_drops_left_behind_is_dropped_and_nothing_else(
    cluster: FakeCluster, broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_ops.sweep.sweeper.SWEEP_NAMES", 7)  # Several pages of each slice.
    names = await queues(broker, cluster, 40)
    left, whole = names[::4], [name for name in names if name not in names[::4]]
    for name in left:
        interrupt_drop(cluster, name)
    dropped: list[shoal.Part] = []
    sweeper = Sweeper(shoal.Parts(broker), unknown_too=True, pause_s=0.01, on_drop=dropped.append)
    await sweeper.once()
    assert [parts(cluster, name) for name in left] == [0] * len(left)
    assert [parts(cluster, name) for name in whole] == [3] * len(whole)
    assert (sweeper.figures.looked, sweeper.figures.dropped) == (2 * len(names), 2 * len(left))
    assert sorted(part.queue.decode() for part in dropped) == sorted(left * 2)
    again = Sweeper(shoal.Parts(broker), unknown_too=True, pause_s=0.01)
    await again.once()
    assert (again.figures.looked, again.figures.dropped) == (2 * len(whole), 0)


async def test_a_dry_run_only_looks(cluster: FakeCluster, broker: shoal.Broker) -> None:
    (name,) = await queues(broker, cluster, 1)
    interrupt_drop(cluster, name)
    found: list[shoal.Part] = []
    await Sweeper(shoal.Parts(broker), unknown_too=True, pause_s=0, dropping=False, on_drop=found.append).once()
    assert len(found) == parts(cluster, name) == 2


async def test_a_home_that_began_with_empty_data_costs_no_part_of_another_slice(
    cluster: FakeCluster, broker: shoal.Broker
) -> None:
    names = await queues(broker, cluster, 9)
    lost = [name for name in names if home(cluster, name) == "s01"]
    cluster.slices["s01"].state.queues.parts.clear()  # --accept-empty.
    sweeper = Sweeper(shoal.Parts(broker), pause_s=0)
    await sweeper.once()
    assert lost and [parts(cluster, name) for name in lost] == [2] * len(lost)
    assert (sweeper.figures.dropped, sweeper.figures.unknown) == (0, 2 * len(lost))
    again = Sweeper(shoal.Parts(broker), pause_s=0, unknown_too=True)
    await again.once()
    assert [parts(cluster, name) for name in lost] == [0] * len(lost), "an operator says so"


async def test_a_part_of_an_older_life_goes_and_the_newer_one_stays(cluster: FakeCluster, broker: shoal.Broker) -> None:
    (name,) = await queues(broker, cluster, 1)
    interrupt_drop(cluster, name)
    other, third = [one for one in cluster.slices if one != home(cluster, name)]
    async with shoal.connect(cluster.redirectors[0].address) as fresh:
        await fresh.declare(name)
        await fresh.bind(name, cluster.key_of(other, "new"))
    assert parts(cluster, name) == 3
    sweeper = Sweeper(shoal.Parts(broker), pause_s=0)
    await sweeper.once()
    assert sweeper.figures.dropped == 1
    assert name.encode() in cluster.slices[other].state.queues
    assert name.encode() not in cluster.slices[third].state.queues
    assert (await broker.publish(cluster.key_of(other, "new"), b"x")).queues == 1


async def test_what_is_declared_between_the_looks_is_spared(cluster: FakeCluster, broker: shoal.Broker) -> None:
    (name,) = await queues(broker, cluster, 1)
    interrupt_drop(cluster, name)
    sweeper = Sweeper(shoal.Parts(broker), unknown_too=True, pause_s=3600)
    await sweeper.turn()
    assert len(sweeper._suspects) == 2
    async with shoal.connect(cluster.redirectors[0].address) as fresh:
        await fresh.declare(name)
        await fresh.bind(name, [cluster.key_of(one) for one in cluster.slices])
    sweeper._suspects._pause_s = 0
    await sweeper.turn()
    assert sweeper.figures.dropped == 0
    assert parts(cluster, name) == 3


async def test_what_is_declared_behind_the_second_look_is_spared_by_its_incarnation(
    cluster: FakeCluster, broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = await queues(broker, cluster, 1)
    interrupt_drop(cluster, name)
    real = shoal.Parts.drop

    async def drop(them: shoal.Parts, part: shoal.Part, *, deadline_s: float) -> bool:
        async with shoal.connect(cluster.redirectors[0].address) as fresh:
            await fresh.declare(name)
            await fresh.bind(name, [cluster.key_of(one) for one in cluster.slices])
        return await real(them, part, deadline_s=deadline_s)

    monkeypatch.setattr(shoal.Parts, "drop", drop)
    sweeper = Sweeper(shoal.Parts(broker), pause_s=0, unknown_too=True)
    await sweeper.once()
    assert sweeper.figures.dropped == 0 and parts(cluster, name) == 3


async def test_declares_and_drops_go_on_beside_a_sweep(cluster: FakeCluster, broker: shoal.Broker) -> None:
    sweeper = Sweeper(shoal.Parts(broker), pause_s=0, unknown_too=True)
    keys = [cluster.key_of(one) for one in cluster.slices]
    done = asyncio.Event()

    async def sweep() -> None:
        while not done.is_set():
            await sweeper.turn()
            await asyncio.sleep(0)

    async def live(name: str) -> None:
        for _ in range(10):
            await broker.declare(name)
            await broker.bind(name, keys)
            receipts = await asyncio.gather(*(broker.publish(key, name.encode(), mandatory=True) for key in keys))
            assert all(receipt.queues for receipt in receipts)
            assert parts(cluster, name) == 3, "no living part is dropped"
            await broker.drop(name)

    sweeping = asyncio.create_task(sweep())
    async with asyncio.timeout(60):
        await asyncio.gather(*(live(f"life-{number}") for number in range(10)))
    done.set()
    await sweeping
    assert sum(parts(cluster, f"life-{number}") for number in range(10)) == 0


async def test_parts_of_an_unknown_life_are_counted_and_left(cluster: FakeCluster, broker: shoal.Broker) -> None:
    queue = cluster.queue_with_home("s01")
    loaded = cluster.slices["s02"].state.queues
    loaded.knows_incarnations = False
    loaded.declare(queue.encode(), DURABLE, 0)
    loaded.knows_incarnations = True
    sweeper = Sweeper(shoal.Parts(broker), pause_s=0, unknown_too=True)
    await sweeper.once()
    assert (sweeper.figures.dropped, sweeper.figures.doubtful) == (0, 1)
    assert queue.encode() in loaded
    await broker.drop(queue)
    assert queue.encode() not in loaded


async def test_a_slice_that_is_away_keeps_the_others_from_nothing(
    cluster: FakeCluster, broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal_ops.sweep.sweeper.SWEEP_DEADLINE_S", 0.3)
    key = cluster.key_of("s02")
    queue = cluster.queue_with_home("s01")
    await broker.declare(queue)
    await broker.bind(queue, key)
    interrupt_drop(cluster, queue)
    await cluster.slices["s03"].stop()
    sweeper = Sweeper(shoal.Parts(broker), pause_s=0, unknown_too=True)
    await sweeper.once()
    assert list(sweeper.figures.problems) == ["s03"]
    assert queue.encode() not in cluster.slices["s02"].state.queues
    await cluster.slices["s03"].start()
    monkeypatch.setattr("shoal_ops.sweep.sweeper.SWEEP_DEADLINE_S", 10.0)
    await sweeper.once()
    assert not sweeper.figures.problems
