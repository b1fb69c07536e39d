"""Brings a node into its cluster: checks whose data it has and whether the slice may go on with it, recovers, leads.

The lead is claimed last: replay may take long, and no other node has to wait for a lease of this node meanwhile.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shoal_contract.data_identity import DataIdentity
from shoal_contract.errors import Conflict
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_watch import first_view
from shoal_coordination.nodes import Registration
from shoal_coordination.records import ClusterConfig, NodeRecord, SliceRecord
from shoal_coordination.slice_data import ClaimedData, admit, check_life
from shoal_slice_node.adapters.cluster_role import lead_slice
from shoal_slice_node.adapters.recovery import Found, Recovered, look, recover


@dataclass(frozen=True, slots=True)
class Joined:
    """Holds what a node has once it leads its slice: the recovered data, its registration, and the slice's record as
    claimed. It leads as long as the registration lasts."""

    recovered: Recovered
    registration: Registration
    claimed: SliceRecord


async def join(
    client: EtcdClient,
    cluster: str,
    record: NodeRecord,
    folder: Path,
    accept_empty: bool,
    delta_rows: int,
    on_loss: Callable[[], None],
) -> Joined:
    """Recovers the node's data and claims the lead of its slice. Waits for the cluster, for etcd, and for another
    node's lease to run out.

    Raises Conflict if the data is missing, foreign, of another life or an old copy (`accept_empty` admits missing data
    and an old copy); Corrupt, ResourceExhausted; what etcd's client raises for good.
    """
    view = await first_view(client, cluster)
    known = view.slices.get(record.slice, SliceRecord(record.slice))
    identity = _identity(view.config, known, record.node, look(folder), folder, accept_empty)
    recovered = await recover(folder, identity, delta_rows)
    try:
        state = recovered.replica.state
        data = ClaimedData(identity.incarnation, state.lsn, accept_empty, state.epoch)
        check_life(known, data, str(folder), old_copy=accept_empty)
        registration, claimed = await lead_slice(client, cluster, record, data, on_loss)
    except BaseException:
        await recovered.close()
        raise
    return Joined(recovered, registration, claimed)


def _identity(
    config: ClusterConfig, known: SliceRecord, node: str, found: Found | None, folder: Path, accept_empty: bool
) -> DataIdentity:
    """Returns the identity to go on with, before anything is changed. Raises Conflict. The data's last LSN is known
    only after recovery, and is checked then."""
    if found is not None and found.identity is None:
        raise Conflict(
            f"the data in {folder} does not say whose it is: another version made it. Move it away", subject=str(folder)
        )
    identity = None if found is None else found.identity
    return admit(
        config, known, identity, known.lsn, accept_empty, node=node, folder=str(folder), fresh=secrets.token_hex(16)
    )
