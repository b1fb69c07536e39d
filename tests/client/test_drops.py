"""Drops and purges of many queues in one call, and drops on conditions: on the fake and on a real cluster."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from shoal import Broker
from shoal.core.requests import Conditions, DropsRequest, drops_at_once
from shoal.limits import GATHER_OPERATIONS_MAX
from shoal_contract.limits import DROP_IF_EMPTY_OPERATIONS
from tests.client import calls
from tests.client.calls import until
from tests.client.fake_cluster import FakeCluster


def fresh(word: str, count: int) -> list[str]:
    return [calls.fresh(word) for _ in range(count)]


async def test_many_queues_are_dropped_in_one_call(broker: Broker) -> None:
    queues, keys = fresh("many", 40), fresh("key", 9)
    await broker.declare(queues)
    for queue in queues[:5]:
        await broker.bind(queue, keys)
    await broker.drop(queues)
    found = await asyncio.gather(*(broker.describe(queue) for queue in queues))
    assert not any(one.exists for one in found)
    assert [(await broker.publish(key, b"x")).queues for key in keys] == [0] * 9


async def test_queues_that_are_not_there_do_not_keep_the_others(broker: Broker) -> None:
    there, absent = fresh("there", 3), fresh("absent", 2)
    await broker.declare(there)
    with pytest.raises(
        shoal.NoSuchQueue, match=f"{absent[0]} does not exist.*2 of 5 queues were not dropped"
    ) as caught:
        await broker.drop([there[0], absent[0], there[1], absent[1].encode(), there[2]])
    assert list(caught.value.failed) == [absent[0], absent[1].encode()], "as they were named, and in this order"
    assert all(isinstance(error, shoal.NoSuchQueue) for error in caught.value.failed.values())
    assert caught.value.subject == absent[0]
    assert not any([(await broker.describe(queue)).exists for queue in there])


async def test_a_call_of_one_queue_raises_its_own_error(broker: Broker) -> None:
    for one in (fresh("absent", 1)[0], fresh("absent", 1)):
        with pytest.raises(shoal.NoSuchQueue) as caught:
            await broker.drop(one)
        assert not caught.value.failed and "queues were not" not in caught.value.message


async def test_many_queues_are_purged_in_one_call(broker: Broker) -> None:
    queues, keys = fresh("purged", 4), fresh("key", 9)
    await broker.declare(queues)
    for queue in queues[:2]:
        await broker.bind(queue, keys)
    for key in keys:
        await broker.publish_many(key, [b"a", b"b"])
    assert await broker.purge(queues) == dict(zip(queues, (18, 18, 0, 0), strict=True))
    assert await broker.purge(queues[:1]) == {queues[0]: 0}, "a list gets a dict"
    await broker.publish(keys[0], b"c")
    absent = fresh("absent", 1)
    with pytest.raises(shoal.NoSuchQueue) as caught:
        await broker.purge([*absent, *queues])
    assert list(caught.value.failed) == absent
    assert (await broker.describe(queues[0])).messages == 0, "the others are purged"


async def test_a_queue_is_dropped_if_nothing_consumes_it(broker: Broker) -> None:
    used, unused = fresh("queue", 2)
    await broker.declare([used, unused])
    await broker.bind(used, fresh("key", 9))
    async with broker.consume(used):
        with pytest.raises(shoal.Conflict, match=f"queue {used} is in use") as caught:
            await broker.drop([used, unused], if_unused=True)
        assert list(caught.value.failed) == [used] and caught.value.subject == used
        assert (await broker.describe(used)).exists and not (await broker.describe(unused)).exists
    async with asyncio.timeout(10):
        while True:  # The slices notice that the inbox is gone.
            try:
                await broker.drop(used, if_unused=True)
            except shoal.Conflict:
                await asyncio.sleep(0)
            else:
                break
    assert not (await broker.describe(used)).exists


async def test_a_queue_is_in_use_while_messages_of_it_are_pulled_wherever_they_lie(broker: Broker) -> None:
    (queue,), keys = fresh("queue", 1), fresh("key", 9)
    owner_of = broker._routing.map.current.owner_of
    key = next(key for key in keys if owner_of(key.encode()) != owner_of(b"@" + queue.encode()))
    await broker.declare(queue)
    await broker.bind(queue, key)
    await broker.publish_many(key, [b"job", b"another"])
    (message,) = await broker.pull(queue, 1)
    described = await broker.describe(queue)
    assert described.consumed and described.attached_sessions == 0
    with pytest.raises(shoal.Conflict, match=f"queue {queue} is in use"):
        await broker.drop(queue, if_unused=True)
    assert (await broker.describe(queue)).messages == 2
    await broker.ack(message)
    await broker.flush()
    assert not (await broker.describe(queue)).consumed
    await broker.drop(queue, if_unused=True)


async def test_a_queue_is_dropped_if_it_is_empty_on_all_slices(broker: Broker) -> None:
    (queue,), keys = fresh("queue", 1), fresh("key", 9)
    await broker.declare(queue)
    await broker.bind(queue, keys)
    for key in keys:
        await broker.publish(key, b"x")
        with pytest.raises(shoal.Conflict, match=f"queue {queue} is not empty"):
            await broker.drop(queue, if_empty=True)
        for message in await broker.pull(queue, 9):
            await broker.ack(message)
        await broker.flush()
    await broker.drop(queue, if_empty=True, if_unused=True)
    assert not (await broker.describe(queue)).exists


async def test_a_conditional_drop_of_a_queue_that_is_not_there(broker: Broker) -> None:
    with pytest.raises(shoal.NoSuchQueue):
        await broker.drop(fresh("absent", 1)[0], if_unused=True, if_empty=True)


async def test_arguments_are_checked_before_anything_is_sent(broker: Broker) -> None:
    (queue,) = fresh("queue", 1)
    await broker.declare(queue)
    with pytest.raises(TypeError, match="if_unused"):
        await broker.drop(queue, if_unused=1)  # type: ignore[arg-type]
    with pytest.raises(shoal.InvalidName):
        await broker.drop([queue, ""])
    with pytest.raises(shoal.InvalidName):
        await broker.purge([queue, "q" * 300])
    assert (await broker.describe(queue)).exists
    await broker.drop([])
    assert await broker.purge([]) == {}


async def test_names_travel_in_full_frames(fake_broker: Broker, cluster: FakeCluster) -> None:
    queues = fresh("full", 2 * GATHER_OPERATIONS_MAX)
    await fake_broker.declare(queues)
    before = sum(one.state.applied for one in cluster.slices.values())
    await fake_broker.drop(queues)
    frames = sum(one.state.applied for one in cluster.slices.values()) - before
    homes = len(cluster.slices)
    assert frames <= homes * 2 + homes * 3, "at each home, and then at the two others"
    assert not any(one.state.queues.parts for one in cluster.slices.values())


async def test_a_part_elsewhere_keeps_a_queue_that_is_to_be_empty(fake_broker: Broker, cluster: FakeCluster) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"x")
    with pytest.raises(shoal.Conflict, match="slice s02"):
        await fake_broker.drop(queue, if_empty=True)
    assert queue.encode() in cluster.slices["s01"].state.queues.parts, "its home was not asked to drop it"
    await fake_broker.purge(queue)
    await fake_broker.drop(queue, if_empty=True)
    assert not any(one.state.queues.parts for one in cluster.slices.values())


async def test_what_an_earlier_life_left_elsewhere_keeps_no_queue(fake_broker: Broker, cluster: FakeCluster) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"x")
    cluster.slices["s01"].state.queues.drop(queue.encode(), 0)  # The other slice did not hear of it.
    async with shoal.connect(cluster.redirectors[0].address) as other:
        await other.declare(queue)
        assert queue.encode() in cluster.slices["s02"].state.queues.parts
        await other.drop(queue, if_empty=True)
    assert queue.encode() not in cluster.slices["s01"].state.queues.parts


async def test_a_drop_ends_what_an_earlier_life_left_elsewhere(fake_broker: Broker, cluster: FakeCluster) -> None:
    """A slice was away when the queue was dropped: what it kept outlived each later drop."""
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    cluster.slices["s01"].state.queues.drop(queue.encode(), 0)  # The other slice did not hear of it.
    async with shoal.connect(cluster.redirectors[0].address) as other:
        await other.declare(queue)
        await other.drop(queue)
    assert queue.encode() not in cluster.slices["s02"].state.queues.parts


async def test_a_slice_that_was_away_ends_its_part_once_it_is_back(fake_broker: Broker, cluster: FakeCluster) -> None:
    """A queue that was declared anew gave its consumers what the slice had kept of the life before."""
    queue, key, slice_ = cluster.queue_with_home("s01"), cluster.key_of("s02"), cluster.slices["s02"]
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    await fake_broker.publish(key, b"of the first life")
    slice_.ignored = {"change"}
    with pytest.raises(shoal.DeadlineExceeded, match="slice s02 did not say so"):
        await fake_broker.drop(queue, deadline_s=0.3)
    await fake_broker.declare(queue)
    slice_.ignored = set()
    slice_.cut()
    await until(lambda: queue.encode() not in slice_.state.queues.parts)
    assert (await fake_broker.describe(queue)).exists and not await fake_broker.pull(queue, 9)


@pytest.mark.parametrize("how", ["refused", "the caller stops waiting", "dropped again"])
async def test_a_part_that_a_drop_leaves_is_ended_whatever_kept_it(
    how: str, fake_broker: Broker, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.leftovers.PARTS_LEFT_AGAIN_S", 0.05)
    queue, key, slice_ = cluster.queue_with_home("s01"), cluster.key_of("s02"), cluster.slices["s02"]
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, key)
    if how == "refused":
        slice_.refuse_frames += [shoal.ResourceExhausted("this slice takes no changes now")] * 3
        with pytest.raises(shoal.ResourceExhausted, match="slice s02 did not say so"):
            await fake_broker.drop(queue)
    else:
        if how == "dropped again":
            cluster.slices["s01"].state.queues.drop(queue.encode(), 0)
        slice_.ignored = {"change", "describe"}
        with pytest.raises(TimeoutError if how != "dropped again" else shoal.DeadlineExceeded):
            async with asyncio.timeout(0.3 if how != "dropped again" else 10):
                await fake_broker.drop(queue, deadline_s=10 if how != "dropped again" else 0.3)
        slice_.ignored = set()
        slice_.cut()
    await fake_broker.declare(queue)
    await until(lambda: queue.encode() not in slice_.state.queues.parts)
    assert (await fake_broker.describe(queue)).exists


async def with_parts(broker: Broker, cluster: FakeCluster, word: str, home: str, *names: str) -> list[str]:
    """Declares three queues with this home, and makes parts of them on slices. Returns the queues."""
    queues = [cluster.queue_with_home(home, f"{word}{number}") for number in range(3)]
    await broker.declare(queues)
    for queue in queues:
        await broker.bind(queue, [cluster.key_of(name) for name in names])
    return queues


async def drop_in_part(broker: Broker, queues: list[str], away: str) -> None:
    with pytest.raises(shoal.DeadlineExceeded, match=f"slice {away} did not say so of its part") as caught:
        await broker.drop(queues, deadline_s=0.3)
    assert list(caught.value.failed) == queues


def parts_on(cluster: FakeCluster, name: str) -> list[str]:
    return [queue.decode() for queue in cluster.slices[name].state.queues.parts]


@pytest.mark.parametrize("places", [128, 1])
async def test_a_slice_that_stays_away_keeps_nothing_on_the_others(
    places: int, fake_broker: Broker, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as the slice that has parts, nor as the home of queues, and however many of its queues come first. Where one
    place is asked at a time, an attempt for the slice that is away has an end."""
    monkeypatch.setattr("shoal.leftovers.PARTS_LEFT_AGAIN_S", 0.05)
    monkeypatch.setattr("shoal.leftovers.LEFTOVERS_AT_ONCE_MAX", 1)
    if places == 1:
        monkeypatch.setattr("shoal.leftovers.PLACES_AT_ONCE_MAX", 1)
        monkeypatch.setattr("shoal.leftovers.PARTS_LEFT_ASK_S", 0.2)
    homeless = await with_parts(fake_broker, cluster, "homeless", "s03", "s02")
    queues = await with_parts(fake_broker, cluster, "queue", "s01", "s02", "s03")
    await cluster.slices["s02"].stop()
    await drop_in_part(fake_broker, homeless, "s02")
    await cluster.slices["s03"].stop()
    await drop_in_part(fake_broker, queues, "s02, s03")
    await fake_broker.declare(queues[-1])
    await cluster.slices["s02"].start()
    await until(lambda: parts_on(cluster, "s02") == homeless)
    assert parts_on(cluster, "s03") == queues
    await cluster.slices["s03"].start()
    await until(lambda: not parts_on(cluster, "s02") and not parts_on(cluster, "s03"))
    assert parts_on(cluster, "s01") == queues[-1:], "the life that began meanwhile"


