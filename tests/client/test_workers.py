"""Several tasks that take messages of one inbox: each message goes to one of them, and none is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import shoal
from shoal.testing import FakeCluster

from .calls import until

WAIT_S = 30
BATCHES, MESSAGES = 6, 7

Taken = list[shoal.Message]


async def by_get(inbox: shoal.Inbox, taken: Taken) -> None:
    while True:
        message = await inbox.get()
        taken.append(message)
        await asyncio.sleep(0)
        message.ack_nowait()


async def by_iteration(inbox: shoal.Inbox, taken: Taken) -> None:
    async for message in inbox:
        taken.append(message)
        await asyncio.sleep(0)
        message.ack_nowait()


@pytest.mark.parametrize("work", [by_get, by_iteration])
@pytest.mark.parametrize("workers", [1, 2, 4, 10])
async def test_each_message_goes_to_one_worker(
    work: Callable[[shoal.Inbox, Taken], Awaitable[None]], workers: int
) -> None:
    taken: Taken = []
    async with asyncio.timeout(WAIT_S), FakeCluster().connect() as broker:
        await broker.declare("jobs")
        await broker.bind("jobs", "k")
        async with broker.consume("jobs") as inbox:
            tasks = [asyncio.ensure_future(work(inbox, taken)) for _ in range(workers)]
            await asyncio.sleep(0)  # All of them wait.
            for _ in range(BATCHES):
                await broker.publish_many("k", [b"x"] * MESSAGES)
            await until(lambda: len(taken) == BATCHES * MESSAGES)
            await inbox.flush()
            for task in tasks:
                task.cancel()
        assert [message.offset for message in taken] == list(range(1, BATCHES * MESSAGES + 1))
        assert not (await broker.describe("jobs")).messages
