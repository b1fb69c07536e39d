"""Watches over lost streams, slices that start anew or say nothing: one consistent sequence."""

from __future__ import annotations

import asyncio

import pytest

import shoal
import shoal.testing
from shoal import Broker
from shoal.core.watched import WatchedCounts, WatchedMembers
from shoal.limits import WATCH_RESPONSES_MAX
from shoal.testing.fake_watch import FakeWatches
from shoal.testing.limits import PARTITIONS
from shoal.transport.base import Stream
from shoal_contract.errors import ResourceExhausted
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import until
from tests.client.fake_cluster import FakeCluster
from tests.client.watch_steps import bound, next_of


def applied(members: dict[str, bool], event: shoal.MemberEvent) -> None:
    """Each event changes something."""
    if isinstance(event, shoal.Joined):
        assert event.queue not in members
        members[event.queue] = event.online
    elif isinstance(event, shoal.Left):
        del members[event.queue]
    elif isinstance(event, shoal.Online | shoal.Offline):
        assert members[event.queue] != isinstance(event, shoal.Online)
        members[event.queue] = isinstance(event, shoal.Online)
    else:
        raise AssertionError(event)


@pytest.mark.parametrize("forgets", [False, True])
async def test_cut_streams_miss_nothing_and_tell_nothing_twice(
    cluster: FakeCluster, fake_broker: Broker, forgets: bool
) -> None:
    """Also where the slice has forgotten the place, and tells its state anew."""
    key = cluster.key_of("s02", "room")
    slice_ = cluster.slices["s02"]
    slice_.watches.forgets = forgets
    queues = await bound(fake_broker, key, 4)
    watch = fake_broker.watch_members(key)
    first = await next_of(watch)
    assert isinstance(first, shoal.Members)
    members = dict(first.online)
    for queue in queues:
        slice_.watches.cut()
        await fake_broker.unbind(queue, key)
        slice_.watches.cut()
        (new,) = await bound(fake_broker, key, 1)
        while new not in members or queue in members:
            applied(members, await next_of(watch))
    assert len(slice_.watches.opened) > 4
    await watch.close()


async def test_counts_over_cut_streams(cluster: FakeCluster, fake_broker: Broker) -> None:
    keys = [cluster.key_of(name, "room") for name in cluster.slices]
    (queue,) = await bound(fake_broker, keys[0], 1)
    await fake_broker.bind(queue, keys[1])
    counts: dict[str, int] = {}
    async with fake_broker.watch_counts("room") as watch, asyncio.timeout(10):
        while not isinstance(event := await anext(watch), shoal.Complete):
            counts[event.key] = event.queues
        assert counts == {keys[0]: 1, keys[1]: 1}
        for slice_ in cluster.slices.values():
            slice_.watches.forgets = True
            slice_.watches.cut()
        await fake_broker.unbind(queue, keys[0])
        await fake_broker.bind(queue, keys[2])
        seen = [await anext(watch), await anext(watch)]
        assert {(event.key, event.queues) for event in seen if isinstance(event, shoal.KeyCount)} == {
            (keys[0], 0),
            (keys[2], 1),
        }


async def test_a_slice_that_says_nothing_is_named_at_the_deadline(cluster: FakeCluster) -> None:
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as broker:
        await cluster.slices["s03"].stop()
        with pytest.raises(shoal.DeadlineExceeded, match=r"slice s03 did not answer the watch within 3 s"):
            async for _ in broker.watch_counts("room", deadline_s=3):
                pass


@pytest.mark.parametrize("slices", [WATCH_RESPONSES_MAX, WATCH_RESPONSES_MAX + 1, 2 * WATCH_RESPONSES_MAX + 1])
async def test_counts_of_many_slices_are_entered(slices: int) -> None:
    """What they tell first waits for room; that they answered does not."""
    cluster = shoal.testing.FakeCluster([f"s{number:02}" for number in range(slices)])
    async with asyncio.timeout(30), cluster.connect() as broker:
        await broker.declare("queue")
        await broker.bind("queue", [f"room-{number}" for number in range(20)])
        async with broker.watch_counts("room-", deadline_s=5) as watch:
            keys = set()
            while not isinstance(event := await anext(watch), shoal.Complete):
                keys.add(event.key)
        assert len(keys) == 20


