"""A dropped queue does not come back on other slices, and a newer one of its name is never harmed (correctness M4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import shoal
from shoal.leftovers import Leftovers
from shoal.routing import Routing
from shoal_contract.options import DURABLE
from tests.client.fake_cluster import FakeCluster


@pytest.fixture
async def other(cluster: FakeCluster) -> AsyncIterator[shoal.Broker]:
    """Another client of the same cluster."""
    async with shoal.connect(cluster.redirectors[1].address, deadline_s=10) as broker:
        yield broker


class Pause:
    """Holds the nth round of requests of one connection back until it is told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broker: shoal.Broker, round_: int) -> None:
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        real, routing = Routing.ask, broker._routing
        rounds = 0

        async def ask(asking: Routing, requests: Any) -> list[Any]:
            nonlocal rounds
            if asking is routing:
                rounds += 1
                if rounds == round_:
                    self.reached.set()
                    await self.go.wait()
            return await real(asking, requests)

        monkeypatch.setattr(Routing, "ask", ask)


def part(cluster: FakeCluster, slice_name: str, queue: str) -> int | None:
    """The incarnation of a queue's part; None: there is none."""
    found = cluster.slices[slice_name].state.queues.parts.get(queue.encode())
    return found.incarnation if found is not None else None


async def test_a_bind_after_a_drop_brings_nothing_back(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker
) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    await other.declare(queue)  # It knows the queue from now on.
    await fake_broker.drop(queue)
    with pytest.raises(shoal.NoSuchQueue, match=queue):
        await other.bind(queue, key)
    assert part(cluster, "s02", queue) is None
    assert (await other.publish(key, b"x")).queues == 0
    with pytest.raises(shoal.NoSuchQueue):
        await other.bind(queue, key)


@pytest.mark.parametrize("known", [True, False])
async def test_a_drop_while_a_part_is_made_leaves_nothing(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """The drop passes after the binder learned of the queue and before its part is there."""
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    if known:
        await other.declare(queue)
    pause = Pause(monkeypatch, other, 1 if known else 2)
    binding = asyncio.create_task(other.bind(queue, key))
    await pause.reached.wait()
    await fake_broker.drop(queue)
    pause.go.set()
    with pytest.raises(shoal.NoSuchQueue):
        await binding
    assert part(cluster, "s02", queue) is None


async def test_a_drop_after_a_part_was_made_finds_it(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker
) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    await other.bind(queue, key)
    assert part(cluster, "s01", queue) == part(cluster, "s02", queue) == 100
    await fake_broker.drop(queue)
    assert part(cluster, "s02", queue) is None


async def test_a_bind_that_knew_an_older_life_is_of_the_new_one(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker
) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    await other.declare(queue)
    await fake_broker.drop(queue)
    await fake_broker.declare(queue)
    assert await other.bind(queue, key) == 1
    assert part(cluster, "s01", queue) == part(cluster, "s02", queue) == 200
    assert (await fake_broker.publish(key, b"x")).queues == 1


async def test_what_an_older_life_had_elsewhere_is_not_inherited(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker
) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"of the older life")
    cluster.slices["s01"].state.queues.drop(queue.encode(), 0)  # A drop that died between the home and the others.
    description = await other.describe(queue)
    assert not description.exists and description.messages == 0
    await other.declare(queue)
    description = await other.describe(queue)
    assert description.exists and description.messages == 0, "what is left of the older life does not count"
    await other.bind(queue, key)
    await other.publish(key, b"of this life")
    assert [message.body for message in await other.pull(queue, 9)] == [b"of this life"]


