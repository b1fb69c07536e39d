"""Who leads a slice: taken by compare-and-swap on its record, each time with a higher epoch."""

from __future__ import annotations

from dataclasses import replace

from shoal_contract.errors import Conflict, Fenced, Unavailable
from shoal_coordination import limits
from shoal_coordination.client import EtcdClient
from shoal_coordination.entries import Entry, Get, Put, absent, mod_revision_is
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.nodes import Registration
from shoal_coordination.records import NodeRecord, SliceRecord, decode_record, encode_record
from shoal_coordination.wire import rpc_pb2 as wire


async def claim_slice_leadership(
    client: EtcdClient, cluster: str, slice_name: str, registration: Registration
) -> SliceRecord:
    """Makes the registered node the leader, with the next epoch; returns the record as stored.

    Allowed if the slice has no leader, the leader is an earlier incarnation of the node, or the leader's own
    registration is gone; and only to a member of the in-sync set, once there is one. Raises Conflict (who leads, at
    `leader`, and for how long, `value` ms), Fenced (the node's own registration is gone), Unavailable after
    CLAIM_ATTEMPTS_MAX lost races, and what EtcdClient raises (then claim again: it costs an epoch at most).
    """
    keys, node = ClusterKeys(cluster), registration.record
    key, own = keys.slice(slice_name), keys.node(node.node)
    for _ in range(limits.CLAIM_ATTEMPTS_MAX):
        read = await client.transact([], [Get(key), Get(own)])
        (found, own_found) = read.reads
        if not own_found or own_found[0].mod_revision != registration.incarnation:
            raise Fenced(f"the registration of node {node.node} is gone; it may not lead", subject=node.node)
        held = decode_record(found[0], SliceRecord) if found else SliceRecord(slice_name)
        compare = [mod_revision_is(own, registration.incarnation), _unchanged(key, found)]
        if held.leader not in ("", node.node):
            await _check_gone(client, keys, held)
            compare.append(absent(keys.node(held.leader)))
        claimed = _next_leader(held, node)
        if (await client.transact(compare, [Put(key, encode_record(claimed))])).succeeded:
            return claimed
    raise Unavailable(f"slice {slice_name} changed {limits.CLAIM_ATTEMPTS_MAX} times while claimed", subject=slice_name)


def _unchanged(key: bytes, found: tuple[Entry, ...]) -> wire.Compare:
    return mod_revision_is(key, found[0].mod_revision if found else 0)


def _next_leader(held: SliceRecord, node: NodeRecord) -> SliceRecord:
    if held.in_sync and node.node not in held.in_sync:
        raise Conflict(
            f"node {node.node} is not in sync with slice {held.name}; only {', '.join(held.in_sync)} may lead it",
            subject=held.name,
        )
    return replace(
        held,
        epoch=held.epoch + 1,
        leader=node.node,
        leader_address=node.address,
        replicas=held.replicas or (node.node,),
        in_sync=held.in_sync or (node.node,),
    )


async def _check_gone(client: EtcdClient, keys: ClusterKeys, held: SliceRecord) -> None:
    entry = await client.get(keys.node(held.leader))
    if entry is None:
        return
    left_s = await client.lease_left_s(entry.lease)
    raise Conflict(
        f"slice {held.name} is led by node {held.leader} at {held.leader_address} in epoch {held.epoch};"
        f" its lease runs {left_s} s more, unless renewed",
        subject=held.name, leader=held.leader_address, value=left_s * 1000,
    )  # fmt: skip
