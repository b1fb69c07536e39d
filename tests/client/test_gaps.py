"""Gaps, against any cluster: messages that are gone are told once, in their place between the others."""

from __future__ import annotations

import asyncio
import logging

import pytest

import shoal
import shoal.testing
from tests.client.calls import fresh, new_key, take

LAST_3 = shoal.KeyOptions(capacity_messages=3, policy="drop_oldest")


async def full_key(broker: shoal.Broker) -> tuple[str, str]:
    """A queue, and a key that drops the oldest; the queue still has to get 8 to 10 of it, 1 to 7 are gone."""
    queue, key = fresh("queue"), await new_key(broker)
    await broker.declare(queue)
    await broker.configure(key, LAST_3)
    await broker.bind(queue, key)
    for number in range(1, 11):
        receipt = await broker.publish(key, b"%d" % number)
        assert (receipt.offset, receipt.queues) == (number, 1)
    return queue, key


async def test_an_inbox_hears_of_a_gap_before_what_follows(broker: shoal.Broker) -> None:
    queue, key = await full_key(broker)
    heard: list[object] = []
    async with broker.consume(queue, on_gap=heard.append) as inbox:
        for message in await take(inbox, 3):
            heard.append(message.offset)
            await message.ack()
        await inbox.flush()
    gap = shoal.Gap(queue.encode(), key.encode(), 1, 8, "dropped")
    assert heard[0] == gap and set(heard[1:]) == {8, 9, 10}
    assert (gap.queue, gap.key) == (queue, key)
    assert (await broker.describe(queue)).messages == 0
    heard.clear()
    async with broker.consume(queue, on_gap=heard.append) as inbox:
        await broker.publish(key, b"next")
        assert [message.offset for message in await take(inbox, 1)] == [11]
    assert heard == [], "it was told before"


async def test_a_pull_hears_of_a_gap_and_a_peek_takes_none(broker: shoal.Broker) -> None:
    queue, _ = await full_key(broker)
    heard: list[shoal.Gap] = []
    assert [message.offset for message in await broker.peek(queue, 10)] == [8, 9, 10]
    assert [message.offset for message in await broker.pull(queue, 1, on_gap=heard.append)] == [8]
    assert [(gap.first, gap.end, gap.why) for gap in heard] == [(1, 8, "dropped")]


async def test_a_slow_consumer_hears_of_it_when_it_goes_on(broker: shoal.Broker) -> None:
    queue, key = fresh("queue"), await new_key(broker)
    await broker.declare(queue)
    await broker.configure(key, LAST_3)
    await broker.bind(queue, key)
    heard: list[tuple[int, int]] = []
    async with broker.consume(queue, window_messages=1, on_gap=lambda gap: heard.append((gap.first, gap.end))) as inbox:
        await broker.publish(key, b"1")
        (first,) = await take(inbox, 1)
        for number in range(2, 11):
            await broker.publish(key, b"%d" % number)
        assert heard == []
        await first.ack()
        assert [message.offset for message in await take(inbox, 1)] == [8]
    assert heard == [(2, 8)]


async def test_without_a_callback_it_is_logged_and_a_callback_that_fails_harms_nothing(
    broker: shoal.Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "shoal")
    queue, key = await full_key(broker)
    assert len(await broker.pull(queue, 10)) == 3
    assert f"queue {queue} does not get messages 1 to 7 of key {key}: dropped" in caplog.text

    def fails(gap: shoal.Gap) -> None:
        raise ValueError("a defect of the application")

    queue, _ = await full_key(broker)
    async with asyncio.timeout(30), broker.consume(queue, on_gap=fails) as inbox:
        assert [message.offset for message in await take(inbox, 3)] == [8, 9, 10]
    assert "a defect of the application" in caplog.text


async def test_a_chunk_larger_than_the_key_is_refused(broker: shoal.Broker) -> None:
    _, key = await full_key(broker)
    with pytest.raises(shoal.ResourceExhausted) as refused:
        await broker.publish_many(key, [b"x"] * 4)
    assert (refused.value.limit, refused.value.value) == (3, 4)


async def test_options_that_do_nothing_and_callbacks_of_another_kind_are_refused(broker: shoal.Broker) -> None:
    with pytest.raises(shoal.OutOfRange, match="the key has no capacity"):
        await broker.configure("k", shoal.KeyOptions(history_messages=3, policy="drop_oldest"))
    with pytest.raises(TypeError, match="policy must be one of 'reject', 'drop_oldest'"):
        await broker.configure("k", shoal.KeyOptions(capacity_messages=3, policy="newest"))

    async def waits(gap: shoal.Gap) -> None: ...

    with pytest.raises(TypeError, match="on_gap must be a plain function"):
        broker.consume("q", on_gap=waits)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_gap must be a function"):
        await broker.pull("q", 1, on_gap=5)  # type: ignore[arg-type]