async def test_a_watch_is_entered_when_its_slice_is_back_after_many_attempts(
    cluster: FakeCluster, fake_broker: Broker
) -> None:
    key = cluster.key_of("s01")
    async with asyncio.timeout(60):
        slice_ = cluster.slices["s01"]
        await slice_.stop()
        watch = fake_broker.watch_members(key, deadline_s=50)
        attempts = 0
        opened = fake_broker._watching.transport.watch

        def counted(address: str, request: wire.WatchRequest) -> Stream[wire.WatchResponse]:
            nonlocal attempts
            attempts += 1
            return opened(address, request)

        fake_broker._watching.transport.watch = counted  # type: ignore[method-assign]
        entering = asyncio.ensure_future(watch.__aenter__())
        await until(lambda: attempts > WATCH_RESPONSES_MAX + 1)
        await slice_.start()
        await entering
        assert isinstance(await anext(watch), shoal.Members)
        await watch.close()


async def test_leaving_the_broker_ends_its_watches(cluster: FakeCluster) -> None:
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=10) as broker:
        watch, idle = broker.watch_members("room"), broker.watch_members("other")
        await next_of(watch)
        waiting = asyncio.ensure_future(anext(watch, None))
        await asyncio.sleep(0)
    assert await waiting is None
    with pytest.raises(shoal.Unavailable):
        await anext(idle)


async def test_a_watch_that_is_not_read_holds_a_few_responses(cluster: FakeCluster, fake_broker: Broker) -> None:
    key = cluster.key_of("s01", "room")
    watch = fake_broker.watch_members(key)
    members: dict[str, bool] = {}
    await next_of(watch)
    queues = await bound(fake_broker, key, 40)
    assert len(watch._came) <= WATCH_RESPONSES_MAX
    while len(members) < len(queues):
        applied(members, await next_of(watch))
    assert members == dict.fromkeys(queues, False)
    await watch.close()


async def test_the_fake_tells_what_changes_while_a_response_is_taken() -> None:
    members: dict[bytes, bool] = {}
    watches = FakeWatches(lambda key: members, lambda: [b"room"])
    stream = watches.stream(wire.WatchRequest(members=b"room"))
    told: list[bytes] = []
    async with asyncio.timeout(10):
        while len(told) < 5:
            told.extend((await anext(stream)).queues)
            members[b"q%d" % len(members)] = False
            watches.tell()
    assert told == [b"q0", b"q1", b"q2", b"q3", b"q4"]


def place(number: int) -> wire.WatchPosition:
    return wire.WatchPosition(life=1, watch=1, number=number)


def test_a_snapshot_that_was_cut_is_begun_again() -> None:
    joined = wire.MEMBER_CHANGE_JOINED
    members = WatchedMembers()
    assert members.take(wire.WatchResponse(snapshot=True, more=True, queues=[b"old"], changes=[joined])) == []
    members.begin()
    (event,) = members.take(wire.WatchResponse(snapshot=True, position=place(1), queues=[b"new"], changes=[joined]))
    assert event == shoal.Members({b"new": False}, "1.1.1")
    counts = WatchedCounts()
    counts.take("s01", wire.WatchResponse(snapshot=True, more=True, keys=[b"old"], bindings=[1]))
    counts.begin("s01")
    events = counts.take("s01", wire.WatchResponse(snapshot=True, position=place(1), keys=[b"new"], bindings=[2]))
    assert events == [shoal.KeyCount(b"new", 2, 0), shoal.KeyCount(b"old", 0, 0)]


def test_positions_of_changes_and_of_differences() -> None:
    """Between the events that a new state brings, the place is the old one: else a watch from there would miss some."""
    joined, left = wire.MEMBER_CHANGE_JOINED, wire.MEMBER_CHANGE_LEFT
    members = WatchedMembers()
    members.take(wire.WatchResponse(snapshot=True, position=place(3), queues=[b"a"], changes=[joined]))
    changes = members.take(wire.WatchResponse(position=place(5), queues=[b"b", b"a"], changes=[joined, left]))
    assert changes == [shoal.Joined(b"b", "1.1.4"), shoal.Left(b"a", "1.1.5")]
    anew = wire.WatchResponse(snapshot=True, position=place(9), queues=[b"c", b"d"], changes=[joined, joined])
    assert [(event.position, type(event)) for event in members.take(anew)] == [
        ("1.1.5", shoal.Left),
        ("1.1.5", shoal.Joined),
        ("1.1.9", shoal.Joined),
    ]


