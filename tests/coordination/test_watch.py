"""Watches against real etcd processes: nothing lost and nothing twice, through kills, compactions and silence."""

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from shoal_coordination.client import EtcdClient
from shoal_coordination.entries import Delete, Put
from shoal_coordination.options import EtcdOptions
from shoal_coordination.watch import Changes, Snapshot, watch_prefix
from shoal_coordination.wire import rpc_pb2 as wire
from shoal_local.etcd import LocalEtcd
from shoal_runtime.tasks import Tasks

_log = logging.getLogger(__name__)

WAIT_S = 60
Updates = AsyncGenerator[Snapshot | Changes, None]


async def next_of(updates: Updates) -> Snapshot | Changes:
    async with asyncio.timeout(WAIT_S):
        return await anext(updates)


async def compact(client: EtcdClient, revision: int) -> None:
    """Forgets all history below `revision`, as an operator's etcdctl would."""
    async with client.use() as endpoint:
        await endpoint.kv.Compact(wire.CompactionRequest(revision=revision, physical=True), timeout=WAIT_S)


async def values_until(updates: Updates, last: bytes) -> list[bytes]:
    """Values of all changes up to the one that put `last`; a snapshot on the way is a failure."""
    values: list[bytes] = []
    while last not in values:
        update = await next_of(updates)
        assert isinstance(update, Changes)
        values += [change.entry.value for change in update.changes]
    return values


async def test_first_all_entries_then_each_change(client: EtcdClient, prefix: bytes) -> None:
    await client.put(prefix + b"a", b"1")
    await client.put(prefix[:-1], b"outside")
    async with aclosing(watch_prefix(client, prefix)) as updates:
        first = await next_of(updates)
        assert isinstance(first, Snapshot)
        assert [(entry.key, entry.value) for entry in first.entries] == [(prefix + b"a", b"1")]
        revision = await client.put(prefix + b"b", b"2")
        second = await next_of(updates)
        assert isinstance(second, Changes)
        assert [(change.entry.value, change.deleted) for change in second.changes] == [(b"2", False)]
        assert second.revision == revision
        await client.delete(prefix + b"a")
        third = await next_of(updates)
        assert isinstance(third, Changes)
        assert [(change.entry.key, change.deleted) for change in third.changes] == [(prefix + b"a", True)]


async def test_one_transaction_is_one_update(client: EtcdClient, prefix: bytes) -> None:
    await client.put(prefix + b"old", b"")
    async with aclosing(watch_prefix(client, prefix)) as updates:
        await next_of(updates)
        puts = [Put(prefix + b"%d" % n, b"x") for n in range(50)]
        await client.transact([], [*puts, Delete(prefix + b"old")])
        update = await next_of(updates)
        assert isinstance(update, Changes)
        assert len(update.changes) == 51


class EtcdLostAWrite(Exception):
    """A kill took from etcd what it had confirmed (known of 3.5.0-3.5.2): the watch had nothing to report."""


@pytest.mark.slow
async def test_kills_lose_no_event_and_repeat_none(etcd: LocalEtcd) -> None:
    """A writer goes on through three kill -9; each write that etcd kept is seen exactly once, in order."""
    for prefix in (b"/w0/", b"/w1/", b"/w2/", b"/w3/"):
        try:
            await watch_through_kills(etcd, prefix)
            return
        except EtcdLostAWrite as loss:
            _log.info("%s", loss)
    pytest.fail("etcd lost writes in every attempt: the watch was never put to the test")


async def watch_through_kills(etcd: LocalEtcd, prefix: bytes) -> None:
    links: list[bool] = []
    key, number = prefix + b"k", 0
    async with (
        EtcdClient(etcd.options()) as client,
        EtcdClient(etcd.options()) as other,
        Tasks("test") as tasks,
        aclosing(watch_prefix(client, prefix, links.append)) as updates,
    ):
        await next_of(updates)
        seen = tasks.start("watch", values_until(updates, b"last"))
        for _ in range(3):
            for _ in range(20):
                await other.put(key, b"%d" % number)
                number += 1
            await etcd.kill()
            await etcd.start()
            kept = await other.get(key)
            if kept is None or kept.version != number:
                raise EtcdLostAWrite(f"etcd confirmed {number} writes and kept {kept}")
        await other.put(key, b"last")
        assert await seen == [*(b"%d" % n for n in range(number)), b"last"]
    assert links[0] is True
    assert links[-1] is True
    assert links.count(False) == links.count(True) - 1 >= 1


async def test_a_kill_before_the_watch_read_anything_loses_nothing(etcd: LocalEtcd) -> None:
    async with (
        EtcdClient(etcd.options()) as client,
        EtcdClient(etcd.options()) as other,
        aclosing(watch_prefix(client, b"/w/")) as updates,
    ):
        await next_of(updates)
        for number in range(100):
            await other.put(b"/w/k", b"%d" % number)
        await etcd.kill()
        await etcd.start()
        await other.put(b"/w/k", b"last")
        assert await values_until(updates, b"last") == [*(b"%d" % n for n in range(100)), b"last"]


async def test_a_compaction_past_the_watch_makes_it_read_again(etcd: LocalEtcd) -> None:
    async with (
        EtcdClient(etcd.options()) as client,
        EtcdClient(etcd.options()) as other,
        aclosing(watch_prefix(client, b"/w/")) as updates,
    ):
        await next_of(updates)
        await other.put(b"/w/gone", b"1")
        await etcd.stop()  # ends the stream before the watch was read, so that it must resume
        await etcd.start()
        await other.delete(b"/w/gone")
        await other.put(b"/w/k", b"1")
        await compact(other, await other.put(b"/w/k", b"2"))
        update = await next_of(updates)
        while isinstance(update, Changes):  # what the stream had delivered before it ended
            assert update.changes[0].entry.key == b"/w/gone"
            update = await next_of(updates)
        assert [(entry.key, entry.value) for entry in update.entries] == [(b"/w/k", b"2")]
        await other.put(b"/w/k", b"3")
        assert await values_until(updates, b"3") == [b"3"]


