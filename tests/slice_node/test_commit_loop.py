"""Group commit on a disk that is full, or fails: what is refused, what goes on, what stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from shoal_contract.errors import Corrupt, ResourceExhausted, ShoalError, Unavailable
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.ack_flush import AckFlush
from shoal_slice_node.adapters.commit_loop import CommitLoop, Item
from shoal_slice_node.core.effects import Effects
from shoal_slice_node.core.reading import describe_queue
from shoal_slice_node.core.records import NO_PRODUCER, ChangeHead, Kind, encode_change

from .core_driver import CoreDriver, bind, declare, publish


class Disk:
    """A journal in memory; `failure` is what the next append meets."""

    def __init__(self) -> None:
        self.failure: ShoalError | None = None
        self.appended: list[tuple[int, int]] = []

    def append(self, data: bytes, first_lsn: int, last_lsn: int) -> None:
        assert data
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        self.appended.append((first_lsn, last_lsn))


class Looped:
    def __init__(self, core: CoreDriver) -> None:
        self.core = core
        self.disk = Disk()
        self.loop = CommitLoop(
            core.engine,
            self.disk,
            lambda work: asyncio.get_running_loop().run_in_executor(None, work),
            core.state.lsn,
            1,
            on_effects=core.dispatcher.applied,
            on_turn=lambda: None,
            throttle=lambda: None,
        )

    async def submit(self, kind: int, payload: bytes | None) -> Effects | ShoalError:
        done: asyncio.Future[Effects | ShoalError] = asyncio.get_running_loop().create_future()
        self.loop.submit(Item(kind, payload, done.set_result, done.set_result))
        return await asyncio.wait_for(done, 10)

    async def change(self, *steps: wire.Step) -> Effects | ShoalError:
        data = wire.Change(steps=steps).SerializeToString()
        return await self.submit(Kind.CHANGE, encode_change(ChangeHead(NO_PRODUCER, 0, 0), data))


@asynccontextmanager
async def looped() -> AsyncIterator[tuple[Looped, asyncio.Task[None]]]:
    found = Looped(CoreDriver())
    task = asyncio.create_task(found.loop.run())
    try:
        yield found, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def full() -> ResourceExhausted:
    return ResourceExhausted("no disk space", subject="disk bytes")


async def test_a_full_disk_refuses_the_batch_and_the_next_one_has_the_same_lsn() -> None:
    async with looped() as (node, _):
        lsn = node.loop.applied_lsn
        node.disk.failure = full()
        changed, read = await asyncio.gather(node.change(declare("q")), node.submit(0, None))
        assert isinstance(changed, ResourceExhausted)
        assert isinstance(read, Effects), "what needs no disk goes on"
        assert node.core.state.load_queue(b"q") is None
        assert isinstance(await node.change(declare("q")), Effects)
        assert node.disk.appended == [(lsn + 1, lsn + 1)] and node.loop.applied_lsn == lsn + 1


async def test_a_failing_disk_stops_the_loop_and_nothing_more_is_acknowledged() -> None:
    async with looped() as (node, task):
        node.disk.failure = Corrupt("fdatasync failed", subject="journal")
        assert isinstance(await node.change(declare("q")), Corrupt)
        with pytest.raises(Corrupt):
            await task
        assert isinstance(await node.change(declare("q")), Unavailable)
        assert node.core.state.load_queue(b"q") is None


async def test_acks_that_found_the_disk_full_are_journaled_later() -> None:
    async with looped() as (node, _):
        core, session = node.core, node.core.session()
        await node.change(declare("q"), bind("q", "k"), publish("k", b"a", b"b", b"c"))
        core.attach(session, "q")
        core.take(session)
        acks = AckFlush(node.loop, core.dispatcher)
        core.ack(session, "k", 1, 2)
        core.ack(session, "k", 3, 4)
        node.disk.failure = full()
        assert isinstance(await acks.settled(), ResourceExhausted)
        core.ack(session, "k", 2, 3)
        assert await acks.settled() is None
        core.dispatcher.close(session)
        assert not core.dispatcher.feeds
        assert describe_queue(core.state, b"q", 0, 0).messages == 0


async def test_readers_wait_while_too_much_is_pending() -> None:
    async with looped() as (node, _):
        payload = bytes(1 << 20)
        refused: list[ShoalError] = []
        fail: Callable[[ShoalError], None] = refused.append
        node.disk.failure = full()
        for _ in range(20):
            node.loop.submit(Item(Kind.CHANGE, payload, lambda _: None, fail))
        room = asyncio.create_task(node.loop.room())
        await asyncio.sleep(0)
        assert not room.done()
        room.cancel()
