"""What tests of the client share: names that nobody else uses, and waiting for what nobody tells."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from itertools import count

import shoal
from shoal.testing import FakeCluster, FakeSlice
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_contract.names import direct_key
from shoal_contract.partition_hash import partition_of

WAIT_S = 60
_NUMBERS = count()
_TAKEN: set[int] = set()
"""The partitions of names that `fresh` made in this process."""


def fresh(word: str) -> str:
    """A name no other test uses, also on a real cluster. As a key or as a queue it lies in partitions that no earlier
    name lies in, while there are any: where a key vanished, a new key's offsets do not begin at 1."""
    name = _made_up(word)
    while len(_TAKEN) < PARTITIONS_DEFAULT // 2 and not _TAKEN.isdisjoint(_partitions(name)):
        name = _made_up(word)
    _TAKEN.update(_partitions(name))
    return name


async def new_key(broker: shoal.Broker) -> str:
    """A name of a key whose offsets begin at 1, also where keys of tests that take other names have vanished."""
    probe = fresh("probe")
    await broker.declare(probe)
    while await broker.bind(probe, key := fresh("key")) != 1:
        pass
    await broker.drop(probe)
    return key


def tagged(tag: str, word: str) -> str:
    """A new name that lies with all others of the tag. Not by `fresh`, which would take other partitions for it."""
    return f"{{{tag}}}{word}-{next(_NUMBERS)}"


def _made_up(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:12]}"


def _partitions(name: str) -> set[int]:
    """Of the key of this name, and of the direct key of the queue of this name."""
    return {partition_of(key, PARTITIONS_DEFAULT) for key in (name.encode(), direct_key(name.encode()))}


async def take(messages: AsyncIterator[shoal.Message], count: int) -> list[shoal.Message]:
    """The next messages of an inbox."""
    async with asyncio.timeout(WAIT_S):
        return [await anext(messages) for _ in range(count)]


async def take_anew(inbox: shoal.Inbox, count: int) -> list[shoal.Message]:
    """The next messages of a queue's second life. That the first one ended may be told before."""
    try:
        return await take(inbox, 1) + await take(inbox, count - 1)
    except shoal.NoSuchQueue:
        return await take(inbox, count)


async def offsets_made_equal(broker: shoal.Broker, keys: list[str]) -> int:
    """Publishes to bound `keys` until the last offset is the same for all; answers it. In a partition in which another
    test's key vanished, a new key's offsets do not begin at 1."""
    offsets = {key: (await broker.publish(key, b"before")).offset for key in keys}
    last = max(offsets.values())
    for key, offset in offsets.items():
        for _ in range(offset, last):
            await broker.publish(key, b"before")
    return last


async def until(condition: Callable[[], bool], wait_s: float = 10) -> None:
    """Until `condition()` is true."""
    async with asyncio.timeout(wait_s):
        while not condition():  # noqa: ASYNC110 - fakes tell nobody of every change
            await asyncio.sleep(0.005)


async def bound(broker: shoal.Broker, cluster: FakeCluster, slice_name: str = "s01") -> tuple[str, str]:
    """A queue at home on a slice, bound to a key of the same."""
    queue, key = cluster.queue_with_home(slice_name), cluster.key_of(slice_name)
    await broker.declare(queue)
    await broker.bind(queue, key)
    return queue, key


async def lost(broker: shoal.Broker, slice_: FakeSlice) -> None:
    """Cuts the streams of a slice, and waits until the broker has another one."""
    session = broker._routing.session("s01")
    number = session.stream_number
    slice_.cut()
    await until(lambda: session.streaming and session.stream_number > number)


async def worked_off(inbox: shoal.Inbox, jobs: int) -> list[int]:
    """The numbers of so many jobs, in the order in which they came: each takes 0.09 s and comes for the first time."""
    done: list[int] = []
    while len(done) < jobs:
        message = await inbox.get()
        assert message.redelivered == 0
        await asyncio.sleep(0.09)  # The work
        done.append(int(message.body))
        await message.ack()
    await inbox.flush()
    return done
