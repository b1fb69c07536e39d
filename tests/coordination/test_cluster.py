"""Cluster records in real etcd processes: creation, registration, leadership, map changes, views."""

import asyncio
import json
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from shoal_contract.errors import Conflict, Fenced, InvalidName, Malformed, OutOfRange, Unavailable
from shoal_contract.limits import SLICES_MAX
from shoal_contract.partition_map import PartitionMap
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_coordination.cluster_view import ClusterView
from shoal_coordination.cluster_watch import watch_cluster
from shoal_coordination.entries import prefix_end
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.leadership import claim_slice_leadership
from shoal_coordination.nodes import Registration, register_node
from shoal_coordination.records import NodeRecord
from shoal_coordination.slice_data import ClaimedData
from tests.coordination.cluster_records import read_cluster, replace_map

WAIT_S = 60
DATA = ClaimedData("d" * 32, 0)


@pytest.fixture
def cluster() -> str:
    """A name of its own; nothing depends on its value."""
    return f"c{uuid.uuid4().hex}"


@asynccontextmanager
async def registered(
    client: EtcdClient, cluster: str, node: str, slice_name: str = "s1"
) -> AsyncIterator[Registration]:
    record = NodeRecord(node, f"{node}:7000", slice_name)
    registration = await register_node(client, cluster, record, ttl_s=5, on_loss=lambda: None)
    try:
        yield registration
    finally:
        await registration.end()


async def view_where(views: AsyncGenerator[ClusterView, None], holds: Callable[[ClusterView], object]) -> ClusterView:
    async with asyncio.timeout(WAIT_S):
        async for view in views:
            if holds(view):
                return view
    raise AssertionError("the watch ended")


async def test_a_new_cluster_has_an_even_map_and_leaderless_slices(client: EtcdClient, cluster: str) -> None:
    config = await create_cluster(client, cluster, ["s1", "s2", "s3"], 100)
    view = await read_cluster(client, cluster)
    assert view.config == config
    assert view.map == PartitionMap.even(["s1", "s2", "s3"], 100)
    assert [(record.name, record.epoch, record.leader) for record in view.slices.values()] == [
        ("s1", 0, ""), ("s2", 0, ""), ("s3", 0, ""),
    ]  # fmt: skip
    assert dict(view.nodes) == {}


async def test_creating_again_changes_nothing(client: EtcdClient, cluster: str) -> None:
    made = await asyncio.gather(*(create_cluster(client, cluster, ["s1", "s2"], 8) for _ in range(5)))
    assert len(set(made)) == 1
    first = await read_cluster(client, cluster)
    await replace_map(client, cluster, first.map, first.map.moved({0: "s3"}))
    await create_cluster(client, cluster, ["s1", "s2"], 8)
    assert (await read_cluster(client, cluster)).map.version == 2


async def test_creating_it_differently_is_a_conflict(client: EtcdClient, cluster: str) -> None:
    await create_cluster(client, cluster, ["s1"], 8)
    with pytest.raises(Conflict, match="exists with 8 partitions, not 16"):
        await create_cluster(client, cluster, ["s1"], 16)
    with pytest.raises(Conflict, match="without slices s2"):
        await create_cluster(client, cluster, ["s1", "s2"], 8)


async def test_bad_arguments_change_nothing(client: EtcdClient, cluster: str) -> None:
    with pytest.raises(InvalidName, match="cluster name 'A/b'"):
        await create_cluster(client, "A/b", ["s1"], 8)
    with pytest.raises(InvalidName, match="64 characters; it needs 1 to 63"):
        await create_cluster(client, cluster, ["s" * 64], 8)
    many = [f"s{number}" for number in range(SLICES_MAX + 1)]
    with pytest.raises(OutOfRange, match=f"it needs 1 to {SLICES_MAX} different ones"):
        await create_cluster(client, cluster, many, 4096)
    for slices, partitions in ((["s1"], 0), (["s1"], 40_000), ([], 8), (["s1", "s1"], 8), (["a", "b"], 1)):
        with pytest.raises(OutOfRange):
            await create_cluster(client, cluster, slices, partitions)
    with pytest.raises(Unavailable, match="does not exist"):
        await read_cluster(client, cluster)


