"""Claims with data, against real etcd processes: the record names what leads, and nothing else leads after it."""

from __future__ import annotations

import uuid

import pytest

from shoal_contract.errors import Conflict
from shoal_coordination.client import EtcdClient
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.leadership import claim_slice_leadership, note_lsn
from shoal_coordination.nodes import Registration, register_node
from shoal_coordination.records import NodeRecord, SliceRecord, decode_record
from shoal_coordination.slice_data import ClaimedData
from shoal_local.etcd import LocalEtcd

LIFE, OTHER = "a" * 32, "b" * 32


@pytest.fixture
def cluster() -> str:
    return f"c{uuid.uuid4().hex}"


async def registered(client: EtcdClient, cluster: str) -> Registration:
    record = NodeRecord("n1", "n1:7000", "s1", admin_address="n1:7003")
    return await register_node(client, cluster, record, ttl_s=5, on_loss=lambda: None)


async def held(client: EtcdClient, cluster: str) -> SliceRecord:
    entry = await client.get(ClusterKeys(cluster).slice("s1"))
    assert entry is not None
    return decode_record(entry, SliceRecord)


async def test_the_record_names_the_data_that_leads_and_where_its_administration_is(
    client: EtcdClient, cluster: str
) -> None:
    node = await registered(client, cluster)
    claimed = await claim_slice_leadership(client, cluster, "s1", node, ClaimedData(LIFE, 70))
    assert claimed == await held(client, cluster)
    assert (claimed.incarnation, claimed.lsn, claimed.leader_admin_address) == (LIFE, 70, "n1:7003")
    await node.end()


async def test_other_data_and_an_old_copy_do_not_lead_unless_they_replace_it(client: EtcdClient, cluster: str) -> None:
    node = await registered(client, cluster)
    first = await claim_slice_leadership(client, cluster, "s1", node, ClaimedData(LIFE, 70))
    for refused in (ClaimedData(OTHER, 80), ClaimedData(LIFE, 69)):
        with pytest.raises(Conflict) as caught:
            await claim_slice_leadership(client, cluster, "s1", node, refused)
        assert caught.value.leader == "", "waiting does not help"
        assert await held(client, cluster) == first, "nothing is written"
    second = await claim_slice_leadership(client, cluster, "s1", node, ClaimedData(OTHER, 0, replaces=True))
    assert (second.incarnation, second.lsn, second.epoch) == (OTHER, 0, 2)
    await node.end()


async def test_an_epoch_is_above_every_one_that_the_data_has_seen(client: EtcdClient, cluster: str) -> None:
    """As after a restore of etcd from before: its record has forgotten epochs."""
    node = await registered(client, cluster)
    claimed = await claim_slice_leadership(client, cluster, "s1", node, ClaimedData(LIFE, 70, epoch=7))
    assert claimed.epoch == 8
    await node.end()


async def test_a_clean_stop_notes_how_far_the_data_goes_and_only_the_leader_does(
    client: EtcdClient, cluster: str
) -> None:
    node = await registered(client, cluster)
    first = await claim_slice_leadership(client, cluster, "s1", node, ClaimedData(LIFE, 70))
    assert await note_lsn(client, cluster, first, 90)
    assert (await held(client, cluster)).lsn == 90
    assert await note_lsn(client, cluster, first, 80)
    assert (await held(client, cluster)).lsn == 90, "it never goes back"
    second = await claim_slice_leadership(client, cluster, "s1", node, ClaimedData(LIFE, 95))
    assert not await note_lsn(client, cluster, first, 200)
    assert await held(client, cluster) == second
    await node.end()


async def test_a_stop_without_etcd_notes_nothing_and_does_not_fail(etcd: LocalEtcd) -> None:
    async with EtcdClient(etcd.options()) as client:
        await etcd.kill()
        assert not await note_lsn(client, "test", SliceRecord("s1", 1, "n1"), 5)
