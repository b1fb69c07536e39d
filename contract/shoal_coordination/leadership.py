"""Takes the lead of a slice, by compare-and-swap on its record, each time with a higher epoch."""

from __future__ import annotations

import logging
from dataclasses import replace

from shoal_contract.errors import Conflict, Fenced, ShoalError, Unavailable
from shoal_coordination import limits
from shoal_coordination.client import EtcdClient
from shoal_coordination.entries import Entry, Get, Put, absent, mod_revision_is
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.nodes import Registration
from shoal_coordination.records import NodeRecord, SliceRecord, decode_record, encode_record
from shoal_coordination.slice_data import ClaimedData, check_life
from shoal_coordination.wire import rpc_pb2 as wire

_log = logging.getLogger(__name__)


async def claim_slice_leadership(
    client: EtcdClient, cluster: str, slice_name: str, registration: Registration, data: ClaimedData
) -> SliceRecord:
    """Makes the registered node the leader, with the next epoch; returns the record as stored, which names `data`.

    This needs three things. The slice has no leader, or the leader is an earlier incarnation of the node, or the
    leader's own registration is gone. The node is in the in-sync set, once there is one. The data is what the record
    names, or replaces it. Raises Conflict (if another node leads, with `leader` and `value` in ms, as it may pass by
    itself; else an operator must act), Fenced (the node's own registration is gone), Unavailable after
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
        claimed = _next_leader(held, node, data)
        if (await client.transact(compare, [Put(key, encode_record(claimed))])).succeeded:
            return claimed
    raise Unavailable(f"slice {slice_name} changed {limits.CLAIM_ATTEMPTS_MAX} times while claimed", subject=slice_name)


def _unchanged(key: bytes, found: tuple[Entry, ...]) -> wire.Compare:
    return mod_revision_is(key, found[0].mod_revision if found else 0)


async def note_lsn(client: EtcdClient, cluster: str, claimed: SliceRecord, lsn: int) -> bool:
    """Writes the last LSN of the slice's data, at the clean stop of the leader that has `claimed` it.

    This is best effort: with it, the next start can detect an older copy. Returns whether it was written. It is not
    written if the slice has another leader, epoch or data by now, or if etcd is away.
    """
    key = ClusterKeys(cluster).slice(claimed.name)
    try:
        entry = await client.get(key)
        held = SliceRecord(claimed.name) if entry is None else decode_record(entry, SliceRecord)
        if entry is None or (held.epoch, held.incarnation) != (claimed.epoch, claimed.incarnation):
            return False
        noted = encode_record(replace(held, lsn=max(held.lsn, lsn)))
        return (await client.transact([mod_revision_is(key, entry.mod_revision)], [Put(key, noted)])).succeeded
    except ShoalError as error:
        _log.warning(
            "etcd was not told that the data of slice %s goes to LSN %d: %s. Nothing is lost; but until the next clean"
            " stop an older copy of the data may not be recognized as old",
            *(claimed.name, lsn, error),
        )
        return False


def _next_leader(held: SliceRecord, node: NodeRecord, data: ClaimedData) -> SliceRecord:
    if held.in_sync and node.node not in held.in_sync:
        raise Conflict(
            f"node {node.node} is not in sync with slice {held.name}; only {', '.join(held.in_sync)} may lead it",
            subject=held.name,
        )
    check_life(held, data)
    return replace(
        held,
        epoch=max(held.epoch, data.epoch) + 1,
        leader=node.node,
        leader_address=node.address,
        leader_admin_address=node.admin_address,
        incarnation=data.incarnation,
        lsn=data.lsn,
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
