"""Leases against real etcd processes: kept while wanted, lost in time, and known to be lost before etcd thinks so."""

import asyncio
import os
import signal
import threading
import time
from contextlib import aclosing

import pytest

from shoal_contract.errors import OutOfRange
from shoal_coordination.client import EtcdClient
from shoal_coordination.lease import grant_lease
from shoal_coordination.options import EtcdOptions
from shoal_coordination.watch import Snapshot, watch_prefix
from shoal_local.etcd import LocalEtcd
from tests.coordination.lease_holder import holding

WAIT_S = 60
TTL_S = 2


async def until_deleted(client: EtcdClient, key: bytes) -> None:
    async with aclosing(watch_prefix(client, key)) as updates:
        async for update in updates:
            if not update.entries if isinstance(update, Snapshot) else update.changes[-1].deleted:
                return


async def test_a_kept_lease_outlives_its_time_to_live(client: EtcdClient, prefix: bytes) -> None:
    lost = asyncio.Event()
    lease = await grant_lease(client, TTL_S, lost.set)
    await client.put(prefix, b"x", lease=lease.id)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        assert 0 < lease.remaining_s <= TTL_S
        assert await client.get(prefix) is not None
        await asyncio.sleep(0.05)
    assert not lost.is_set()
    await lease.revoke()
    assert await client.get(prefix) is None
    assert lease.remaining_s == 0
    assert not lost.is_set()


async def test_a_lease_whose_keeper_is_gone_expires_with_its_keys(client: EtcdClient, prefix: bytes) -> None:
    lease = await client.grant_lease(TTL_S)
    await client.put(prefix, b"x", lease=lease)
    assert await client.lease_left_s(lease) in (1, 2)
    async with asyncio.timeout(WAIT_S):
        await until_deleted(client, prefix)
    assert await client.lease_left_s(lease) == 0


async def test_a_lease_revoked_by_another_is_known_to_be_lost(client: EtcdClient) -> None:
    lost = asyncio.Event()
    lease = await grant_lease(client, 3, lost.set)
    await client.revoke_lease(lease.id)
    async with asyncio.timeout(WAIT_S):
        await lost.wait()
    assert lease.remaining_s == 0


