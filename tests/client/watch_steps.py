"""Steps of tests with watches."""

from __future__ import annotations

import asyncio

import shoal
from shoal import Broker
from tests.client.calls import fresh

WAIT_S = 30


async def next_of(watch: shoal.MembersWatch) -> shoal.MemberEvent:
    async with asyncio.timeout(WAIT_S):
        return await anext(watch)


async def bound(broker: Broker, key: str, count: int) -> list[str]:
    queues = [fresh("queue") for _ in range(count)]
    await broker.declare(queues)
    for queue in queues:
        await broker.bind(queue, key)
    return queues
