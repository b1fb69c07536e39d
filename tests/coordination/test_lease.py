"""Leases against real etcd processes: kept while wanted, lost in time, and known to be lost before etcd thinks so."""

import asyncio
import os
import signal
import time
from contextlib import aclosing

import pytest

from shoal_contract.errors import OutOfRange
from shoal_coordination.client import EtcdClient
from shoal_coordination.lease import grant_lease
from shoal_coordination.local_etcd import LocalEtcd
from shoal_coordination.watch import Snapshot, watch_prefix

WAIT_S = 30


async def until_deleted(client: EtcdClient, key: bytes) -> None:
    async with aclosing(watch_prefix(client, key)) as updates:
        async for update in updates:
            if not update.entries if isinstance(update, Snapshot) else update.changes[-1].deleted:
                return


async def test_a_kept_lease_outlives_its_time_to_live(client: EtcdClient, prefix: bytes) -> None:
    lost = asyncio.Event()
    lease = await grant_lease(client, 2, lost.set)
    await client.put(prefix, b"x", lease=lease.id)
    until = time.monotonic() + 5
    while time.monotonic() < until:
        assert 0 < lease.left_s <= 2
        assert await client.get(prefix) is not None
        await asyncio.sleep(0.05)
    assert not lost.is_set()
    await lease.revoke()
    assert await client.get(prefix) is None
    assert lease.left_s == 0
    assert not lost.is_set()


async def test_a_lease_whose_keeper_is_gone_expires_with_its_keys(client: EtcdClient, prefix: bytes) -> None:
    lease = await client.grant_lease(2)
    await client.put(prefix, b"x", lease=lease)
    assert await client.lease_left_s(lease) in (1, 2)
    async with asyncio.timeout(WAIT_S):
        await until_deleted(client, prefix)
    assert await client.lease_left_s(lease) == 0
    assert await client.renew_lease(lease, 2) == 0


async def test_a_lease_revoked_by_another_is_known_to_be_lost(client: EtcdClient) -> None:
    lost = asyncio.Event()
    lease = await grant_lease(client, 3, lost.set)
    await client.revoke_lease(lease.id)
    async with asyncio.timeout(WAIT_S):
        await lost.wait()
    assert lease.left_s == 0


@pytest.mark.parametrize("silence", [signal.SIGSTOP, signal.SIGKILL], ids=["stopped", "killed"])
async def test_a_lease_is_lost_here_when_etcd_is_away_for_its_time(etcd: LocalEtcd, silence: signal.Signals) -> None:
    """Never later than its time to live after etcd was last heard."""
    lost = asyncio.Event()
    async with EtcdClient(etcd.options()) as client:
        lease = await grant_lease(client, 3, lost.set)
        os.kill(etcd.pid, silence)
        away_s = time.monotonic()
        async with asyncio.timeout(WAIT_S):
            await lost.wait()
        assert time.monotonic() - away_s <= 3.5
        assert lease.left_s == 0
        if silence is signal.SIGSTOP:
            os.kill(etcd.pid, signal.SIGCONT)
        await lease.revoke()


async def test_a_short_absence_of_etcd_does_not_lose_a_lease(etcd: LocalEtcd) -> None:
    lost = asyncio.Event()
    async with EtcdClient(etcd.options()) as client:
        lease = await grant_lease(client, 10, lost.set)
        await client.put(b"k", b"x", lease=lease.id)
        await etcd.kill()
        await etcd.start()
        before_s = lease.left_s
        async with asyncio.timeout(WAIT_S):
            while lease.left_s <= before_s:  # noqa: ASYNC110 - grows with a renewal only; a clock has no event
                await asyncio.sleep(0.02)
        assert not lost.is_set()
        assert await client.get(b"k") is not None
        await lease.revoke()


async def test_a_lease_too_short_to_keep_is_refused(client: EtcdClient) -> None:
    with pytest.raises(OutOfRange, match="the least is 2 s"):
        await grant_lease(client, 1, lambda: None)
