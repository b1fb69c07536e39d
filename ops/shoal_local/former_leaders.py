"""Takes the addresses of former leaders from etcd, before the nodes of a local cluster are started.

etcd keeps each slice's leader with its address, also while no node runs. By then another server may listen there: in a
copy of a cluster's folder it is the original's slice, which would take what clients of the copy publish and drop. The
map names no leader that is not registered (ClusterView.leads). But where nodes were killed, etcd still has their
registrations, and so has the etcd of a copy: leases outlive nodes, and an etcd that starts lets each run on for its
whole time. So until then the addresses in the records are all that tells them apart, and they are taken away here.
Clients wait, as they do for a slice that starts for the first time.
Nothing else of the records changes, so no claim, epoch, LSN or life does. Not here: records that were lost (lives.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from shoal_contract.errors import Unavailable
from shoal_coordination.client import EtcdClient
from shoal_coordination.entries import Put, mod_revision_is
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.limits import CLAIM_ATTEMPTS_MAX
from shoal_coordination.records import SliceRecord, decode_record, encode_record
from shoal_local.commands import CLUSTER

_KEYS: Final = ClusterKeys(CLUSTER)


async def forget_addresses(client: EtcdClient) -> None:
    """Takes the addresses of its leader from each slice's record, all in one transaction. Call it only while none of
    the cluster's nodes runs. Raises Unavailable if records change meanwhile; what EtcdClient raises."""
    for _ in range(CLAIM_ATTEMPTS_MAX):
        compare, puts = [], []
        for entry in (await client.range_prefix(_KEYS.slices)).entries:
            record = decode_record(entry, SliceRecord)
            if record.leader_address or record.leader_admin_address:
                compare.append(mod_revision_is(entry.key, entry.mod_revision))
                cleared = replace(record, leader_address="", leader_admin_address="")
                puts.append(Put(entry.key, encode_record(cleared)))
        if not puts or (await client.transact(compare, puts)).succeeded:
            return
    raise Unavailable(
        "etcd's records of the slices change while none of their nodes is started: a node of a former start still runs"
        " and leads. End it, then start again",
        subject=CLUSTER,
    )
