"""Whose data a folder holds: looked at before anything is changed, refused by name, kept over restarts."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_contract.data_identity import DataIdentity
from shoal_contract.errors import Conflict, Corrupt, Fenced
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_coordination.cluster_watch import first_view
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.leadership import note_lsn
from shoal_coordination.records import NodeRecord, SliceRecord
from shoal_slice_node.adapters.claiming import owned_bytes
from shoal_slice_node.adapters.joining import Member
from shoal_slice_node.adapters.limits import DELTA_ROWS_MAX
from shoal_slice_node.adapters.recovery import Found, Recovered, look, recover, standalone_identity
from shoal_slice_node.storage.lmdb_layout import open_environment

ALONE = DataIdentity("", "s01", "n01", "a" * 32)


async def made(folder: Path, identity: DataIdentity = ALONE) -> None:
    await (await recover(folder, identity)).close()


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock.mdb"}


async def test_a_folder_says_whose_data_it_holds_and_looking_changes_nothing(tmp_path: Path) -> None:
    assert look(tmp_path) is None and look(tmp_path / "none") is None
    await made(tmp_path)
    before = files_of(tmp_path)
    assert look(tmp_path) == Found(ALONE, 0)
    assert files_of(tmp_path) == before
    shutil.rmtree(tmp_path / STORE_FOLDER)
    assert look(tmp_path) == Found(ALONE, 0), "its journal alone says it, too"


async def test_store_and_journal_of_different_nodes_do_not_belong_together(tmp_path: Path) -> None:
    await made(tmp_path / "a")
    await made(tmp_path / "b", DataIdentity("", "s02", "n02", "b" * 32))
    shutil.rmtree(tmp_path / "a" / JOURNAL_FOLDER)
    shutil.copytree(tmp_path / "b" / JOURNAL_FOLDER, tmp_path / "a" / JOURNAL_FOLDER)
    with pytest.raises(Conflict, match=r"put together from two nodes' data: its store is of slice s01.* of slice s02"):
        look(tmp_path / "a")


def test_a_node_alone_refuses_what_is_not_its_own() -> None:
    assert standalone_identity(Found(ALONE, 9), "s01", "n01") == ALONE
    fresh = standalone_identity(None, "s01", "n01")
    assert (fresh.slice, fresh.node, fresh.cluster_id) == ("s01", "n01", "") and len(fresh.incarnation) == 32
    assert fresh.incarnation != standalone_identity(None, "s01", "n01").incarnation
    for other in (DataIdentity("", "s02", "n01", "a" * 32), DataIdentity("c" * 32, "s01", "n01", "a" * 32)):
        with pytest.raises(Conflict, match="the folder holds the data of slice"):
            standalone_identity(Found(other, 0), "s01", "n01")


class Cluster:
    """One slice, s01, and folders that would serve it."""

    def __init__(self, client: EtcdClient, cluster: str) -> None:
        self.client = client
        self.cluster = cluster

    async def joined(
        self, folder: Path, slice_name: str = "s01", node: str = "n01", accept_empty: bool = False
    ) -> tuple[Member, Recovered, SliceRecord]:
        """The member, what it recovered, and the slice's record as it claimed it."""
        record = NodeRecord(node, "127.0.0.1:1", slice_name)
        member = Member(self.client, self.cluster, record, folder, accept_empty, DELTA_ROWS_MAX)
        async with asyncio.timeout(60):
            recovered = await member.open()
            try:
                await member.claim(recovered.replica.state)
            except BaseException:
                await recovered.close()
                raise
        assert member.claimed is not None
        return member, recovered, member.claimed

    async def once(self, folder: Path, accept_empty: bool = False, node: str = "n01") -> tuple[int, str]:
        """Joins and leaves. Returns epoch and incarnation."""
        member, recovered, claimed = await self.joined(folder, node=node, accept_empty=accept_empty)
        await recovered.close()
        await member.resign(None)
        return claimed.epoch, claimed.incarnation


@pytest.fixture
async def one(client: EtcdClient, cluster: str) -> Cluster:
    await create_cluster(client, cluster, ["s01", "s02"], 8)
    return Cluster(client, cluster)


