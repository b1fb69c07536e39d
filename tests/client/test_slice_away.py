"""One slice is down or silent: what does not need it goes on, nothing taken is lost, errors name it (correctness
H6)."""

from __future__ import annotations

import asyncio
import time

import pytest

import shoal
from tests.client.calls import bound, lost, until
from tests.client.fake_cluster import FakeCluster

PROMPT_S = 8.0
"""Far below the deadline of the connections here, on a busy machine."""


async def on_two(broker: shoal.Broker, cluster: FakeCluster) -> tuple[str, str, str]:
    """A queue at home on s01, bound to a key there and to one of s02."""
    queue, key = await bound(broker, cluster)
    other = cluster.key_of("s02", "other")
    await broker.bind(queue, other)
    return queue, key, other


@pytest.fixture
async def patient_broker(cluster: FakeCluster) -> shoal.Broker:
    return shoal.connect(cluster.redirectors[0].address, deadline_s=60)


async def test_a_new_consumer_needs_the_home_only(cluster: FakeCluster, patient_broker: shoal.Broker) -> None:
    async with patient_broker as broker:
        queue, key, other = await on_two(broker, cluster)
        await broker.publish(key, b"here")
        await broker.publish(other, b"there")
        await cluster.slices["s02"].stop()
        async with asyncio.timeout(PROMPT_S), broker.consume(queue) as inbox:
            message = await anext(inbox)
            assert message.body == b"here"
            await message.ack()
            await inbox.flush()
            await cluster.slices["s02"].start()
            assert (await anext(inbox)).body == b"there"


async def test_a_queue_is_added_while_a_slice_is_down(cluster: FakeCluster, patient_broker: shoal.Broker) -> None:
    async with patient_broker as broker, broker.consume(()) as inbox:
        queue, key, _ = await on_two(broker, cluster)
        await cluster.slices["s02"].stop()
        await until(lambda: bool(inbox._slices["s02"].session.away))
        began = time.monotonic()
        await inbox.attach(queue)
        assert time.monotonic() - began < 0.9, "a slice that is known to be away is not waited for"
        await broker.publish(key, b"here")
        assert (await anext(inbox)).body == b"here"
        async with asyncio.timeout(PROMPT_S):
            await inbox.detach(queue)


