"""The last resort for memory: above its budget a node ends silent sessions, and takes no new ones far above it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from shoal_contract.errors import ResourceExhausted
from shoal_contract.grpc_errors import from_rpc_error
from shoal_contract.wire import slice_pb2 as wire
from shoal_contract.wire.slice_pb2_grpc import SliceServiceStub
from shoal_runtime import memory_guard
from shoal_runtime.hang_up import address_of
from shoal_runtime.limits import UNREAD_ENDED_BYTES_MIN, UNREAD_READ_BYTES
from shoal_runtime.process_memory import give_back, own_bytes
from shoal_slice_node.adapters import watchman, writers
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.clock import steady_ms
from shoal_slice_node.adapters.limits import MEMORY_HIGH, MEMORY_SLACK_BYTES
from shoal_slice_node.storage import mapped_memory
from tests.runtime.passed_over import FILLER, send_until_ended
from tests.runtime.resets import connect
from tests.runtime.standing import standing

from .brokers import OPTIONS, connected, running, served
from .node_process import NodeProcess
from .raw_session import RawSession

if TYPE_CHECKING:
    from shoal_contract.wire.slice_pb2_grpc import SliceServiceAsyncStub

WAIT_S = 60
FRAMES = 50


class Held:
    """What a process seems to hold."""

    def __init__(self) -> None:
        self.bytes = 0


@asynccontextmanager
async def guarded(folder: Path, held: Held) -> AsyncIterator[tuple[Broker, SliceServiceAsyncStub]]:
    """A broker that seems to hold so much, and a stub to it."""
    async with (
        running(folder, options=replace(OPTIONS, own_bytes=lambda: held.bytes)) as broker,
        connected(broker, folder) as channel,
        asyncio.timeout(WAIT_S),
    ):
        yield broker, SliceServiceStub(channel)


async def ended_for_memory(session: RawSession, expected: bool = True) -> bool:
    """Whether the slice has ended it for that; it says nothing else meanwhile. `expected`: waits for it."""
    try:
        async with asyncio.timeout(WAIT_S / 2 if expected else 0.3):
            await session.read_until(lambda: False)
    except TimeoutError:
        return False
    except grpc.aio.AioRpcError as ended:
        error = from_rpc_error(ended)
        assert isinstance(error, ResourceExhausted) and "its budget is" in error.message
    return True


@pytest.mark.parametrize(
    ("times", "silent_ms", "idle_ends", "consumer_ends"),
    [
        (1.1, 2_000, False, False),
        (1.1, 11_000, True, False),
        (1.3, 500, False, False),
        (1.3, 2_000, True, False),
        (1.3, 11_000, True, True),
        (1.6, 2_000, True, True),
    ],
)
async def test_above_its_budget_a_node_ends_silent_sessions_and_far_above_takes_no_new_ones(
    times: float, silent_ms: int, idle_ends: bool, consumer_ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    async with guarded(tmp_path, held) as (broker, stub):
        await stub.Declare(wire.DeclareRequest(queue=b"q"))
        consumer, idle = await RawSession.open(stub), await RawSession.open(stub)
        await consumer.attach([b"q"])
        await idle.attach([])
        held.bytes = int(times * OPTIONS.memory.budget_bytes)
        now_ms = steady_ms()
        monkeypatch.setattr(writers, "steady_ms", lambda: now_ms + silent_ms)
        newcomer = await RawSession.open(stub)
        broker.watchman.guard_memory()
        broker.watchman.guard_memory()  # Consumers are looked at once no other is left.
        assert await ended_for_memory(idle, idle_ends) is idle_ends
        assert await ended_for_memory(consumer, consumer_ends) is consumer_ends
        if times > MEMORY_HIGH:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await (await RawSession.open(stub)).read_until(lambda: False)
            assert "its budget is" in str(from_rpc_error(refused.value))
            held.bytes = 0
        broker.watchman.guard_memory()
        await (await RawSession.open(stub)).attach([b"q"])
        newcomer.call.cancel()


async def test_memory_that_nobody_can_give_back_locks_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held()
    held.bytes = 1 << 40
    async with guarded(tmp_path, held) as (broker, stub):
        broker.watchman.guard_memory()
        assert broker.watchman.memory_short is not None
        now_ms = steady_ms()
        for later_ms in (19_000, 21_000, 21_000):
            monkeypatch.setattr(watchman, "steady_ms", lambda later_ms=later_ms: now_ms + later_ms)
            assert broker.watchman.memory_short is not None
            broker.watchman.guard_memory()
        assert broker.watchman.memory_short is None
        await (await RawSession.open(stub)).attach([])


async def test_memory_that_stays_is_let_be_though_connections_end_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one that ended began the time anew: new sessions were refused for good. And what was let be is what was
    there all the time, not what an attacker holds just then."""
    held = Held()
    budget_bytes = OPTIONS.memory.budget_bytes
    async with guarded(tmp_path, held) as (broker, _):
        began_ms = steady_ms()
        for number in range(22):
            monkeypatch.setattr(watchman, "steady_ms", lambda number=number: began_ms + 1_000 * number)
            held.bytes = (3 if number % 2 else 2) * budget_bytes
            broker.watchman.guard.ended += 1
            broker.watchman.guard_memory()
        broker.watchman.guard_memory()
        assert broker.watchman.memory_short is not None and broker.watchman.guard.short_bytes < 2.2 * budget_bytes
        held.bytes = 2 * budget_bytes
        broker.watchman.guard_memory()
        assert broker.watchman.memory_short is None


