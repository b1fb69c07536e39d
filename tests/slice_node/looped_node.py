"""A node in its event loop, over tables in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from shoal_contract.errors import Fenced, ResourceExhausted, ShoalError
from shoal_contract.wire import slice_pb2 as wire
from shoal_slice_node.adapters.commit_loop import CommitLoop, Hooks
from shoal_slice_node.adapters.frame_room import FrameRoom
from shoal_slice_node.adapters.limits import PENDING_BYTES_DEFAULT
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.apply.records import NO_PRODUCER, ChangeHead, Kind, encode_change
from shoal_slice_node.core.node.commit import Item

from .core_driver import CoreDriver


class Disk:
    """A journal in memory; `failure` is what the next append meets."""

    def __init__(self) -> None:
        self.failure: ShoalError | None = None
        self.hold: threading.Event | None = None
        """The next append waits for it."""
        self.appended: list[tuple[int, int]] = []

    def append(self, data: bytes, first_lsn: int, last_lsn: int, frees: bool = False) -> None:
        assert data
        hold, self.hold = self.hold, None
        if hold is not None:
            assert hold.wait(10)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        self.appended.append((first_lsn, last_lsn))


class Looped:
    """`leads`: what the loop is told when it asks whether it may answer."""

    def __init__(self, core: CoreDriver) -> None:
        self.core = core
        self.disk = Disk()
        self.leads = True
        hooks = Hooks(lambda: None, lambda: None, self._check)
        room = FrameRoom(PENDING_BYTES_DEFAULT // 2)
        core.node.commit._let_go = room.give
        self.commit = core.node.commit
        self.acks = core.node.acks
        self.loop = CommitLoop(self.commit, room, self.disk, self._in_thread, hooks)

    def _check(self) -> None:
        if not self.leads:
            raise Fenced("made up: its lease may be over")

    async def settled_acks(self) -> ShoalError | None:
        """As the broker does it."""
        done: asyncio.Future[ShoalError | None] = asyncio.get_running_loop().create_future()
        self.acks.then(done.set_result)
        await self.loop.between_records.wait()
        self.acks.flush()
        self.loop.wake()
        return await done

    def _in_thread(self, work: Callable[[], object]) -> asyncio.Future[object]:
        return asyncio.get_running_loop().run_in_executor(None, work)

    async def submit(self, kind: int, payload: bytes | None) -> Effects | ShoalError:
        """What the loop answered: once, or a future refuses the second answer and the loop fails."""
        done: asyncio.Future[Effects | ShoalError] = asyncio.get_running_loop().create_future()
        self.loop.submit(Item(kind, payload, done.set_result, done.set_result))
        return await asyncio.wait_for(done, 10)

    async def change(self, *steps: wire.Step) -> Effects | ShoalError:
        return await self.submit(Kind.CHANGE, change_of(*steps))


def change_of(*steps: wire.Step) -> bytes:
    return encode_change(ChangeHead(NO_PRODUCER, 0, 0), wire.Change(steps=steps).SerializeToString())


@asynccontextmanager
async def looped(core: CoreDriver | None = None) -> AsyncIterator[tuple[Looped, asyncio.Task[None]]]:
    found = Looped(core or CoreDriver())
    task = asyncio.create_task(found.loop.run())
    try:
        yield found, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def full() -> ResourceExhausted:
    return ResourceExhausted("no disk space", subject="disk bytes")