async def test_a_queue_whose_home_is_down_is_not_added(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, _, other = await on_two(fake_broker, cluster)
    async with fake_broker.consume(()) as inbox:
        await cluster.slices["s01"].stop()
        with pytest.raises(shoal.DeadlineExceeded, match="attach at slice s01"):
            await inbox.attach(queue, deadline_s=0.3)
        await cluster.slices["s01"].start()
        state = cluster.slices["s02"].state
        await fake_broker.publish(other, b"for others")
        await until(lambda: all(queue.encode() not in one.queues.values() for one in cluster.slices["s02"]._sessions))
        assert not state.keys[other.encode()].bindings[queue.encode()].given
        await inbox.attach(queue)
        assert (await anext(inbox)).body == b"for others"


async def test_a_pull_returns_what_it_has(cluster: FakeCluster, patient_broker: shoal.Broker) -> None:
    async with patient_broker as broker:
        queue, key, other = await on_two(broker, cluster)
        await broker.publish_many(key, [b"1", b"2", b"3", b"4", b"5", b"6"])
        await broker.publish(other, b"there")
        await cluster.slices["s02"].stop()
        got: list[bytes] = []
        async with asyncio.timeout(PROMPT_S):
            for _ in range(3):  # Whichever slice is asked first.
                messages = await broker.pull(queue, 2)
                got += [message.body for message in messages]
                await broker.ack(*messages)
        assert got == [b"1", b"2", b"3", b"4", b"5", b"6"]
        await cluster.slices["s02"].start()
        async with asyncio.timeout(PROMPT_S):
            assert [message.body for message in await broker.pull(queue, 9)] == [b"there"]


async def test_a_pull_that_finds_nothing_names_the_slice_that_is_down(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, _, _ = await on_two(fake_broker, cluster)
    await cluster.slices["s02"].stop()
    for ask in (fake_broker.pull, fake_broker.peek):
        with pytest.raises(shoal.DeadlineExceeded, match="slice s02"):
            await ask(queue, 9, deadline_s=0.3)
    with pytest.raises(shoal.NoSuchQueue):
        await fake_broker.pull(cluster.queue_with_home("s01", "no-such"), 9)


async def test_what_a_pull_took_too_late_the_next_one_gets(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key, _ = await on_two(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish_many(key, [b"1", b"2", b"3"])
    slice_.answering.clear()
    with pytest.raises(shoal.DeadlineExceeded, match="slice s01"):
        await fake_broker.pull(queue, 2, deadline_s=0.2)
    cancelled = asyncio.create_task(fake_broker.pull(queue, 1))
    await until(lambda: sum(frame.HasField("pull") for frame in slice_.frames) == 2)
    cancelled.cancel()
    slice_.answering.set()
    await fake_broker.bind(queue, key)  # Answered after the pulls.
    messages = await fake_broker.pull(queue, 9)
    assert sorted(message.body for message in messages) == [b"1", b"2", b"3"]
    await fake_broker.ack(*messages)
    await fake_broker.flush()
    assert (await fake_broker.describe(queue)).messages == 0


@pytest.mark.parametrize("turns", range(12))
async def test_a_pull_that_ends_in_the_turn_of_its_answer_loses_nothing(
    turns: int, cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """What it took was neither returned nor given back."""
    queue, key, _ = await on_two(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish(key, b"1")
    slice_.answering.clear()
    pull = asyncio.create_task(fake_broker.pull(queue, 1))
    await until(lambda: any(frame.HasField("pull") for frame in slice_.frames))
    slice_.answering.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    pull.cancel()
    await asyncio.wait([pull])
    await fake_broker.bind(queue, key)  # Answered after the pull.
    messages = await fake_broker.pull(queue, 1) if pull.cancelled() else pull.result()
    await fake_broker.ack(*messages)
    await fake_broker.flush()
    assert [message.body for message in messages] == [b"1"]
    assert (await fake_broker.describe(queue)).messages == 0


@pytest.mark.parametrize("turns", range(12))
async def test_acks_of_what_two_slices_gave_in_one_turn_count(
    turns: int, cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acks of the second one's messages were said to be lost, and never sent."""
    monkeypatch.setattr("shoal.pulling.PULL_PATIENCE_S", 0.01)
    queue, key, other = await on_two(fake_broker, cluster)
    slices = [cluster.slices["s01"], cluster.slices["s02"]]
    await fake_broker.publish(key, b"1")
    await fake_broker.publish(other, b"2")
    for slice_ in slices:
        slice_.answering.clear()
    pull = asyncio.create_task(fake_broker.pull(queue, 9))
    await until(lambda: all(any(frame.HasField("pull") for frame in slice_.frames) for slice_ in slices))
    for slice_ in slices:
        slice_.answering.set()
        for _ in range(turns):
            await asyncio.sleep(0)
    messages = await pull
    await fake_broker.bind(queue, (key, other))  # Answered after the pull.
    messages += await fake_broker.pull(queue, 9)
    await fake_broker.ack(*messages)
    await fake_broker.flush()
    assert sorted(message.body for message in messages) == [b"1", b"2"]
    assert (await fake_broker.describe(queue)).messages == 0


async def test_what_was_taken_when_a_pull_fails_is_not_lost(
    cluster: FakeCluster, fake_broker: shoal.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.pulling.PULL_PATIENCE_S", 60.0)
    queue, key, other = await on_two(fake_broker, cluster)
    await fake_broker.publish(key, b"here")
    await fake_broker.publish(other, b"there")
    cluster.slices["s02"].ignored = {"pull"}
    monkeypatch.setattr("shoal.pulling.random", lambda: 0.0)  # Pulls begin with the first slice.
    pull = asyncio.create_task(fake_broker.pull(queue, 9))
    await until(lambda: any(frame.HasField("pull") for frame in cluster.slices["s02"].frames))
    assert cluster.slices["s01"].state.keys[key.encode()].bindings[queue.encode()].given
    pull.cancel()
    await asyncio.wait([pull])
    cluster.slices["s02"].ignored = set()
    async with asyncio.timeout(PROMPT_S):
        assert sorted(message.body for message in await fake_broker.pull(queue, 9)) == [b"here", b"there"]


async def test_no_slice_is_left_out_when_queues_are_pulled_by_turns(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    key, other = cluster.key_of("s01"), cluster.key_of("s02")
    queues = [cluster.queue_with_home("s01", f"queue{number}") for number in range(len(cluster.slices))]
    await fake_broker.declare(queues)
    for queue in queues:
        await fake_broker.bind(queue, [key, other])
    await fake_broker.publish_many(key, [b"here"] * 100)
    await fake_broker.publish(other, b"there")
    pulled: dict[str, list[bytes]] = {queue: [] for queue in queues}
    for _ in range(60):  # The first slice has more than that.
        for queue in queues:
            pulled[queue] += [message.body for message in await fake_broker.pull(queue, 1)]
    assert [queue for queue, bodies in pulled.items() if b"there" not in bodies] == []


async def test_late_messages_of_a_lost_stream_are_left_to_their_slice(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, key, _ = await on_two(fake_broker, cluster)
    slice_ = cluster.slices["s01"]
    await fake_broker.publish(key, b"1")
    slice_.answering.clear()
    with pytest.raises(shoal.DeadlineExceeded):
        await fake_broker.pull(queue, 1, deadline_s=0.2)
    slice_.ignored = {"nacks"}
    slice_.answering.set()
    await fake_broker.bind(queue, key)
    session = fake_broker._routing.session("s01")
    number = session.stream_number
    slice_.cut()
    await until(lambda: not session.streaming or session.stream_number > number)
    slice_.ignored = set()
    (message,) = await fake_broker.pull(queue, 1)
    await fake_broker.ack(message)
    await fake_broker.flush()
    assert (await fake_broker.describe(queue)).messages == 0
    assert await fake_broker.pull(queue, 1) == []


@pytest.mark.parametrize("when", ["before", "while away", "unsent", "unanswered"])
async def test_acks_of_pulled_messages_that_a_lost_stream_left_are_told_by_the_flush(
    when: str, cluster: FakeCluster
) -> None:
    """The messages come again. The acks were sent on the next stream, where they meant nothing, and answered."""
    errors: list[Exception] = []
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=20, on_error=errors.append) as broker:
        queue, key = await bound(broker, cluster)
        slice_ = cluster.slices["s01"]
        await broker.publish_many(key, [b"1", b"2"])
        messages = await broker.pull(queue, 2)
        if when == "before":
            await lost(broker, slice_)
        elif when == "while away":
            slice_.go_away()
            await until(lambda: not broker._routing.session("s01").streaming)
        elif when == "unanswered":
            slice_.ignored = {"acks"}
        await broker.ack(*messages)
        if when == "unanswered":
            await until(lambda: any(frame.HasField("acks") for frame in slice_.frames))
            slice_.ignored = set()
        if when == "while away":
            slice_.come_back()
            await until(lambda: broker._routing.session("s01").streaming)
        elif when != "before":
            await lost(broker, slice_)
        with pytest.raises(shoal.Unavailable, match="was lost after messages were pulled from it"):
            await broker.flush()
        assert errors
        await broker.flush()
        for message in await broker.pull(queue, 2):
            await message.ack()
        await broker.flush()
        assert not (await broker.describe(queue)).messages


async def test_nacks_of_pulled_messages_that_a_lost_stream_left_hold_up_no_flush(cluster: FakeCluster) -> None:
    async with shoal.connect(cluster.redirectors[0].address, deadline_s=20) as broker:
        queue, key = await bound(broker, cluster)
        slice_ = cluster.slices["s01"]
        await broker.publish(key, b"1")
        (message,) = await broker.pull(queue, 1)
        slice_.ignored = {"nacks"}
        message.nack_nowait()
        await until(lambda: any(frame.HasField("nacks") for frame in slice_.frames))
        flushing = asyncio.ensure_future(broker.flush(deadline_s=10))
        slice_.ignored = set()
        await lost(broker, slice_)
        await asyncio.wait_for(flushing, 5)
        assert len(await broker.pull(queue, 1)) == 1


async def test_what_needs_every_slice_says_which_is_away(cluster: FakeCluster, fake_broker: shoal.Broker) -> None:
    queue, key, other = await on_two(fake_broker, cluster)
    await fake_broker.publish(key, b"here")
    await fake_broker.publish(other, b"there")
    await cluster.slices["s02"].stop()
    with pytest.raises(shoal.DeadlineExceeded, match=r"describe of queue .* needs every slice, and slice s02 failed"):
        await fake_broker.describe(queue, deadline_s=0.3)
    with pytest.raises(shoal.DeadlineExceeded, match="1 messages were dropped, but slice s02 failed"):
        await fake_broker.purge(queue, deadline_s=0.3)
    with pytest.raises(shoal.DeadlineExceeded, match=r"is dropped, but slice s02 did not say so of its part .* sweep"):
        await fake_broker.drop(queue, deadline_s=0.3)
    async with asyncio.timeout(PROMPT_S):
        assert not (await fake_broker.describe(queue)).exists, "its home says so, and no other is needed"
    await cluster.slices["s02"].start()
    await until(
        lambda: queue.encode() not in cluster.slices["s02"].state.queues
    )  # It is asked again, now that it is back.
    with pytest.raises(shoal.NoSuchQueue):
        await fake_broker.drop(queue)


async def test_flush_waits_for_a_slice_that_is_down_and_acks_what_comes_again(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, _, other = await on_two(fake_broker, cluster)
    slice_ = cluster.slices["s02"]
    await fake_broker.publish_many(other, [b"1", b"2", b"3"])
    async with fake_broker.consume(queue) as inbox:
        messages = [await anext(inbox) for _ in range(3)]
        slice_.ignored = {"acks"}
        await messages[0].ack()
        await until(lambda: any(frame.HasField("acks") for frame in slice_.frames))
        await slice_.stop()
        await until(lambda: bool(inbox._slices["s02"].session.away))
        await messages[1].ack()
        with pytest.raises(shoal.DeadlineExceeded, match="acks at slice s02"):
            await inbox.flush(deadline_s=0.3)
        slice_.ignored = set()
        await slice_.start()
        await inbox.flush()
        binding = slice_.state.keys[other.encode()].bindings[queue.encode()]
        assert binding.done == {1, 2}
        await messages[2].ack()
        await inbox.flush()
        assert binding.done == {1, 2, 3}


async def test_flush_ends_where_the_slice_had_the_acks_and_could_not_say_so(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    queue, _, other = await on_two(fake_broker, cluster)
    slice_ = cluster.slices["s02"]
    await fake_broker.publish(other, b"1")
    async with fake_broker.consume(queue) as inbox:
        message = await anext(inbox)
        slice_.answering.clear()
        await message.ack()
        await until(lambda: slice_.state.keys[other.encode()].bindings[queue.encode()].done == {1})
        slice_.cut()
        slice_.answering.set()
        async with asyncio.timeout(PROMPT_S):
            await inbox.flush()
        await fake_broker.publish(other, b"2")
        assert (await anext(inbox)).body == b"2"


async def test_a_slice_is_back_also_where_the_caller_of_what_waited_for_it_has_left(
    cluster: FakeCluster, fake_broker: shoal.Broker
) -> None:
    """The stream began with a pull that nobody wanted any more, so nothing was sent, and no answer said that the slice
    is back: it stayed away for ever, as health checks saw it."""
    queue, key = await bound(fake_broker, cluster)
    await fake_broker.pull(queue, 1)
    await fake_broker.publish(key, b"x")
    slice_ = cluster.slices["s01"]
    await slice_.stop()
    await until(lambda: fake_broker.slices["s01"].state is shoal.State.AWAY)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(fake_broker.pull(queue, 1), 0.2)
    await slice_.start()
    await until(lambda: fake_broker.slices["s01"].state is shoal.State.OPEN)
