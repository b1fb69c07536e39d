"""Roles of one process, in the test's own loop: it steps down, follows, leads again, and ends at any moment."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import psutil
import pytest

from shoal_contract.errors import Corrupt, ShoalError, Unavailable
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_slice_node.adapters import recovery
from shoal_slice_node.adapters.roles import NEXT, Role
from shoal_slice_node.core.apply.records import Kind
from shoal_slice_node.core.node.commit import Item
from shoal_slice_node.storage.files import DiskFile
from shoal_slice_node.storage.lmdb_tables import LmdbBase
from shoal_slice_node.storage.offline import check_path
from shoal_slice_node.storage.stopped_folder import stopped

from .core_driver import bind, declare, publish
from .looped_node import change_of
from .raw_session import RawSession
from .role_turns import WAIT_S, Process, process

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

CHANGES = 12


class SlowDisk:
    """Every sync waits while `held`, and then fails with `error`, if there is one. `waiting`: one waits now."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.go_on.set()
        self.waiting = threading.Event()
        self.error: OSError | None = None

    def hold(self, error: OSError | None = None) -> None:
        self.error = error
        self.go_on.clear()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    found = SlowDisk()
    sync = DiskFile.sync

    def slow_sync(file: DiskFile) -> None:
        if not found.go_on.is_set():
            found.waiting.set()
            found.go_on.wait(WAIT_S)
            if found.error is not None:
                raise found.error
        sync(file)

    monkeypatch.setattr(DiskFile, "sync", slow_sync)
    yield found
    found.go_on.set()


async def refusal(stub: SliceServiceAsyncStub) -> ShoalError | None:
    """What a call is refused with."""
    try:
        await stub.Describe(wire.DescribeRequest(), timeout=WAIT_S)
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    return None


def test_the_table_of_roles_leads_from_waiting_to_closing() -> None:
    assert not NEXT[Role.CLOSING] and all(Role.CLOSING in NEXT[role] for role in Role if role is not Role.CLOSING)
    assert not any(Role.WAITING in following for following in NEXT.values())
    assert [role for role in Role if Role.OPENING in NEXT[role]] == [Role.WAITING]
    assert [role for role in Role if Role.LEADING in NEXT[role]] == [Role.FOLLOWING]


async def test_a_process_that_never_led_refuses_calls_at_once(tmp_path: Path) -> None:
    """Its port was taken and nothing answered there: callers waited for their whole deadline."""
    async with process(tmp_path) as node:
        node.seat.may_lead.clear()
        await node.until(Role.FOLLOWING)
        async with grpc.aio.insecure_channel(node.servers.address) as channel:
            stub = SliceServiceStub(channel)
            refused = await refusal(stub)
            assert isinstance(refused, Unavailable) and "does not lead its slice yet" in refused.message
            node.seat.may_lead.set()
            await node.until(Role.LEADING)
            assert await refusal(stub) is None


async def test_a_process_that_loses_its_lead_follows_refuses_and_leads_again(tmp_path: Path) -> None:
    producer = uuid.uuid4().bytes
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        async with grpc.aio.insecure_channel(node.servers.address) as channel:
            stub = SliceServiceStub(channel)
            session = await RawSession.open(stub, producer=producer)
            await session.change(declare("q"), bind("q", "k"))
            first = await session.change(publish("k", b"one"))
            consumer = await RawSession.open(stub)
            await consumer.attach([b"q"])
            await consumer.read_until(lambda: consumer.offsets(1) == [1])

            node.seat.may_lead.clear()
            node.seat.depose()
            for ended in (session, consumer):
                with pytest.raises(grpc.aio.AioRpcError) as cut_off:
                    await ended.read_until(lambda: False)
                error = from_rpc_error(cut_off.value)
                assert isinstance(error, Unavailable) and "outcome of this call is not known" in error.message
            await node.until(Role.FOLLOWING)
            refused = await refusal(stub)
            assert isinstance(refused, Unavailable) and "does not lead slice s01 now" in refused.message
            assert "Nothing was done" in refused.message

            node.seat.may_lead.set()
            await node.until(Role.LEADING, 2)
            again = await RawSession.open(stub, producer=producer)
            again._sequence = 1
            assert await again.change(publish("k", b"one")) == first, "its number is known: it is not stored again"
            await again.change(publish("k", b"two"))
            consumer = await RawSession.open(stub)
            await consumer.attach([b"q"])
            await consumer.read_until(lambda: consumer.offsets(1) == [1, 2])
            consumer.call.cancel()
            again.call.cancel()
        await node.stopped()
    assert node.opened == [1], "it says once that it is ready"
    assert node.seat.noted[:-1] == [None] and node.seat.noted[-1], "the clean stop tells how far the data goes"
    assert not check_path(tmp_path).problems