async def test_a_bind_at_an_offset_says_whether_it_could_be_honoured(broker: shoal.Broker) -> None:
    _, key = await full_key(broker)
    late, early = fresh("late"), fresh("early")
    await broker.declare([late, early])
    start = shoal.Offset(5)
    first = await broker.bind(late, key, start=start)
    assert (first, start.recovered(first)) == (8, False)
    kept = shoal.Offset(9)
    first = await broker.bind(early, key, start=kept)
    assert (first, kept.recovered(first)) == (9, True)
    assert [message.offset for message in await broker.pull(late, 10)] == [8, 9, 10]
    with pytest.raises(shoal.OutOfRange):
        await broker.bind(early, fresh("none"), start=shoal.Offset(5))


async def test_a_second_bind_at_an_offset_says_that_the_queue_was_bound_before(broker: shoal.Broker) -> None:
    queue, key, other = fresh("queue"), await new_key(broker), await new_key(broker)
    await broker.declare(queue)
    await broker.configure([key, other], shoal.KeyOptions(history_messages=10))
    for number in range(3):
        await broker.publish(key, b"%d" % number)
        await broker.publish(other, b"%d" % number)
    assert await broker.bind(queue, key) == 4
    start = shoal.Offset(1)
    first = await broker.bind(queue, [other, key], start=start)
    assert first == {other: 1, key: 4}
    assert isinstance(first[key], shoal.BoundBefore) and start.recovered(first[key]), "nothing is gone"
    assert not isinstance(first[other], shoal.BoundBefore)
    assert await broker.bind(queue, key, start=shoal.Offset(99)) == 4, "it is not looked at"
    async with broker.transaction() as transaction:
        again = transaction.bind(queue, key, start=start)
    assert isinstance(again.value, shoal.BoundBefore) and again.value == 4


async def test_a_bind_by_age_gives_what_was_published_since(broker: shoal.Broker) -> None:
    _, key = await full_key(broker)
    queue = fresh("queue")
    await broker.declare(queue)
    start = shoal.Ago(3600)
    first = await broker.bind(queue, key, start=start)
    assert (first, start.recovered(first)) == (8, True)
    for wrong, error in (
        ("1 h", TypeError),
        (0, shoal.OutOfRange),
        (-1, shoal.OutOfRange),
        (1 << 40, shoal.OutOfRange),
    ):
        with pytest.raises(error):
            shoal.Ago(wrong)  # type: ignore[arg-type]


async def test_a_message_with_a_ttl_is_delivered_in_time_or_told_as_a_gap(broker: shoal.Broker) -> None:
    queue, key = fresh("queue"), await new_key(broker)
    await broker.declare(queue)
    await broker.bind(queue, key)
    await broker.publish(key, b"for ever")
    receipt = await broker.publish(key, b"an hour", ttl=3600)
    assert (receipt.offset, receipt.queues) == (2, 1)
    first, second = await broker.pull(queue, 10)
    assert first.expires_ms == 0 and (not second.expires_ms or second.expires_ms == second.time_ms + 3_600_000)


async def test_what_expires_on_a_real_slice_is_never_delivered(
    broker: shoal.Broker, request: pytest.FixtureRequest
) -> None:
    if "[real]" not in request.node.name:
        return  # A fake has no clock: see the next test.
    queue, key = fresh("queue"), fresh("key")
    await broker.declare(queue)
    await broker.bind(queue, key)
    await broker.publish_many(key, [b"1", b"2"], ttl=0.001)
    await broker.publish(key, b"3")
    heard: list[shoal.Gap] = []
    async with asyncio.timeout(30):
        found: list[shoal.Message] = []
        while not heard:
            found += await broker.pull(queue, 10, on_gap=heard.append)
            for message in found:
                await message.nack()
            await broker.flush()
    assert [(gap.first, gap.end, gap.why) for gap in heard] == [(1, 3, "expired")]
    assert [message.offset for message in await broker.pull(queue, 10)] in ([3], [])


async def test_what_expires_on_a_fake_is_told() -> None:
    cluster = shoal.testing.FakeCluster()
    heard: list[shoal.Gap] = []
    async with asyncio.timeout(30), cluster.connect() as broker:
        await broker.declare("q")
        await broker.bind("q", "k")
        await broker.publish("k", b"1", ttl=5)
        await broker.publish("k", b"2")
        for one in cluster.slices.values():
            one.state.expire()
        assert [message.body for message in await broker.pull("q", 10, on_gap=heard.append)] == [b"2"]
    assert [(gap.first, gap.end, gap.why) for gap in heard] == [(1, 2, "expired")]


async def test_a_wrong_ttl_is_refused_before_anything_is_sent(broker: shoal.Broker) -> None:
    for wrong, error in ((0, shoal.OutOfRange), (-1, shoal.OutOfRange), (1e12, shoal.OutOfRange), ("1 h", TypeError)):
        with pytest.raises(error, match="ttl"):
            await broker.publish("k", b"x", ttl=wrong)  # type: ignore[arg-type]
    with pytest.raises(shoal.Malformed, match="ttl and live"):
        await broker.publish("k", b"x", ttl=5, live=True)