@pytest.mark.parametrize("silence", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_lease_is_lost_here_when_etcd_is_away_for_its_time(etcd: LocalEtcd, silence: signal.Signals) -> None:
    """Never later than its time to live after etcd was last heard."""
    lost: list[float] = []
    async with EtcdClient(etcd.options()) as client:
        lease = await grant_lease(client, 3, lambda: lost.append(time.monotonic()))
        os.kill(etcd.pid, silence)
        away_s = time.monotonic()
        async with asyncio.timeout(WAIT_S):
            while lease.remaining_s:  # noqa: ASYNC110 - a clock has no event
                await asyncio.sleep(0.01)
            assert time.monotonic() - away_s <= 3.5
            while not lost:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert lease.remaining_s == 0
        if silence is signal.SIGSTOP:
            os.kill(etcd.pid, signal.SIGCONT)
        await lease.revoke()
        assert len(lost) == 1


async def test_a_short_absence_of_etcd_does_not_lose_a_lease(etcd: LocalEtcd) -> None:
    lost = asyncio.Event()
    async with EtcdClient(etcd.options()) as client:
        lease = await grant_lease(client, 10, lost.set)
        await client.put(b"k", b"x", lease=lease.id)
        await etcd.kill()
        await etcd.start()
        before_s = lease.remaining_s
        async with asyncio.timeout(WAIT_S):
            while lease.remaining_s <= before_s:  # noqa: ASYNC110 - grows with a renewal only; a clock has no event
                await asyncio.sleep(0.02)
        assert not lost.is_set()
        assert await client.get(b"k") is not None
        await lease.revoke()


async def test_a_lease_is_kept_by_another_endpoint_when_one_is_dead(shared_etcd: LocalEtcd, prefix: bytes) -> None:
    lost = asyncio.Event()
    async with EtcdClient(EtcdOptions(("127.0.0.1:1", shared_etcd.endpoint))) as client:
        lease = await grant_lease(client, TTL_S, lost.set)
        await client.put(prefix, b"x", lease=lease.id)
        until = time.monotonic() + 2 * TTL_S
        while time.monotonic() < until:
            assert await client.get(prefix) is not None
            await asyncio.sleep(0.05)
        assert lease.remaining_s > 0
        await lease.revoke()


async def test_a_lease_too_short_to_keep_is_refused(client: EtcdClient) -> None:
    with pytest.raises(OutOfRange, match="the least is 2 s"):
        await grant_lease(client, 1, lambda: None)


@pytest.mark.parametrize("how", ["revoke", "abandon"])
async def test_an_end_leaves_no_thread_even_when_etcd_is_silent(etcd: LocalEtcd, how: str) -> None:
    """The thread waits for a stopped etcd's answer: it ends at once all the same."""
    lost: list[None] = []
    async with EtcdClient(etcd.options()) as client:
        lease = await grant_lease(client, 9, lambda: lost.append(None))
        keeper = next(thread for thread in threading.enumerate() if thread.name == f"lease {lease.id:x}")
        os.kill(etcd.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(WAIT_S):
                while lease.remaining_s > 5.8:  # noqa: ASYNC110 - by then the renewal, due at 6, has been sent
                    await asyncio.sleep(0.01)
            ending = asyncio.ensure_future(lease.abandon() if how == "abandon" else lease.revoke())
            began_s = time.monotonic()
            async with asyncio.timeout(WAIT_S):
                while keeper.is_alive():  # noqa: ASYNC110 - a thread has no event here
                    await asyncio.sleep(0.01)
            assert time.monotonic() - began_s < 2, "it waited for the call's end"
            assert lease.remaining_s == 0
        finally:
            os.kill(etcd.pid, signal.SIGCONT)
        await ending
    assert not lost


@pytest.mark.parametrize("work", ["sleep", "compute"])
async def test_a_process_whose_loop_is_blocked_keeps_its_lease(
    shared_etcd: LocalEtcd, client: EtcdClient, prefix: bytes, work: str
) -> None:
    """For three times its time to live, in a sleep that blocks the loop, or in Python code that never yields."""
    async with holding(shared_etcd.options(), TTL_S + 1) as holder:
        await client.put(prefix, b"x", lease=holder.lease)
        told = await holder.ask(f"{work} {3 * (TTL_S + 1)}")
        assert float(told) > 0, "it thinks that its lease is over"
        assert await client.get(prefix) is not None, "etcd let the lease expire"
        assert holder.losses == 0


async def test_a_process_that_was_stopped_knows_at_once_that_its_lease_is_over(
    shared_etcd: LocalEtcd, client: EtcdClient, prefix: bytes
) -> None:
    async with holding(shared_etcd.options(), TTL_S) as holder:
        await client.put(prefix, b"x", lease=holder.lease)
        holder.process.send_signal(signal.SIGSTOP)
        async with asyncio.timeout(WAIT_S):
            await until_deleted(client, prefix)
        holder.write("left")
        holder.process.send_signal(signal.SIGCONT)
        assert float(await holder.answer()) == 0
        while not holder.losses:
            await holder.ask("left")
        for _ in range(20):
            assert float(await holder.ask("left")) == 0
        assert holder.losses == 1


async def test_a_lease_in_trouble_does_not_keep_its_process_from_ending(etcd: LocalEtcd) -> None:
    async with holding(etcd.options(), 9) as holder:
        os.kill(etcd.pid, signal.SIGSTOP)
        try:
            while float(await holder.ask("left")) > 5.8:  # the renewal, due at 6, has been sent by then
                pass
            began_s = time.monotonic()
            holder.write("end")
            async with asyncio.timeout(WAIT_S):
                assert await holder.process.wait() == 0
            assert time.monotonic() - began_s < 8, "it waited for its lease's thread"
        finally:
            os.kill(etcd.pid, signal.SIGCONT)


async def test_a_lease_ends_with_its_event_loop(shared_etcd: LocalEtcd, client: EtcdClient, prefix: bytes) -> None:
    """A process may live on without the loop that its lease belongs to: the lease must not."""
    async with holding(shared_etcd.options(), TTL_S) as holder:
        await client.put(prefix, b"x", lease=holder.lease)
        assert await holder.ask("close") == "closed"
        async with asyncio.timeout(WAIT_S):
            await until_deleted(client, prefix)