async def test_a_late_drop_does_not_harm_a_newer_life(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    pause = Pause(monkeypatch, fake_broker, 2)
    dropping = asyncio.create_task(fake_broker.drop(queue))
    await pause.reached.wait()  # The home has dropped it.
    await other.declare(queue)
    await other.bind(queue, key)
    pause.go.set()
    await dropping
    assert part(cluster, "s01", queue) == part(cluster, "s02", queue) == 200
    assert (await other.publish(key, b"x")).queues == 1


async def test_of_two_drops_one_finds_the_queue(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker
) -> None:
    queue = cluster.queue_with_home("s01")
    await fake_broker.declare(queue)
    results = await asyncio.gather(fake_broker.drop(queue), other.drop(queue), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["NoSuchQueue", "NoneType"]


async def test_a_drop_ends_what_an_earlier_one_left(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    cluster.slices["s01"].state.queues.drop(queue.encode(), 0)
    await fake_broker.drop(queue)
    assert part(cluster, "s02", queue) is None
    with pytest.raises(shoal.NoSuchQueue):
        await fake_broker.drop(queue)


async def test_a_cleaning_drop_spares_a_life_that_began_meanwhile(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drop finds no queue at its home; before it has looked at the other slices a new life begins there."""
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    looked = asyncio.Event()
    go = asyncio.Event()
    real = Leftovers.end

    async def slow(*arguments: Any) -> dict[bytes, Any]:
        looked.set()
        await go.wait()
        return await real(*arguments)

    monkeypatch.setattr(Leftovers, "end", slow)
    dropping = asyncio.create_task(fake_broker.drop(queue))
    await looked.wait()
    await other.declare(queue)
    await other.bind(queue, key)
    go.set()
    with pytest.raises(shoal.NoSuchQueue):
        await dropping
    assert part(cluster, "s02", queue) == 100


async def test_parts_of_a_bulk_load_belong_to_their_queue(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    """A part whose incarnation is not known is of the life that the home knows."""
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    loaded = cluster.slices["s02"].state
    loaded.queues.knows_incarnations = False
    loaded.queues.declare(queue.encode(), DURABLE, 0)
    loaded.queues.knows_incarnations = True
    assert part(cluster, "s02", queue) == 0
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"x")
    assert part(cluster, "s02", queue) == 100, "it is the home's life from now on"
    assert (await fake_broker.describe(queue)).messages == 1


async def test_a_part_whose_life_is_not_known_is_left_to_a_newer_one(
    cluster: FakeCluster, fake_broker: shoal.Broker, other: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bind made it while its queue was dropped. By the time that the binder hears of the drop, the queue may live
    anew in this part: to take it back would drop the newer life's bindings and backlog."""
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    cluster.slices["s01"].state.queues.knows_incarnations = False
    await fake_broker.declare(queue)
    await other.declare(queue)
    made, taken_back = Pause(monkeypatch, other, 1), Pause(monkeypatch, other, 2)
    binding = asyncio.create_task(other.bind(queue, key))
    await made.reached.wait()
    await fake_broker.drop(queue)
    made.go.set()
    await taken_back.reached.wait()
    assert part(cluster, "s02", queue) == 0
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"x")
    taken_back.go.set()
    with pytest.raises(shoal.NoSuchQueue):
        await binding
    assert (await fake_broker.describe(queue)).messages == 1
    assert (await fake_broker.publish(key, b"y")).queues == 1


async def test_slices_that_know_no_incarnations_are_served_as_before(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    for slice_ in cluster.slices.values():
        slice_.state.queues.knows_incarnations = slice_.tells_lives = False
    queue, keys = cluster.queue_with_home("s01"), [cluster.key_of(name) for name in cluster.slices]
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, keys)
    for key in keys:
        await fake_broker.publish(key, b"x")
    async with fake_broker.consume(queue) as inbox:
        for _ in keys:
            await (await anext(inbox)).ack()
        await inbox.flush()
    await fake_broker.drop(queue)
    assert not (await fake_broker.describe(queue)).exists


async def test_queues_made_together_are_verified_together(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queues = [queue for number in range(200) if cluster.owner_of(f"@{(queue := f'login-{number}')}").name == "s01"]
    key = cluster.key_of("s02")
    await fake_broker.declare(queues)
    cluster.slices["s01"].frames.clear()
    await asyncio.gather(*(fake_broker.bind(queue, key) for queue in queues))
    questions = [frame.describe.queues for frame in cluster.slices["s01"].frames]
    assert len(queues) > 50 and len(questions) <= 3
    assert sorted(queue for asked in questions for queue in asked) == sorted(queue.encode() for queue in queues)