async def test_a_compaction_at_what_was_seen_last_loses_nothing_and_reads_nothing_again(etcd: LocalEtcd) -> None:
    async with (
        EtcdClient(etcd.options()) as client,
        EtcdClient(etcd.options()) as other,
        aclosing(watch_prefix(client, b"/w/")) as updates,
    ):
        await next_of(updates)
        seen = await other.put(b"/w/k", b"1")
        assert await values_until(updates, b"1") == [b"1"]
        await etcd.stop()  # nobody reads the watch: it resumes below, after the compaction
        await etcd.start()
        await compact(other, seen)
        await other.put(b"/w/k", b"2")
        assert await values_until(updates, b"2") == [b"2"]


async def test_a_deletion_that_a_compaction_swallowed_is_learned_all_the_same(etcd: LocalEtcd) -> None:
    """A compaction at the revision of a deletion forgets that it happened."""
    async with (
        EtcdClient(etcd.options()) as client,
        EtcdClient(etcd.options()) as other,
        aclosing(watch_prefix(client, b"/w/")) as updates,
    ):
        await next_of(updates)
        await other.put(b"/w/k", b"1")
        assert await values_until(updates, b"1") == [b"1"]
        await etcd.stop()
        await etcd.start()
        await other.delete(b"/w/k")
        found = await other.range_prefix(b"/w/")
        await compact(other, found.revision)
        update = await next_of(updates)
        assert not update.entries if isinstance(update, Snapshot) else update.changes[-1].deleted


async def test_a_compaction_below_the_watch_changes_nothing(client: EtcdClient, prefix: bytes) -> None:
    async with aclosing(watch_prefix(client, prefix)) as updates:
        await next_of(updates)
        seen = await client.put(prefix, b"1")
        assert await values_until(updates, b"1") == [b"1"]
        await compact(client, seen)
        await client.put(prefix, b"2")
        assert await values_until(updates, b"2") == [b"2"]


async def test_a_store_older_than_the_watch_is_read_again(etcd: LocalEtcd) -> None:
    async with EtcdClient(etcd.options()) as client:
        for _ in range(5):
            await client.put(b"/w/k", b"before")
        async with aclosing(watch_prefix(client, b"/w/")) as updates:
            await next_of(updates)
            await etcd.stop()
            (etcd.folder / "data").rename(etcd.folder / "lost")
            await etcd.start()
            update = await next_of(updates)
            assert isinstance(update, Snapshot)
            assert update.entries == ()


async def test_a_store_with_another_history_that_is_past_the_watch_is_read_again(etcd: LocalEtcd) -> None:
    """Restored from a backup, and written to before the watch is back: its revision alone shows nothing."""
    data = etcd.folder / "data"
    async with EtcdClient(etcd.options()) as client:
        await client.put(b"/w/k", b"kept")
        await etcd.stop()
        shutil.copytree(data, etcd.folder / "backup")
        await etcd.start()
        await client.put(b"/w/k", b"lost")
        async with aclosing(watch_prefix(client, b"/w/")) as updates:
            first = await next_of(updates)
            assert isinstance(first, Snapshot) and [entry.value for entry in first.entries] == [b"lost"]
            await etcd.stop()
            data.rename(etcd.folder / "lost")
            (etcd.folder / "backup").rename(data)
            await etcd.start()
            for _ in range(3):  # Nothing of the watch's prefix changes from now on.
                assert await client.put(b"/other", b"x") >= first.revision
            update = await next_of(updates)
            assert isinstance(update, Snapshot) and [entry.value for entry in update.entries] == [b"kept"]


@pytest.mark.slow
async def test_a_silent_etcd_is_noticed_and_the_watch_goes_on_after_it(etcd: LocalEtcd) -> None:
    """SIGSTOP: the connection stands, nothing comes."""
    lost, back = asyncio.Event(), asyncio.Event()

    def on_link(linked: bool) -> None:
        (back if linked and lost.is_set() else lost if not linked else asyncio.Event()).set()

    async with (
        EtcdClient(etcd.options()) as client,
        Tasks("test") as tasks,
        aclosing(watch_prefix(client, b"/w/", on_link)) as updates,
    ):
        await next_of(updates)
        seen = tasks.start("watch", values_until(updates, b"last"))
        os.kill(etcd.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(WAIT_S):
                await lost.wait()
        finally:
            os.kill(etcd.pid, signal.SIGCONT)
        async with asyncio.timeout(WAIT_S):
            await back.wait()
        await client.put(b"/w/k", b"last")
        assert await seen == [b"last"]


async def test_a_quiet_watch_stays_linked(client: EtcdClient, prefix: bytes) -> None:
    """Progress answers count as life: without them the watch would connect anew after SILENCE_S_MAX."""
    links: list[bool] = []
    async with aclosing(watch_prefix(client, prefix, links.append)) as updates:
        await next_of(updates)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(7):
                await anext(updates)
    assert links == [True]


async def test_a_watch_passes_over_a_dead_endpoint(shared_etcd: LocalEtcd, prefix: bytes) -> None:
    async with (
        EtcdClient(EtcdOptions(("127.0.0.1:1", shared_etcd.endpoint))) as client,
        aclosing(watch_prefix(client, prefix)) as updates,
    ):
        await next_of(updates)
        await client.put(prefix, b"1")
        assert await values_until(updates, b"1") == [b"1"]