async def test_what_is_held_for_long_does_not_become_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound followed what an attacker held: in three strokes 1,500 MB of 512, and nobody was ended."""
    held = Held()
    held.bytes = int(2 * OPTIONS.memory.budget_bytes)
    async with guarded(tmp_path, held) as (broker, stub):
        now_ms = steady_ms()
        broker.watchman.guard_memory()
        monkeypatch.setattr(watchman, "steady_ms", lambda: now_ms + 30_000)
        broker.watchman.guard_memory()
        broker.watchman.guard_memory()
        assert broker.watchman.memory_short is None, "it is let be"
        monkeypatch.undo()
        session = await RawSession.open(stub)
        await session.attach([])
        monkeypatch.setattr(writers, "steady_ms", lambda: now_ms + 60_000)
        broker.watchman.guard_memory()
        open_now = broker.writers.sessions.values()
        assert len(open_now) == 1, "silent ones ended a second after they had opened, for ever"
        assert not any(one.ended_by for one in open_now)
        connections = [address_of(one) for one in broker.writers._connections.values()]
        monkeypatch.setattr(broker.watchman.unread, "holding", connections)
        broker.watchman.guard_memory()
        assert await ended_for_memory(session), "but one ends that may hold some of it"
        other = await RawSession.open(stub)
        await other.attach([])
        monkeypatch.setattr(writers, "steady_ms", lambda: now_ms + 62_000)
        held.bytes += 2 * MEMORY_SLACK_BYTES
        broker.watchman.guard_memory()
        assert await ended_for_memory(other), "and all silent ones where more is held"


async def test_who_opened_last_ends_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchman, "SESSIONS_ENDED_PER_LOOK", 1)
    held = Held()
    async with guarded(tmp_path, held) as (broker, stub):
        old, new = await RawSession.open(stub), await RawSession.open(stub)
        await old.attach([])
        await new.attach([])
        await old.attach([])
        held.bytes = OPTIONS.memory.budget_bytes + 1
        now_ms = steady_ms()
        monkeypatch.setattr(writers, "steady_ms", lambda: now_ms + 11_000)
        broker.watchman.guard_memory()
        held.bytes = 0
        assert await ended_for_memory(new) and not await ended_for_memory(old, expected=False)


def test_memory_of_its_own_is_known_and_what_was_freed_is_given_back() -> None:
    assert 1 << 20 < own_bytes() <= mapped_memory.resident_bytes()
    give_back()


async def test_far_above_its_budget_connections_end_that_hold_what_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the transport holds of calls that wait to be read is in no account. No session is silent meanwhile, however
    slow the machine is: a silent one without a queue ends, too, while so much is held."""
    monkeypatch.setattr(memory_guard, "FUTILE_PARTS", 1_000)
    now_ms = steady_ms()
    monkeypatch.setattr(writers, "steady_ms", lambda: now_ms)
    held = Held()
    options = replace(OPTIONS, own_bytes=lambda: held.bytes)
    async with (
        running(tmp_path, options=options) as broker,
        served(broker, tmp_path) as address,
        grpc.aio.insecure_channel(address) as channel,
        asyncio.timeout(WAIT_S),
    ):
        honest = await RawSession.open(SliceServiceStub(channel))
        await honest.attach([])
        host, _, port = address.rpartition(":")
        greedy = await asyncio.to_thread(connect, host, int(port))
        await asyncio.to_thread(greedy.sendall, FRAMES * FILLER)
        greedy.settimeout(WAIT_S)
        while not standing(broker.watchman.unread, UNREAD_ENDED_BYTES_MIN):
            await asyncio.to_thread(broker.watchman.unread.look)
        held.bytes = int(1.3 * OPTIONS.memory.budget_bytes)
        with contextlib.suppress(ConnectionError):
            while await asyncio.to_thread(greedy.recv, 1 << 16):
                pass
        held.bytes = 0
        await honest.attach([])
        greedy.close()


async def test_the_first_frame_of_a_session_counts_as_read(tmp_path: Path) -> None:
    """It counted as something that nobody reads: who opened many sessions was one to be hung up on."""
    async with guarded(tmp_path, Held()) as (broker, stub):
        session = await RawSession.open(stub)
        await session.attach([])
        assert sum(broker.watchman.unread._read.values()) > 2 * UNREAD_READ_BYTES


@pytest.mark.slow
async def test_buffers_that_small_payloads_came_in_do_not_fill_a_node(tmp_path: Path) -> None:
    """One connection with 15 calls that nobody had read took 1,400 MiB of 512 in 5 s, by 24 bytes a buffer."""
    node = await NodeProcess.start(tmp_path, "--memory-mib", "320")
    try:
        path = "/shoal.v1.SliceService/Publish"
        await asyncio.to_thread(send_until_ended, node.address, path, 15, 2 << 30)
        async with grpc.aio.insecure_channel(node.address) as channel:
            await SliceServiceStub(channel).Declare(wire.DeclareRequest(queue=b"q"))
    finally:
        await node.kill()
