"""Makes a cluster in one transaction: its config and its partition map, one value each."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace

from shoal_contract.errors import Conflict, OutOfRange
from shoal_contract.limits import PARTITIONS_DEFAULT, PARTITIONS_MAX, SLICES_MAX
from shoal_contract.partition_map import PartitionMap
from shoal_coordination.client import EtcdClient
from shoal_coordination.entries import Entry, Get, Put, absent, mod_revision_is, prefix_end
from shoal_coordination.keys import ClusterKeys, check_identity, check_record_name
from shoal_coordination.records import ClusterConfig, decode_record, encode_record


async def create_cluster(
    client: EtcdClient,
    cluster: str,
    slices: Sequence[str],
    partitions: int = PARTITIONS_DEFAULT,
    *,
    exactly: bool = False,
    cluster_id: str = "",
) -> ClusterConfig:
    """Writes the config and an even map over `slices`, unless the cluster exists. Returns the config that holds.

    `cluster_id`: the id of a cluster whose records were lost, so that its slices accept it again; it replaces another
    id as long as no slice was led under that. Empty: a new random id. Repeating the call changes nothing, also after
    partitions moved. Raises Conflict if the cluster exists with another id, another P or without one of these slices,
    or, with `exactly`, with other slices too; InvalidName, OutOfRange; Malformed if etcd's records of it cannot be
    read; what EtcdClient raises (then repeat the call).
    """
    keys = ClusterKeys(cluster)
    _check(slices, partitions)
    if cluster_id:
        check_identity(cluster_id, "cluster id")
    config = ClusterConfig(cluster, partitions, time.time_ns() // 1_000_000, cluster_id or secrets.token_hex(16))
    even = PartitionMap.even(slices, partitions)
    done = await client.transact(
        [absent(keys.config), absent(keys.map)],
        [Put(keys.config, encode_record(config)), Put(keys.map, even.encode())],
        [Get(keys.config), Get(keys.map)],
    )
    if done.succeeded:
        return config
    if not all(done.reads):
        raise Conflict(
            f"cluster {cluster} has only one of config and map: its records are damaged; restore etcd", subject=cluster
        )
    existing, held = decode_record(done.reads[0][0], ClusterConfig), PartitionMap.decode(done.reads[1][0].value)
    if existing.partitions != partitions:
        raise Conflict(
            f"cluster {cluster} exists with {existing.partitions} partitions, not {partitions}: it cannot change",
            subject=cluster, limit=existing.partitions, value=partitions,
        )  # fmt: skip
    if missing := sorted(set(slices) - set(held.slices)):
        text = f"cluster {cluster} exists without slices {', '.join(missing)}: none can be added yet"
        raise Conflict(text, subject=cluster)
    if exactly and (others := sorted(set(held.slices) - set(slices))):
        text = f"cluster {cluster} exists with slices {', '.join(others)} too: none can be removed yet"
        raise Conflict(text, subject=cluster)
    if cluster_id and existing.id != cluster_id:
        return await _replace_id(client, keys, done.reads[0][0], replace(existing, id=cluster_id))
    return existing


async def _replace_id(client: EtcdClient, keys: ClusterKeys, held: Entry, config: ClusterConfig) -> ClusterConfig:
    """Replaces the id of a cluster that was made anew, after its slices turned out to hold data of the old one."""
    unused = [mod_revision_is(keys.config, held.mod_revision), absent(keys.slices, prefix_end(keys.slices))]
    if (await client.transact(unused, [Put(keys.config, encode_record(config))])).succeeded:
        return config
    was = decode_record(held, ClusterConfig).id
    raise Conflict(
        f"cluster {config.name} exists with id {was}, not {config.id}, and slices have been led in it: it has data of"
        f" its own",
        subject=config.name,
    )


def _check(slices: Sequence[str], partitions: int) -> None:
    for name in slices:
        check_record_name(name, "slice")
    if not 0 < partitions <= PARTITIONS_MAX:
        raise OutOfRange(
            f"{partitions} partitions asked for; a cluster has 1 to {PARTITIONS_MAX}",
            subject="partitions", limit=PARTITIONS_MAX, value=max(0, partitions),
        )  # fmt: skip
    slices_max = min(partitions, SLICES_MAX)
    if not 0 < len(slices) <= slices_max or len(set(slices)) < len(slices):
        raise OutOfRange(
            f"{len(slices)} slices given; it needs 1 to {slices_max} different ones",
            subject="slices", limit=slices_max, value=len(slices),
        )  # fmt: skip