async def test_a_process_whose_lease_ended_unseen_before_it_served_leads_again(tmp_path: Path) -> None:
    """The process stood still after its claim: the clock says that the lease is over, and nothing has told it yet."""
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)

        def stand_still() -> None:
            if node.seat.epoch == 2:
                node.seat.lease_left_s = 0

        node.seat.before_known = stand_still
        node.seat.depose()
        await node.until(Role.LEADING, 3)
        async with grpc.aio.insecure_channel(node.servers.address) as channel:
            assert await refusal(SliceServiceStub(channel)) is None
        await node.stopped()
    assert node.served == [1, 3], "it let clients in though its lease was over"


async def test_a_role_is_given_back_only_when_its_last_write_has_ended(tmp_path: Path, disk: SlowDisk) -> None:
    """The clock ends the lease while a batch is written; it is told of while the commit loop waits for the write."""
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        async with grpc.aio.insecure_channel(node.servers.address) as channel:
            stub = SliceServiceStub(channel)
            disk.hold()
            declared = asyncio.ensure_future(stub.Declare(wire.DeclareRequest(queue=b"q"), timeout=WAIT_S))
            await asyncio.to_thread(disk.waiting.wait, WAIT_S)
            commit = next(task for task in asyncio.all_tasks() if "commit" in task.get_name())
            for _ in range(3):
                commit.cancel()
                await asyncio.sleep(0.05)
            assert not commit.done(), "it waits for the write, however often it is asked to end"
            disk.go_on.set()
            async with asyncio.timeout(WAIT_S):
                await asyncio.wait([commit])
            with pytest.raises(grpc.aio.AioRpcError):
                await declared
        node.seat.depose()
        await node.until(Role.LEADING, 2)
        await node.stopped()
    assert not check_path(tmp_path).problems


async def test_what_is_being_written_at_the_step_down_is_applied_once(tmp_path: Path, disk: SlowDisk) -> None:
    """The journal's write ends first; then the follower applies what the journal has, as a restart would."""
    producer = uuid.uuid4().bytes
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        async with grpc.aio.insecure_channel(node.servers.address) as channel:
            stub = SliceServiceStub(channel)
            session = await RawSession.open(stub, producer=producer)
            await session.change(declare("q"), bind("q", "k"))
            disk.hold()
            change = wire.Change(steps=[publish("k", b"one"), publish("k", b"two")]).SerializeToString()
            sequence = await session.write(wire.SessionRequest(change=change))
            await asyncio.to_thread(disk.waiting.wait, WAIT_S)
            node.seat.depose()
            with pytest.raises(grpc.aio.AioRpcError):
                await session.read_until(lambda: False)
            assert node.roles.role is Role.LEADING, "a write is under way: the tables are not given back yet"
            assert node.seat.claims == 1
            disk.go_on.set()
            await node.until(Role.LEADING, 2)
            again = await RawSession.open(stub, producer=producer)
            again._sequence = sequence - 1
            outcome = await again.change(publish("k", b"one"), publish("k", b"two"))
            assert [list(step.offsets) for step in outcome.steps] == [[1], [2]]
            outcome = await again.change(publish("k", b"three"))
            assert [list(step.offsets) for step in outcome.steps] == [[3]]
            again.call.cancel()
        await node.stopped()
    assert not check_path(tmp_path).problems