async def test_of_two_map_changes_from_one_version_one_is_a_conflict(client: EtcdClient, cluster: str) -> None:
    await create_cluster(client, cluster, ["s1", "s2"], 8)
    current = (await read_cluster(client, cluster)).map
    changes = [replace_map(client, cluster, current, current.moved({n: "s9"})) for n in range(4)]
    done = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(result) for result in done if result is not None] == [Conflict] * 3
    assert (await read_cluster(client, cluster)).map.version == 2


async def test_a_node_is_there_while_registered(client: EtcdClient, cluster: str) -> None:
    await create_cluster(client, cluster, ["s1"], 8)
    async with aclosing(watch_cluster(client, cluster)) as views:
        async with registered(client, cluster, "n1") as registration:
            view = await view_where(views, lambda view: view.nodes)
            assert dict(view.nodes) == {"n1": registration.record}
            assert view.revision == registration.incarnation
        await view_where(views, lambda view: not view.nodes)


async def test_a_restarted_node_keeps_its_record_when_its_old_lease_ends(client: EtcdClient, cluster: str) -> None:
    async with registered(client, cluster, "n1") as old, registered(client, cluster, "n1") as new:
        assert new.incarnation > old.incarnation
        await client.revoke_lease(old.lease.id)
        assert await client.get(f"/shoal/{cluster}/nodes/n1".encode()) is not None


async def test_the_first_claim_leads_and_a_second_node_is_told_who_and_how_long(
    client: EtcdClient, cluster: str
) -> None:
    await create_cluster(client, cluster, ["s1"], 8)
    async with registered(client, cluster, "n1") as n1, registered(client, cluster, "n2") as n2:
        claimed = await claim_slice_leadership(client, cluster, "s1", n1, DATA)
        assert (claimed.epoch, claimed.leader, claimed.leader_address) == (1, "n1", "n1:7000")
        assert claimed.replicas == claimed.in_sync == ("n1",)
        with pytest.raises(Conflict, match=r"led by node n1 at n1:7000 in epoch 1; its lease runs \d s") as caught:
            await claim_slice_leadership(client, cluster, "s1", n2, DATA)
        assert caught.value.leader == "n1:7000"
        assert 0 < caught.value.value <= 5000
        assert (await read_cluster(client, cluster)).slices["s1"] == claimed


async def test_a_restarted_leader_claims_at_once_with_a_higher_epoch(client: EtcdClient, cluster: str) -> None:
    async with registered(client, cluster, "n1") as before:
        await claim_slice_leadership(client, cluster, "s1", before, DATA)
        async with registered(client, cluster, "n1") as after:
            assert (await claim_slice_leadership(client, cluster, "s1", after, DATA)).epoch == 2
            with pytest.raises(Fenced, match="registration of node n1 is gone"):
                await claim_slice_leadership(client, cluster, "s1", before, DATA)


async def test_a_leader_that_is_gone_is_followed_only_by_a_node_in_sync(client: EtcdClient, cluster: str) -> None:
    async with registered(client, cluster, "n2") as n2, registered(client, cluster, "n3") as n3:
        async with registered(client, cluster, "n1") as n1:
            await claim_slice_leadership(client, cluster, "s1", n1, DATA)
            key = f"/shoal/{cluster}/slices/s1".encode()
            entry = await client.get(key)
            assert entry is not None
            await client.put(key, entry.value.replace(b'["n1"]', b'["n1","n2"]'))
            with pytest.raises(Conflict, match="led by node n1"):
                await claim_slice_leadership(client, cluster, "s1", n2, DATA)
        with pytest.raises(Conflict, match="n3 is not in sync with slice s1; only n1, n2 may lead"):
            await claim_slice_leadership(client, cluster, "s1", n3, DATA)
        assert (await claim_slice_leadership(client, cluster, "s1", n2, DATA)).epoch == 2


async def test_of_many_first_claims_one_wins(client: EtcdClient, cluster: str) -> None:
    async with registered(client, cluster, "n1") as n1, registered(client, cluster, "n2") as n2:
        rivals = [claim_slice_leadership(client, cluster, "s1", node, DATA) for node in (n1, n2)]
        done = await asyncio.gather(*rivals, return_exceptions=True)
        assert sorted(type(result).__name__ for result in done) == ["Conflict", "SliceRecord"]


