"""The client against real etcd processes: keys, transactions, failover, and errors that say what to do."""

import asyncio
from pathlib import Path

import pytest

from shoal_contract.errors import Conflict, Malformed, Unavailable
from shoal_coordination.client import EtcdClient
from shoal_coordination.entries import (
    Delete,
    Get,
    Put,
    absent,
    mod_revision_is,
    prefix_end,
)
from shoal_coordination.options import EtcdOptions, parse_endpoints
from shoal_local.etcd import LocalEtcd

DEAD = "127.0.0.1:1"


async def test_an_entry_is_read_as_it_was_put(client: EtcdClient, prefix: bytes) -> None:
    key = prefix + b"\x00\xff"
    assert await client.get(key) is None
    created = await client.put(key, b"one")
    changed = await client.put(key, b"")
    entry = await client.get(key)
    assert entry is not None
    assert (entry.key, entry.value, entry.lease) == (key, b"", 0)
    assert (entry.create_revision, entry.mod_revision, entry.version) == (created, changed, 2)


async def test_a_prefix_has_its_keys_and_no_other(client: EtcdClient, prefix: bytes) -> None:
    for name in (b"a", b"b\xff", b"b\xff\xff", b"c"):
        await client.put(prefix + name, name)
    found = await client.range_prefix(prefix + b"b\xff")
    assert [entry.value for entry in found.entries] == [b"b\xff", b"b\xff\xff"]
    assert await client.delete(prefix, prefix_end(prefix)) == 4
    assert (await client.range_prefix(prefix)).entries == ()


def test_a_prefix_of_highest_bytes_ends_where_its_next_byte_begins() -> None:
    assert prefix_end(b"a\xff\xff") == b"b"
    assert prefix_end(b"\xff") == b"\0"


async def test_a_transaction_does_one_branch_at_one_revision(client: EtcdClient, prefix: bytes) -> None:
    a, b = prefix + b"a", prefix + b"b"
    first = await client.transact([absent(a)], [Put(a, b"1"), Put(b, b"1")], [Get(a)])
    assert first.succeeded
    second = await client.transact([absent(a)], [Put(a, b"2")], [Get(a), Get(prefix, prefix_end(prefix))])
    assert not second.succeeded
    assert [[entry.value for entry in read] for read in second.reads] == [[b"1"], [b"1", b"1"]]
    assert {entry.mod_revision for entry in second.reads[1]} == {first.revision}


async def test_each_comparison_holds_and_fails(client: EtcdClient, prefix: bytes) -> None:
    revision = await client.put(prefix, b"x")
    for holds, fails in (
        (mod_revision_is(prefix, revision), mod_revision_is(prefix, revision - 1)),
        (absent(prefix + b"other"), absent(prefix)),
        (absent(prefix + b"o", prefix + b"p"), absent(prefix, prefix_end(prefix))),
    ):
        assert (await client.transact([holds], [])).succeeded
        assert not (await client.transact([fails], [])).succeeded


async def test_of_many_compare_and_swaps_one_wins(client: EtcdClient, prefix: bytes) -> None:
    revision = await client.put(prefix, b"")
    rivals = [client.transact([mod_revision_is(prefix, revision)], [Put(prefix, b"%d" % n)]) for n in range(20)]
    done = await asyncio.gather(*rivals)
    winners = [n for n, transaction in enumerate(done) if transaction.succeeded]
    assert len(winners) == 1
    entry = await client.get(prefix)
    assert entry is not None
    assert entry.value == b"%d" % winners[0]


async def test_a_transaction_deletes(client: EtcdClient, prefix: bytes) -> None:
    created = await client.put(prefix, b"x")
    assert (await client.transact([mod_revision_is(prefix, created)], [Delete(prefix)])).succeeded
    assert await client.get(prefix) is None


async def test_a_dead_first_endpoint_is_passed_over(shared_etcd: LocalEtcd, prefix: bytes) -> None:
    async with EtcdClient(EtcdOptions((DEAD, shared_etcd.endpoint))) as client:
        await client.put(prefix, b"x")
        entry = await client.get(prefix)
        assert entry is not None


async def test_calls_go_on_after_a_restart_of_the_only_endpoint(etcd: LocalEtcd) -> None:
    async with EtcdClient(etcd.options()) as client:
        await client.put(b"a", b"kept")
        await etcd.kill()
        reading = asyncio.create_task(client.get(b"a"))
        await etcd.start()
        entry = await reading
        assert entry is not None
        assert entry.value == b"kept"
        await client.put(b"a", b"new")


async def test_without_any_endpoint_a_call_fails_in_bounded_time() -> None:
    async with EtcdClient(EtcdOptions((DEAD,))) as client, asyncio.timeout(10):
        with pytest.raises(Unavailable, match=DEAD):
            await client.put(b"a", b"b")


async def test_a_closed_client_answers_nothing(shared_etcd: LocalEtcd) -> None:
    async with EtcdClient(shared_etcd.options()) as client:
        await client.get(b"a")
    with pytest.raises(Unavailable, match="closed"):
        await client.get(b"a")


async def test_a_cancelled_call_leaves_the_client_usable(etcd: LocalEtcd) -> None:
    async with EtcdClient(etcd.options()) as client:
        calls = [asyncio.create_task(client.put(b"a", b"x")) for _ in range(50)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert await client.get(b"a") is not None


async def test_foreign_errors_become_ours(client: EtcdClient) -> None:
    with pytest.raises(Conflict, match="lease not found"):
        await client.put(b"a", b"b", lease=12345)
    with pytest.raises(Malformed, match="key is not provided"):
        await client.put(b"", b"b")


@pytest.mark.parametrize("bad", ["", "host", ":1", "host:", "host:x", "host:0", "host:65536"])
def test_a_bad_endpoint_is_named(bad: str) -> None:
    with pytest.raises(Malformed, match="endpoint"):
        EtcdOptions((bad,))


def test_endpoints_are_read_from_text_and_bounded() -> None:
    assert parse_endpoints(" a:1, b:2,") == ("a:1", "b:2")
    with pytest.raises(Malformed, match="0 etcd endpoints"):
        EtcdOptions(parse_endpoints(","))
    with pytest.raises(Malformed, match="17 etcd endpoints"):
        EtcdOptions(("a:1",) * 17)


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(EtcdOptions(("a:1",), user="u", password="secret"))


async def test_an_etcd_that_cannot_start_says_why(program: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(Unavailable, match=r"etcd did not start: .*data"):
        await LocalEtcd(tmp_path, program=program).start()
