"""An inbox has no more unacked than its window, also of messages that were published as a batch."""

from __future__ import annotations

import asyncio

import pytest

import shoal
from shoal import Broker

from .calls import fresh, take
from .conftest import Connect

WAIT_S = 30
QUIET_S = 0.3
"""A little longer than what is under way takes to come."""
BODIES = [b"%02d" % number for number in range(20)]


async def quiet(inbox: shoal.Inbox) -> None:
    """Nothing more comes."""
    with pytest.raises(TimeoutError):
        await inbox.get(timeout=QUIET_S)


async def filled(broker: Broker, options: shoal.QueueOptions | None = None, soon: bool = False) -> str:
    queue = fresh("queue")
    await broker.declare(queue, options or shoal.QueueOptions())
    if soon:
        await asyncio.gather(*[broker.publish_soon(f"@{queue}", body) for body in BODIES])
    else:
        await broker.publish_many(f"@{queue}", BODIES)
    return queue


@pytest.mark.parametrize("soon", [False, True], ids=["publish_many", "publish_soon"])
@pytest.mark.parametrize("window", [1, 2, 7])
async def test_a_batch_comes_as_the_window_has_room(broker: Broker, window: int, soon: bool) -> None:
    queue = await filled(broker, soon=soon)
    async with asyncio.timeout(WAIT_S), broker.consume(queue, window_messages=window) as inbox:
        held = await take(inbox, window)
        await quiet(inbox)
        came = [message.body for message in held]
        while len(came) < len(BODIES):
            await held.pop(0).ack()
            (message,) = await take(inbox, 1)
            came.append(message.body)
            held.append(message)
        assert came == BODIES
        inbox.ack(*held)
        await inbox.flush()
    assert (await broker.describe(queue)).messages == 0


async def test_a_batch_is_shared_by_consumers_that_compete(connect: Connect, broker: Broker) -> None:
    queue = await filled(broker)
    async with (
        asyncio.timeout(WAIT_S),
        connect() as second,
        broker.consume(queue, window_messages=1) as one,
        second.consume(queue, window_messages=1) as other,
    ):
        came: list[bytes] = []
        while len(came) < len(BODIES):
            messages = [await one.get(), await other.get()]
            came += [message.body for message in messages]
            for message in messages:
                await message.ack()
        assert sorted(came) == BODIES
        await asyncio.gather(one.flush(), other.flush())
    assert (await broker.describe(queue)).messages == 0


async def test_what_did_not_fit_the_window_was_not_delivered(broker: Broker) -> None:
    """A worker that took one job of a batch and left used up a delivery of each."""
    queue = await filled(broker, shoal.QueueOptions(max_deliveries=2))
    async with asyncio.timeout(WAIT_S), broker.consume(queue, window_messages=1) as inbox:
        assert (await inbox.get()).body == BODIES[0]
    async with asyncio.timeout(WAIT_S), broker.consume(queue) as inbox:
        messages = await take(inbox, len(BODIES))
        found = sorted((message.body, message.redelivered) for message in messages)
        assert found == [(body, int(body == BODIES[0])) for body in BODIES]
        inbox.ack(*messages)
        await inbox.flush()
