"""A node's way into its cluster: whose data it has, whether the slice may go on with it, recovery, the lead.

The lead is claimed last: replay may take long, and nobody waits for a lease that is renewed meanwhile.
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
from shoal_slice_node.adapters.membership import lead_slice
from shoal_slice_node.adapters.recovery import Found, Recovered, look, recover


@dataclass(frozen=True, slots=True)
class Joined:
    """This node leads its slice: with what it recovered, as long as its registration lasts."""

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
    """Waits for the cluster, for etcd, and for another node's lease to run out.

    Raises Conflict: the data is missing, foreign, of another life or an old copy (`accept_empty` admits the first and
    the last); Corrupt, ResourceExhausted; what etcd's client raises for good.
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
    """Before anything is changed. How far the data goes is known after its recovery, and asked then."""
    if found is not None and found.identity is None:
        raise Conflict(
            f"the data in {folder} does not say whose it is: another version made it. Move it away", subject=str(folder)
        )
    identity = None if found is None else found.identity
    return admit(
        config, known, identity, known.lsn, accept_empty, node=node, folder=str(folder), fresh=secrets.token_hex(16)
    )