async def test_a_node_without_registration_may_not_lead(client: EtcdClient, cluster: str) -> None:
    async with registered(client, cluster, "n1") as n1:
        await client.revoke_lease(n1.lease.id)
        with pytest.raises(Fenced, match="may not lead"):
            await claim_slice_leadership(client, cluster, "s1", n1, DATA)


async def test_a_watch_that_came_first_sees_the_cluster_made_and_changed(client: EtcdClient, cluster: str) -> None:
    async with aclosing(watch_cluster(client, cluster)) as views:
        first = asyncio.ensure_future(anext(views))
        await create_cluster(client, cluster, ["s1", "s2"], 8)
        view = await asyncio.wait_for(first, WAIT_S)
        assert view.map.version == 1
        await replace_map(client, cluster, view.map, view.map.moved({0: "s2"}))
        async with registered(client, cluster, "n1") as n1:
            await claim_slice_leadership(client, cluster, "s1", n1, DATA)
            view = await view_where(views, lambda view: view.slices["s1"].leader)
            assert view.map.version == 2
            assert view.slices["s1"].leader_address == "n1:7000"


async def test_every_cluster_has_an_id_of_its_own_and_keeps_it(client: EtcdClient, cluster: str) -> None:
    made = await create_cluster(client, cluster, ["s1"], 8)
    other = await create_cluster(client, f"{cluster}-2", ["s1"], 8)
    assert re.fullmatch("[0-9a-f]{32}", made.id)
    assert other.id != made.id
    assert (await create_cluster(client, cluster, ["s1"], 8, cluster_id=made.id)).id == made.id
    assert (await create_cluster(client, cluster, ["s1"], 8, cluster_id=other.id)).id == other.id, (
        "nothing has data yet"
    )
    assert (await create_cluster(client, cluster, ["s1"], 8)).id == other.id
    async with registered(client, cluster, "n1") as n1:
        await claim_slice_leadership(client, cluster, "s1", n1, DATA)
    with pytest.raises(Conflict, match=f"exists with id {other.id}, not {made.id}, and slices have been led in it"):
        await create_cluster(client, cluster, ["s1"], 8, cluster_id=made.id)
    with pytest.raises(InvalidName, match="cluster id 'ABC' is not 32 digits"):
        await create_cluster(client, cluster, ["s1"], 8, cluster_id="ABC")


async def test_records_that_were_lost_are_made_again_with_the_id_that_they_had(
    client: EtcdClient, cluster: str
) -> None:
    made = await create_cluster(client, cluster, ["s1"], 8)
    prefix = ClusterKeys(cluster).prefix
    await client.delete(prefix, prefix_end(prefix))
    assert (await create_cluster(client, cluster, ["s1"], 8, cluster_id=made.id)).id == made.id


async def test_a_config_without_an_id_says_what_made_it(client: EtcdClient, cluster: str) -> None:
    await create_cluster(client, cluster, ["s1"], 8)
    old = json.dumps({"name": cluster, "partitions": 8, "created_ms": 1}).encode()
    await client.put(ClusterKeys(cluster).config, old)
    with pytest.raises(Malformed, match="it has no id: a version of Shoal before cluster ids made it"):
        await read_cluster(client, cluster)


async def test_a_damaged_record_is_named(client: EtcdClient, cluster: str) -> None:
    await create_cluster(client, cluster, ["s1"], 8)
    await client.put(f"/shoal/{cluster}/slices/s1".encode(), b'{"name": 1}')
    with pytest.raises(Malformed, match=f"/shoal/{cluster}/slices/s1 is not a SliceRecord"):
        await read_cluster(client, cluster)


async def test_records_of_newer_versions_are_passed_over(client: EtcdClient, cluster: str) -> None:
    await create_cluster(client, cluster, ["s1"], 8)
    await client.put(f"/shoal/{cluster}/moves/1".encode(), b"?")
    await client.put(f"/shoal/{cluster}/slices/s1".encode(), b'{"name": "s1", "epoch": 3, "tiers": []}')
    assert (await read_cluster(client, cluster)).slices["s1"].epoch == 3