async def test_a_slice_goes_on_with_its_data_and_refuses_to_begin_without(one: Cluster, tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    epoch, life = await one.once(first)
    assert await one.once(first) == (epoch + 1, life)
    with pytest.raises(Conflict, match=f"data of slice s01 is missing at {second}.*--accept-empty"):
        await one.once(second)
    assert not any(second.rglob("*")), "nothing was made there"
    shutil.copytree(first, second / "s01")
    with pytest.raises(Conflict, match=f"is missing at {second}, but {second}/s01 has a store .* Move what is in"):
        await one.once(second)
    shutil.rmtree(second)
    (second / STORE_FOLDER).mkdir(parents=True)
    open_environment(second / STORE_FOLDER, readonly=False).close()
    with pytest.raises(Conflict, match=f"data of slice s01 is missing at {second}.*--accept-empty"):
        await one.once(second)
    new_epoch, new_life = await one.once(second, accept_empty=True)
    assert new_epoch > epoch + 1 and new_life != life
    with pytest.raises(Conflict, match="of another life of slice s01"):
        await one.once(first)
    with pytest.raises(Conflict, match="of another life of slice s01"):
        await one.once(first, accept_empty=True)


async def test_a_folder_below_is_data_too_deep_only_where_it_has_a_journal_and_data_is_missing(
    one: Cluster, tmp_path: Path
) -> None:
    """A backup that lies there keeps no slice from its first start, nor from one that accepts an empty folder."""
    await made(tmp_path / "backup")
    first = tmp_path / "first"
    shutil.copytree(tmp_path / "backup", first / "backup")
    assert (await one.once(first))[0] == 1, "no data can be missing yet"
    second = tmp_path / "second"
    shutil.copytree(tmp_path / "backup", second / "backup")
    with pytest.raises(Conflict, match=f"is missing at {second}, but {second}/backup has a store and a journal"):
        await one.once(second)
    shutil.copytree(second, tmp_path / "third")
    assert (await one.once(second, accept_empty=True))[0] > 1, "an operator said so"
    shutil.rmtree(tmp_path / "third" / "backup" / JOURNAL_FOLDER)
    with pytest.raises(Conflict, match=f"data of slice s01 is missing at {tmp_path / 'third'}.*--accept-empty"):
        await one.once(tmp_path / "third")


async def test_data_of_another_slice_node_or_cluster_is_refused_by_name(
    one: Cluster, client: EtcdClient, tmp_path: Path
) -> None:
    await one.once(tmp_path)
    with pytest.raises(Conflict, match=r"of slice s01 of cluster .*; slice s02 was told to use it"):
        await one.joined(tmp_path, slice_name="s02")
    with pytest.raises(Conflict, match="of node n01, slice s01; node n02 was told to use it"):
        await one.joined(tmp_path, node="n02")
    await create_cluster(client, f"{one.cluster}-other", ["s01"], 8)
    other = Cluster(client, f"{one.cluster}-other")
    with pytest.raises(Conflict, match="of another cluster, with id"):
        await other.once(tmp_path)
    with pytest.raises(Conflict, match="of another cluster, with id"):
        await other.once(tmp_path, accept_empty=True)


async def test_a_running_node_leads_no_other_cluster_that_took_the_place_of_its_own(
    one: Cluster, client: EtcdClient, tmp_path: Path
) -> None:
    """etcd was emptied, and `create` was called without `--id`: nodes led on under the new id until their next start,
    and then the old one was refused."""
    member, recovered, claimed = await one.joined(tmp_path)
    try:
        await member.resign(None)
        prefix = ClusterKeys(one.cluster).prefix
        await client.delete(prefix, prefix[:-1] + b"0")
        await create_cluster(client, one.cluster, ["s01", "s02"], 8)
        with pytest.raises(Conflict, match=r"of another cluster, with id .* `python -m shoal_coordination create --id"):
            await member.claim(recovered.replica.state)
        broker: Any = SimpleNamespace(courier=SimpleNamespace(follow=lambda view: None))
        with pytest.raises(Fenced, match="of another cluster now"):
            await asyncio.wait_for(member.assign(broker, asyncio.Event()), 60)
    finally:
        await recovered.close()
    assert claimed.epoch


@pytest.mark.parametrize(("slices", "partitions"), [(["s02", "s01"], 8), (["s01", "s02"], 16), (["s01", "s02"], 8)])
async def test_a_map_that_was_made_anew_must_be_that_of_before(
    slices: list[str], partitions: int, one: Cluster, client: EtcdClient, tmp_path: Path
) -> None:
    """Slices said that all is well, and most calls hung until their deadlines."""
    member, recovered, _ = await one.joined(tmp_path)
    state = recovered.replica.state
    try:
        view = await first_view(client, one.cluster)
        state.set_owned(view.map.version, owned_bytes(view.map, "s01"))
        await member.resign(None)
        prefix = ClusterKeys(one.cluster).prefix
        await client.delete(prefix, prefix[:-1] + b"0")
        await create_cluster(client, one.cluster, slices, partitions, cluster_id=view.config.id)
        if (slices, partitions) == (["s01", "s02"], 8):
            await member.claim(state)
            await member.resign(None)
        else:
            with pytest.raises(Conflict, match=r"other partitions than its data has .* --partitions 8"):
                await member.claim(state)
    finally:
        await recovered.close()


async def test_an_old_copy_is_refused_unless_it_is_accepted(one: Cluster, tmp_path: Path) -> None:
    await one.once(tmp_path)
    member, recovered, claimed = await one.joined(tmp_path)
    assert await note_lsn(one.client, one.cluster, claimed, 100)
    await recovered.close()
    await member.resign(None)
    with pytest.raises(Conflict, match=f"the data in {tmp_path} of slice s01 is an old copy: it ends at LSN 0"):
        await one.once(tmp_path)
    epoch, life = await one.once(tmp_path, accept_empty=True)
    assert life == claimed.incarnation and epoch > claimed.epoch


async def test_a_folder_that_nobody_claims_is_closed_again(one: Cluster, tmp_path: Path) -> None:
    await one.once(tmp_path)
    shutil.rmtree(tmp_path / JOURNAL_FOLDER)
    (tmp_path / STORE_FOLDER / "data.mdb").write_bytes(b"damaged" * 10_000)
    with pytest.raises(Corrupt):
        await one.once(tmp_path)
    await made(tmp_path / "free")
    assert look(tmp_path / "free") is not None