@pytest.mark.parametrize("how", ["their home has no such queues", "their home has a later life"])
async def test_a_drop_ends_what_is_left_where_slices_answer(
    how: str, fake_broker: Broker, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.leftovers.PARTS_LEFT_AGAIN_S", 1000)
    monkeypatch.setattr("shoal.leftovers.LEFTOVERS_AT_ONCE_MAX", 1)
    queues = await with_parts(fake_broker, cluster, "queue", "s01", "s02", "s03")
    for queue in queues[:2]:
        cluster.slices["s01"].state.queues.drop(queue.encode(), 0)  # The other slices did not hear of it.
    if how == "their home has a later life":
        await fake_broker.declare(queues[:2])
    await cluster.slices["s03"].stop()
    await drop_in_part(fake_broker, queues, "s03")
    assert not parts_on(cluster, "s01") and not parts_on(cluster, "s02")
    await cluster.slices["s03"].start()


async def test_a_connection_remembers_so_many_parts_that_drops_left(
    fake_broker: Broker, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.leftovers.PARTS_LEFT_AGAIN_S", 0.05)
    monkeypatch.setattr("shoal.leftovers.PARTS_LEFT_MAX", 2)
    slice_ = cluster.slices["s02"]
    for word in ("queue", "another"):  # What has ended makes room.
        queues = await with_parts(fake_broker, cluster, word, "s01", "s02")
        await slice_.stop()
        await drop_in_part(fake_broker, queues, "s02")
        await slice_.start()
        await until(lambda: len(parts_on(cluster, "s02")) == 1)
        assert parts_on(cluster, "s02") == queues[-1:]
        slice_.state.queues.drop(queues[-1].encode(), 0)


async def test_a_drop_forgets_the_life_that_it_ended(fake_broker: Broker, cluster: FakeCluster) -> None:
    queue = cluster.queue_with_home("s01")
    await fake_broker.declare(queue)
    await fake_broker.drop(queue)
    async with shoal.connect(cluster.redirectors[0].address) as other:
        await other.declare(queue)
    await fake_broker.drop(queue)
    assert queue.encode() not in cluster.slices["s01"].state.queues.parts


async def test_a_slice_that_is_away_keeps_queues_that_are_to_be_unused(
    fake_broker: Broker, cluster: FakeCluster
) -> None:
    queue = cluster.queue_with_home("s01")
    await fake_broker.declare(queue)
    await cluster.slices["s03"].stop()
    with pytest.raises(shoal.DeadlineExceeded):
        await fake_broker.drop(queue, if_unused=True, deadline_s=0.3)
    assert queue.encode() in cluster.slices["s01"].state.queues.parts


def test_drops_on_the_condition_that_queues_are_empty_take_more_of_a_frame() -> None:
    assert drops_at_once(Conditions()) == GATHER_OPERATIONS_MAX
    assert drops_at_once(Conditions(if_empty=True)) == GATHER_OPERATIONS_MAX // DROP_IF_EMPTY_OPERATIONS
    request = DropsRequest([b"a", b"b"], (), 1.0, Conditions(if_empty=True))
    assert (request.operations, request.counted) == (2, 2 * DROP_IF_EMPTY_OPERATIONS)
