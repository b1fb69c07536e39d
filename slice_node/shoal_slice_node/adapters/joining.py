"""Brings a node into its cluster, or lets it run alone: whose data it has, when it may lead, and whether it still may.

Data is checked before anything is changed, and recovered before the lead is claimed: replay may take long, and no other
node has to wait for a lease of this node meanwhile.
"""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Protocol

from shoal_contract.data_identity import DataIdentity
from shoal_contract.errors import Conflict, Fenced
from shoal_contract.limits import PARTITIONS_DEFAULT
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_watch import first_view
from shoal_coordination.leadership import note_lsn
from shoal_coordination.nodes import Registration
from shoal_coordination.records import ClusterConfig, NodeRecord, SliceRecord
from shoal_coordination.slice_data import ClaimedData, admit, check_cluster, check_life
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.claiming import check_map, keep_partitions, lead_slice
from shoal_slice_node.adapters.lead import Lead
from shoal_slice_node.adapters.recovery import Found, Recovered, look, recover, standalone_identity
from shoal_slice_node.core.apply.state import State
from shoal_slice_node.storage.data_folder import inner_data


class Seat(Protocol):
    """Says when a node may lead, and for how long. The same seat gives it the lead again after it lost it."""

    async def wait(self) -> None:
        """Waits until it is known what the cluster is. Raises what etcd's client raises for good."""

    async def open(self) -> Recovered:
        """Opens and recovers the node's data. Raises Conflict if the data is missing, foreign, of another life or an
        old copy; Corrupt, ResourceExhausted; what etcd's client raises for good."""

    async def claim(self, state: State) -> Lead:
        """Waits until the node may lead with this data. Raises Conflict where waiting does not help; what etcd's client
        raises for good."""

    async def assign(self, broker: Broker, known: asyncio.Event) -> None:
        """Keeps the broker's partitions as they are assigned, until it is cancelled; sets `known` once it has some.
        Raises Fenced if another leader is known."""

    async def resign(self, noted_lsn: int | None) -> None:
        """Gives the lead back. `noted_lsn`: the data's last LSN, at a clean stop."""


class Alone:
    """Seats a node without a cluster: it always leads, in epoch 1, and owns every partition."""

    def __init__(self, slice_name: str, node: str, folder: Path, delta_rows: int) -> None:
        self._slice = slice_name
        self._node = node
        self._folder = folder
        self._delta_rows = delta_rows

    async def wait(self) -> None:
        """See Seat."""

    async def open(self) -> Recovered:
        """See Seat."""
        identity = standalone_identity(look(self._folder), self._slice, self._node)
        return await recover(self._folder, identity, self._delta_rows)

    async def claim(self, state: State) -> Lead:
        """See Seat."""
        return Lead(1)

    async def assign(self, broker: Broker, known: asyncio.Event) -> None:
        """See Seat."""
        await broker.set_owned(1, b"\x01" * PARTITIONS_DEFAULT)
        known.set()

    async def resign(self, noted_lsn: int | None) -> None:
        """See Seat."""


class Member:
    """Seats a node of a cluster. `accept_empty`: the first claim may replace missing data, or go on with an old
    copy."""

    def __init__(
        self, client: EtcdClient, cluster: str, record: NodeRecord, folder: Path, accept_empty: bool, delta_rows: int
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._record = record
        self._folder = folder
        self._accept_empty = accept_empty
        self._delta_rows = delta_rows
        self._incarnation = self._cluster_id = ""
        """The life of the data, and the id of its cluster, once it is open."""
        self._lead: Lead | None = None
        self._registration: Registration | None = None
        self.claimed: SliceRecord | None = None
        """The slice's record as this process claimed it last."""

    async def wait(self) -> None:
        """See Seat."""
        await first_view(self._client, self._cluster)

    async def open(self) -> Recovered:
        """See Seat."""
        view = await first_view(self._client, self._cluster)
        known = view.slices.get(self._record.slice, SliceRecord(self._record.slice))
        folder = self._folder
        identity = _identity(view.config, known, self._record.node, look(folder), folder, self._accept_empty)
        recovered = await recover(folder, identity, self._delta_rows)
        self._incarnation, self._cluster_id = identity.incarnation, identity.cluster_id
        try:
            self._check(known, self._data(recovered.replica.state))
        except BaseException:
            await recovered.close()
            raise
        return recovered

    async def claim(self, state: State) -> Lead:
        """See Seat."""
        view = await first_view(self._client, self._cluster)
        check_cluster(view.config, self._cluster_id, self._record.slice, str(self._folder))
        check_map(view.map, self._record.slice, state)
        data = self._data(state)
        self._check(view.slices.get(self._record.slice, SliceRecord(self._record.slice)), data)
        registration, claimed = await lead_slice(self._client, self._cluster, self._record, data, self._lost)
        # No turn of the loop lies between the claim and these lines: a loss that is told later finds the lead.
        self._registration, self.claimed, self._accept_empty = registration, claimed, False
        self._lead = Lead(claimed.epoch, lambda: registration.lease.remaining_s)
        return self._lead

    async def assign(self, broker: Broker, known: asyncio.Event) -> None:
        """See Seat."""
        await keep_partitions(self._client, self._cluster, self._cluster_id, self._record.slice, broker, known)

    async def resign(self, noted_lsn: int | None) -> None:
        """See Seat."""
        if noted_lsn is not None and self.claimed is not None:
            await note_lsn(self._client, self._cluster, self.claimed, noted_lsn)
        if self._registration is not None:
            ended, self._registration = self._registration, None
            await ended.end()

    def _data(self, state: State) -> ClaimedData:
        return ClaimedData(self._incarnation, state.lsn, self._accept_empty, state.epoch)

    def _check(self, known: SliceRecord, data: ClaimedData) -> None:
        """Raises Conflict if the slice goes on with other data, or if another process has this node's name: the two
        would depose each other for ever."""
        check_life(known, data, str(self._folder), old_copy=self._accept_empty)
        node, mine = self._record.node, self.claimed
        if mine is not None and known.leader == node and known.epoch > mine.epoch:
            raise Conflict(
                f"another process runs as node {node}: it leads slice {known.name} in epoch {known.epoch}, and this one"
                f" did in epoch {mine.epoch}. This one stops; give each node a name and a folder of its own",
                subject=node,
            )

    def _lost(self) -> None:
        assert self._lead is not None
        node = self._record.node
        self._lead.end(Fenced(f"node {node} lost its lease: it may no longer serve", subject=node))


def _identity(
    config: ClusterConfig, known: SliceRecord, node: str, found: Found | None, folder: Path, accept_empty: bool
) -> DataIdentity:
    """Returns the identity to go on with, before anything is changed. Raises Conflict. The data's last LSN is known
    only after recovery, and is checked then."""
    if found is not None and found.identity is None:
        raise Conflict(
            f"the data in {folder} does not say whose it is: another version made it. Move it away", subject=str(folder)
        )
    if found is None and not accept_empty and (known.epoch or known.incarnation) and (inner := inner_data(folder)):
        raise Conflict(
            f"data of slice {known.name} is missing at {folder}, but {inner} has a store and a journal: it lies one"
            f" folder too deep, as after `mv` into a folder that was there already. Move what is in {inner} to"
            f" {folder}, and start again",
            subject=known.name,
        )
    identity = None if found is None else found.identity
    return admit(
        config, known, identity, known.lsn, accept_empty, node=node, folder=str(folder), fresh=secrets.token_hex(16)
    )