def test_a_group_that_grows_and_shrinks() -> None:
    members = WatchedMembers()
    members.take(wire.WatchResponse(snapshot=True, position=place(1)))
    large = wire.WatchResponse(snapshot=True, position=place(2), keys=[b"room"], bindings=[2000], online=[7])
    assert members.take(large) == [shoal.MemberCount(2000, 7, "1.1.2")]
    assert members.take(large) == [], "the same count is not told twice"
    small = wire.WatchResponse(
        snapshot=True, position=place(3), queues=[b"a"], changes=[wire.MEMBER_CHANGE_JOINED_ONLINE]
    )
    assert members.take(small) == [shoal.Members({b"a": True}, "1.1.3")]


async def test_a_watch_that_is_given_up_while_it_is_entered_is_closed(
    cluster: FakeCluster, fake_broker: Broker
) -> None:
    """Its tasks and streams were left open, and no program had a name for it to close it."""
    for slice_ in cluster.slices.values():
        await slice_.stop()
    before = asyncio.all_tasks()
    for watch in (fake_broker.watch_members("key"), fake_broker.watch_counts("room")):
        entering = asyncio.create_task(watch.__aenter__())
        await until(lambda watch=watch: watch in fake_broker._watching.opened)  # type: ignore[misc]
        entering.cancel()
        await asyncio.wait([entering])
    assert not fake_broker._watching.opened
    await until(lambda: not {task for task in asyncio.all_tasks() - before if not task.done()})


async def test_a_refusal_is_heard_beside_slices_that_told_much(cluster: FakeCluster, fake_broker: Broker) -> None:
    watch = fake_broker.watch_counts("room", deadline_s=20)
    watch._open()
    watch._came.extend(("s01", wire.WatchResponse()) for _ in range(WATCH_RESPONSES_MAX + 5))

    async def refused(*_: object) -> None:
        raise ResourceExhausted("no more watches")

    watch._read = refused  # type: ignore[method-assign,assignment]
    watch._silent = {"s09"}
    watch._follow("s09", lambda: "s09")
    with pytest.raises(ResourceExhausted):
        async with asyncio.timeout(5), watch:
            pass


async def test_a_watch_tells_that_its_slice_is_away_and_back() -> None:
    """A program that only watches heard of no slice."""
    told: list[shoal.StateChange] = []
    cluster = shoal.testing.FakeCluster(["s01", "s02"])
    key = cluster.key_of("s01")
    async with cluster.connect(on_state=told.append) as broker:
        async with broker.watch_members(key), broker.watch_counts(""):
            assert {one.state for one in broker.slices.values()} == {shoal.State.OPEN}
            cluster.slices["s01"].go_away()
            await until(lambda: broker.slices["s01"].state == shoal.State.AWAY)
            assert broker.slices["s01"].reason and broker.slices["s02"].state == shoal.State.OPEN
            cluster.slices["s01"].come_back()
            await until(lambda: broker.slices["s01"].state == shoal.State.OPEN)
        assert {one.state for one in broker.slices.values()} == {shoal.State.IDLE}, "nothing else asks it"
    assert [change.state for change in told if change.slice == "s01"] == [
        *(shoal.State.OPEN, shoal.State.AWAY, shoal.State.OPEN, shoal.State.IDLE)
    ]


async def test_a_watch_whose_key_moved_tells_of_its_new_slice() -> None:
    cluster = shoal.testing.FakeCluster(["s01", "s02"])
    key = cluster.key_of("s01")
    async with cluster.connect() as broker, broker.watch_members(key):
        assert set(broker.slices) == {"s01", "s02"} and broker.slices["s01"] == (shoal.State.OPEN, "")
        cluster.move({partition_of(key.encode(), PARTITIONS): "s02"})
        await until(lambda: broker.map_version == cluster.map.version)
        cluster.slices["s01"].watches.cut()
        await until(lambda: broker.slices["s02"].state == shoal.State.OPEN)
        assert broker.slices["s01"] == (shoal.State.IDLE, "")
