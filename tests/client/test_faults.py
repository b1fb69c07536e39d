"""Lost streams, restarts, moves, refusals, deadlines, bounds: what the library repairs, and what it reports."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

import shoal
from shoal import limits
from shoal_contract.errors import NotLeader, Unavailable
from shoal_contract.partition_hash import partition_of
from shoal_contract.wire import slice_pb2 as wire
from tests.client.calls import bound, until
from tests.client.fake_cluster import PARTITIONS, FakeCluster

LONG_S = 150
"""A deadline that passes on no machine."""


async def test_publishes_under_way_when_the_stream_is_cut_are_stored_once(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    _, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    slice_.answering.clear()
    futures = []
    for number in range(100):
        futures.append(fake_broker.publish_nowait(key, b"%d" % number))
        if number % 10 == 0:
            await asyncio.sleep(0.002)
    await until(lambda: slice_.state.keys[key.encode()].head > 1)
    applied = slice_.state.applied
    slice_.cut()
    slice_.answering.set()
    receipts = await asyncio.gather(*futures)
    assert [receipt.offset for receipt in receipts] == list(range(1, 101))
    assert slice_.state.keys[key.encode()].head == 101
    assert applied >= 2


async def test_a_restarted_slice_is_found_again_and_queues_are_attached_again(
    cluster: FakeCluster, fake_broker: shoal.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shoal")
    queue, key = await bound(fake_broker, cluster)
    async with fake_broker.consume(queue) as inbox:
        await fake_broker.publish(key, b"before")
        first = await anext(inbox)
        await cluster.slices["s01"].stop()
        publish = asyncio.create_task(fake_broker.publish(key, b"after"))
        await until(lambda: "requests to slice s01: away" in caplog.text)
        await cluster.slices["s01"].start()
        await publish
        second = await anext(inbox)
        assert (first.body, second.body) == (b"before", b"after")
        inbox.ack(first, second)
        await inbox.flush()
    assert (await fake_broker.describe(queue)).messages == 0


async def test_repeats_are_not_handed_out_twice_and_acked_ones_are_acked_again(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    async with fake_broker.consume(queue) as inbox:
        await fake_broker.publish_many(key, [b"a", b"b", b"c", b"d"])
        messages = [await anext(inbox) for _ in range(4)]
        binding = slice_.state.keys[key.encode()].bindings[queue.encode()]
        slice_.answering.clear()
        inbox.ack(messages[0], messages[1])
        await until(lambda: binding.done == {1, 2})
        slice_.cut()
        binding.done.discard(1)  # As after a crash: the slice lost the newest acks, and had not answered them.
        slice_.answering.set()
        await inbox.flush()
        assert binding.done == {1, 2} and binding.given.keys() == {3, 4}
        await fake_broker.publish(key, b"e")
        assert (await anext(inbox)).body == b"e"
        inbox.ack(messages[2], messages[3])
        await inbox.flush()
        assert binding.done == {1, 2, 3, 4}


async def test_repeats_are_handed_out_where_asked_for(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    async with fake_broker.consume(queue, drop_repeats=False) as inbox:
        await fake_broker.publish(key, b"a")
        first = await anext(inbox)
        cluster.slices["s01"].cut()
        again = await anext(inbox)
        assert (first.offset, first.redelivered, again.offset, again.redelivered) == (1, 0, 1, 1)


async def test_late_messages_of_another_session_are_news(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    async with fake_broker.consume(queue) as mine:
        async with fake_broker.consume(queue, window_messages=2) as other:
            await fake_broker.publish_many(key, [b"a", b"b", b"c", b"d"])
            got = [await anext(mine)]
            binding = cluster.slices["s01"].state.keys[key.encode()].bindings[queue.encode()]
            await until(lambda: len(binding.given) == 4)
            assert other is not mine
        while len(got) < 4:
            got.append(await anext(mine))
        assert {message.body for message in got} == {b"a", b"b", b"c", b"d"}


async def test_publishes_follow_a_moved_partition_in_order(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster, "s01")
    home, there = (cluster.slices[name].state.queues for name in ("s01", "s02"))
    there.declare(queue.encode(), shoal.QueueOptions(), home.parts[queue.encode()].incarnation)
    moved = cluster.slices["s01"].state.keys.pop(key.encode())
    cluster.slices["s02"].state.keys[key.encode()] = moved
    cluster.move({partition_of(key.encode(), PARTITIONS): "s02"}, tell=False)
    futures = [fake_broker.publish_nowait(key, b"%d" % number) for number in range(50)]
    await until(lambda: any(frame.HasField("change") for frame in cluster.slices["s01"].frames))
    await asyncio.sleep(0.02)
    futures += [fake_broker.publish_nowait(key, b"%d" % number) for number in range(50, 100)]
    cluster.announce()
    receipts = await asyncio.gather(*futures)
    assert [receipt.offset for receipt in receipts] == list(range(1, 101))


async def test_a_key_that_moved_and_is_not_found_in_time_is_named_as_not_configured(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.map_watch.MAP_SUSPECT_S", 600.0)  # No other redirector tells the newer map.
    keys = [cluster.key_of(name) for name in ("s01", "s02")]
    cluster.move({partition_of(keys[0].encode(), PARTITIONS): "s02"}, tell=False)
    with pytest.raises(shoal.OutcomeUnknown, match="1 of 2 keys were not configured") as raised:
        await fake_broker.configure(keys, shoal.KeyOptions(history_messages=5), deadline_s=1)
    assert list(raised.value.failed) == [keys[0]] and list(raised.value.done) == [keys[1]]


async def test_binds_follow_a_moved_partition(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue = cluster.queue_with_home("s01")
    await fake_broker.declare(queue)
    keys = [f"key-{number}" for number in range(30)]
    home = partition_of(f"@{queue}".encode(), PARTITIONS)
    cluster.move({even: "s03" for even in range(0, PARTITIONS, 2) if even != home}, tell=False)
    bind = asyncio.create_task(fake_broker.bind(queue, keys))
    await until(lambda: any(frame.HasField("change") for frame in cluster.slices["s02"].frames))
    assert not bind.done()
    cluster.announce()
    assert list(await bind) == keys
    assert len((await fake_broker.describe(queue, bindings=True)).bindings) == len(keys)


async def test_an_added_slice_is_attached(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue = cluster.queue_with_home("s01")
    await fake_broker.declare(queue)
    async with fake_broker.consume(queue) as inbox:
        added = cluster.add("s04")
        await added.start()
        cluster.move({partition: "s04" for partition in range(PARTITIONS) if partition % 3 == 0})
        await until(lambda: added.session_count == 1)
        key = cluster.key_of("s04")
        await fake_broker.bind(queue, key)
        await fake_broker.publish(key, b"new slice")
        assert (await anext(inbox)).body == b"new slice"


async def test_a_refused_frame_is_repeated_with_its_number(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    _, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    for error in (Unavailable("starting"), NotLeader("not the leader", leader=slice_.address)):
        slice_.frames.clear()
        slice_.refuse_frames.append(error)
        await fake_broker.publish(key, b"x")
        sequences = [frame.sequence for frame in slice_.frames]
        assert len(sequences) == 2 and sequences[0] == sequences[1]


async def test_a_whole_frame_refused_for_good_goes_to_its_callers(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    _, key = await bound(fake_broker, cluster)
    cluster.slices["s01"].refuse_frames.append(shoal.PermissionDenied("no right to publish", subject=key))
    with pytest.raises(shoal.PermissionDenied, match="no right"):
        await fake_broker.publish(key, b"x")
    assert (await fake_broker.publish(key, b"x")).offset == 1


async def test_a_call_without_answer_ends_at_its_deadline(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    cluster.slices["s01"].answering.clear()
    with pytest.raises(shoal.DeadlineExceeded, match="outcome is unknown"):
        await fake_broker.publish(key, b"x", deadline_s=0.1)
    with pytest.raises(shoal.DeadlineExceeded):
        await fake_broker.describe(queue, deadline_s=0.1)
    cluster.slices["s01"].answering.set()
    assert (await fake_broker.publish(key, b"y")).offset == 2


async def test_publish_waits_or_refuses_at_the_bound(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    _, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    slice_.answering.clear()
    body = bytes(1 << 20)
    count = limits.UNANSWERED_BYTES_MAX // (len(body) + 1000)
    # Long deadlines: 32 MiB may take a busy machine many seconds, and it is the bound that is tested.
    futures = [fake_broker.publish_nowait(key, body, deadline_s=LONG_S) for _ in range(count)]
    with pytest.raises(shoal.ResourceExhausted, match="slice s01"):
        fake_broker.publish_nowait(key, body)
    with pytest.raises(shoal.DeadlineExceeded, match="nothing was sent"):
        await fake_broker.publish_soon(key, body, deadline_s=0.05)
    waiting = asyncio.create_task(fake_broker.publish_soon(key, body, deadline_s=LONG_S))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    slice_.answering.set()
    receipts = await asyncio.gather(*futures, await waiting)
    assert [receipt.offset for receipt in receipts] == list(range(1, count + 2))


async def test_requests_of_one_turn_share_a_frame(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    slice_.frames.clear()
    other = cluster.key_of("s01", "other")
    await asyncio.gather(
        fake_broker.publish(key, b"1"),
        fake_broker.publish(key, b"2"),
        fake_broker.bind(queue, other),
        fake_broker.publish(other, b"3"),
        fake_broker.publish(key, b"4"),
    )
    (frame,) = slice_.frames
    steps = wire.Change.FromString(frame.change).steps
    assert [step.WhichOneof("step") for step in steps] == ["publishes", "binds", "publishes"]
    assert [len(step.publishes.keys) for step in steps] == [1, 0, 2]


async def test_a_publish_cancelled_before_it_is_sent_is_not_sent(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    _, key = await bound(fake_broker, cluster)
    dropped = fake_broker.publish_nowait(key, b"dropped")
    kept = fake_broker.publish_nowait(key, b"kept")
    dropped.cancel()
    assert (await kept).offset == 1
    assert cluster.slices["s01"].state.keys[key.encode()].head == 2


async def test_settled_tells_the_slice_what_it_may_forget(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    _, key = await bound(fake_broker, cluster)
    for _ in range(5):
        await fake_broker.publish(key, b"x")
    assert len(cluster.slices["s01"].state.answers) == 1
    last = cluster.slices["s01"].frames[-1]
    assert last.settled == last.sequence - 1


async def test_a_full_inbox_stops_reading_without_holding_up_receipts(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    async with fake_broker.consume(queue, buffer_bytes=1000) as inbox:
        for number in range(50):
            await fake_broker.publish_many(key, [b"%d" % number, bytes(500_000)])
        await until(lambda: cluster.slices["s01"].unsent_responses > 5)
        got = 0
        async with asyncio.timeout(10):
            async for delivery in inbox.deliveries():
                got += len(delivery)
                await delivery.ack()
                if got == 100:
                    break


async def test_another_redirector_takes_over(cluster: FakeCluster) -> None:
    first, second = cluster.redirectors
    await first.stop()
    async with shoal.connect(first.address, second.address, deadline_s=10) as broker:
        _, key = await bound(broker, cluster)
        await first.start()
        await second.stop()
        await until(lambda: first.watches == 1)
        cluster.move(dict.fromkeys(range(PARTITIONS), "s02"))
        await broker.declare("q2")
        assert b"q2" in cluster.slices["s02"].state.queues
        assert (await broker.publish(key, b"x")).queues == 0


async def test_connect_without_a_redirector_names_it() -> None:
    with pytest.raises(shoal.Unavailable, match=r"127\.0\.0\.1:1"):
        async with shoal.connect("127.0.0.1:1", deadline_s=0.2):
            pass


async def test_leaving_fails_what_is_unanswered(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.broker.CLOSE_S", 0.1)
    async with shoal.connect(cluster.redirectors[0].address) as broker:
        _, key = await bound(broker, cluster)
        cluster.slices["s01"].answering.clear()
        future = broker.publish_nowait(key, b"x")
    with pytest.raises(shoal.Unavailable, match="unknown"):
        await future
    cluster.slices["s01"].answering.set()
    await until(lambda: all(slice_.session_count == 0 for slice_ in cluster.slices.values()))


async def test_a_slice_that_listens_elsewhere_is_followed(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key = await bound(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    async with fake_broker.consume(queue) as inbox:
        await slice_.stop()
        slice_.address = "127.0.0.1:0"
        await slice_.start()
        cluster.move({})
        await fake_broker.publish(key, b"x")
        assert (await anext(inbox)).body == b"x"


async def test_an_inbox_ends_with_its_connection(cluster: FakeCluster) -> None:
    async with shoal.connect(cluster.redirectors[0].address) as broker:
        queue, _ = await bound(broker, cluster)
        inbox = broker.consume(queue)
        await inbox.__aenter__()
    assert [message async for message in inbox] == []
    with pytest.raises(shoal.Unavailable, match="closed"):
        await broker.publish("key", b"x")
    with pytest.raises(shoal.Unavailable, match="closed"):
        broker.publish_nowait("key", b"x")


async def test_a_consumer_may_publish_while_it_consumes_a_full_inbox(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = await bound(fake_broker, cluster)
    for number in range(30):
        await fake_broker.publish(key, b"%d" % number * 1000)
    got = 0
    async with fake_broker.consume(queue, buffer_bytes=1) as inbox, asyncio.timeout(10):
        async for message in inbox:
            await fake_broker.publish("elsewhere", message.body)
            await message.ack()
            got += 1
            if got == 30:
                break
    assert (await fake_broker.describe(queue)).messages == 0


async def test_bind_at_a_slice_without_a_part_declares_it_with_the_options_of_the_home(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue, shoal.QueueOptions(expires_after_s=60))
    async with shoal.connect(cluster.redirectors[1].address) as other:
        await other.bind(queue, key)
    parts = [cluster.slices[name].state.queues.parts[queue.encode()] for name in ("s01", "s02")]
    assert [(part.options.expires_after_s, part.incarnation) for part in parts] == [(60, 100), (60, 100)]
    assert not cluster.slices["s03"].frames


async def test_a_queue_declared_just_now_is_bound_elsewhere_in_one_round_trip_and_verified_in_another(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key = cluster.queue_with_home("s01"), cluster.key_of("s02")
    await fake_broker.declare(queue)
    for _ in range(3):
        await fake_broker.bind(queue, key)
    assert [frame.WhichOneof("frame") for frame in cluster.slices["s02"].frames] == ["change"] * 3
    assert [frame.WhichOneof("frame") for frame in cluster.slices["s01"].frames] == ["change", "describe"]


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_cuts_at_random_moments_lose_and_double_nothing(
    cluster: FakeCluster, fake_broker: shoal.Broker, seed: int
) -> None:
    print(f"seed {seed}")  # noqa: T201 - to repeat a failure
    chance = random.Random(seed)
    queue, keys = "queue", [f"key-{number}" for number in range(6)]
    await fake_broker.declare(queue)
    await fake_broker.bind(queue, keys)
    got: dict[str, list[int]] = {key: [] for key in keys}

    async def publish(key: str) -> None:
        for number in range(60):
            future = await fake_broker.publish_soon(key, b"%d" % number)
            if chance.random() < 0.1:
                chance.choice(list(cluster.slices.values())).cut()
            if chance.random() < 0.5:
                await future

    async with fake_broker.consume(queue) as inbox:
        publishers = [asyncio.create_task(publish(key)) for key in keys]
        async with asyncio.timeout(30):
            async for message in inbox:
                got[message.key].append(int(message.body))
                if chance.random() < 0.9:
                    await message.ack()
                if sum(map(len, got.values())) == 60 * len(keys):
                    break
        await asyncio.gather(*publishers)
    assert sum(len(slice_.opens) for slice_ in cluster.slices.values()) > 12
    assert got == {key: list(range(60)) for key in keys}