async def test_what_is_being_written_as_a_clean_stop_begins_is_in_its_checkpoint(
    tmp_path: Path, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's own work may write a record while the leading role ends. Nobody waits for it; a clean stop leaves
    nothing to be replayed all the same."""
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        (broker,) = node.seat.brokers
        settled, lsns = broker.settled_acks, list[int]()

        async def settled_before_the_last_write() -> ShoalError | None:
            error = await settled()
            lsns.append(broker.node.commit.applied_lsn)
            disk.hold()
            broker.commit_loop.submit(Item(Kind.CHANGE, change_of(declare("late")), lambda _: None, lambda _: None))
            await asyncio.to_thread(disk.waiting.wait, WAIT_S)
            asyncio.get_running_loop().call_later(0.1, disk.go_on.set)
            return error

        monkeypatch.setattr(broker, "settled_acks", settled_before_the_last_write)
        await node.stopped()
    last_lsn = lsns[0] + 1
    assert node.seat.noted[-1] == last_lsn
    with stopped(tmp_path) as folder:
        base = LmdbBase(folder)
        assert base.lsn == last_lsn
        base.close()
    assert not check_path(tmp_path).problems


async def test_a_disk_that_fails_during_the_step_down_ends_the_process(tmp_path: Path, disk: SlowDisk) -> None:
    """What is on the disk then is known only after a restart."""
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        async with grpc.aio.insecure_channel(node.servers.address) as channel:
            session = await RawSession.open(SliceServiceStub(channel))
            await session.change(declare("q"), bind("q", "k"))
            disk.hold(OSError(errno.EIO, "Input/output error"))
            change = wire.Change(steps=[publish("k", b"one")]).SerializeToString()
            await session.write(wire.SessionRequest(change=change))
            await asyncio.to_thread(disk.waiting.wait, WAIT_S)
            node.seat.depose()
            with pytest.raises(grpc.aio.AioRpcError):
                await session.read_until(lambda: False)
            disk.go_on.set()
            with pytest.raises(Corrupt, match="Input/output error"):
                async with asyncio.timeout(WAIT_S):
                    await node.running
            disk.error = None
    assert node.seat.claims == 1, "it did not try to lead"
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        await node.stopped()
    assert not check_path(tmp_path).problems


async def test_a_process_stops_cleanly_whatever_its_role(tmp_path: Path, disk: SlowDisk) -> None:
    async with process(tmp_path) as node:
        node.seat.may_lead.clear()
        await node.until(Role.FOLLOWING)
        await node.stopped()
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        node.seat.may_lead.clear()
        node.seat.depose()
        await node.until(Role.FOLLOWING)
        await node.stopped()
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        async with grpc.aio.insecure_channel(node.servers.address) as channel:
            session = await RawSession.open(SliceServiceStub(channel))
            await session.change(declare("q"), bind("q", "k"))
            disk.hold()
            await session.write(wire.SessionRequest(change=wire.Change(steps=[publish("k", b"x")]).SerializeToString()))
            await asyncio.to_thread(disk.waiting.wait, WAIT_S)
            node.seat.depose()
            node.stop.set()
            disk.go_on.set()
            await node.stopped()
    assert not check_path(tmp_path).problems
    async with process(tmp_path) as node:
        node.stop.set()
        await node.stopped()


async def test_a_follower_makes_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "FREEZE_LIMITS", recovery.FREEZE_LIMITS._replace(delta_age_ms=200))
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        async with grpc.aio.insecure_channel(node.servers.address) as channel:
            stub = SliceServiceStub(channel)
            await stub.Declare(wire.DeclareRequest(queue=b"q"))
        (broker,) = node.seat.brokers
        data = broker.data
        lsn = broker.node.commit.applied_lsn
        del broker
        node.seat.may_lead.clear()
        node.seat.depose()
        await node.until(Role.FOLLOWING)
        async with asyncio.timeout(WAIT_S):
            while data.store.checkpoint_lsn < lsn:  # noqa: ASYNC110 - another task's doing
                await asyncio.sleep(0.01)
        await node.stopped()


async def test_a_former_role_that_something_still_held_as_the_next_one_began_is_freed(tmp_path: Path) -> None:
    """What exists when a role begins to serve is kept from the garbage collector: it would have stayed for good."""
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        (held,) = node.seat.brokers
        node.seat.depose()
        await node.until(Role.LEADING, 2)
        del held
        gc.collect()
        assert len(node.seat.brokers) == 1
        await node.stopped()


async def change_role(node: Process, stub: SliceServiceAsyncStub, epoch: int) -> None:
    """A session consumes and publishes; then the lead is taken, and given again."""
    session = await RawSession.open(stub)
    await session.change(declare("q"), bind("q", "k"), publish("k", *(b"x" * 1000 for _ in range(100))))
    await session.attach([b"q"], window_messages=1)
    node.seat.depose()
    with pytest.raises(grpc.aio.AioRpcError):
        await session.read_until(lambda: False)
    await node.until(Role.LEADING, epoch)
    async with asyncio.timeout(WAIT_S):
        while await refusal(stub) is not None:
            pass
        while len(node.seat.brokers) > 1:  # The one before may still be about its last work, or in a circle.
            gc.collect()
            await asyncio.sleep(0.02)


async def test_nothing_grows_with_the_number_of_role_changes(tmp_path: Path) -> None:
    async with process(tmp_path) as node:
        await node.until(Role.LEADING)
        own = psutil.Process()
        found: list[tuple[int, int, int, int]] = []
        async with grpc.aio.insecure_channel(node.servers.address) as channel:
            stub = SliceServiceStub(channel)
            while await refusal(stub) is not None:
                pass
            for number in range(CHANGES + 5):
                await change_role(node, stub, number + 2)
                gc.collect()
                threads = own.num_threads()
                found.append((len(asyncio.all_tasks()), own.num_fds(), threads, len(node.seat.brokers)))
                if number == 4:
                    held_bytes = own.memory_info().rss
            grown_bytes = own.memory_info().rss - held_bytes
        await node.stopped()
    settled = found[4:]
    assert {brokers for *_, brokers in settled} == {1}, "one leading role, and none before it is kept"
    for what, numbers in zip(("tasks", "files", "threads"), zip(*settled, strict=True), strict=False):
        assert min(numbers[-5:]) <= numbers[0] + 2, (what, numbers)  # One look may meet a file that is about to close.
    assert grown_bytes < 16 << 20
    assert not check_path(tmp_path).problems
