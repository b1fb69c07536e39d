"""Claims the slice in etcd, and keeps a leader's partitions equal to the map."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from shoal_contract.errors import Conflict, Fenced, OutcomeUnknown
from shoal_contract.partition_map import PartitionMap
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_watch import watch_cluster
from shoal_coordination.leadership import claim_slice_leadership
from shoal_coordination.nodes import Registration, register_node
from shoal_coordination.records import NodeRecord, SliceRecord
from shoal_coordination.slice_data import ClaimedData
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.limits import CLAIM_RETRY_MS, LEASE_S
from shoal_slice_node.core.apply.state import State

_log = logging.getLogger(__name__)


async def lead_slice(
    client: EtcdClient, cluster: str, record: NodeRecord, data: ClaimedData, on_loss: Callable[[], None]
) -> tuple[Registration, SliceRecord]:
    """Registers the node and claims its slice with `data`; waits while another node's lease still runs, and for etcd.

    All attempts share one registration, which ends if none succeeds. `on_loss` is called only for a loss after this
    node became the leader. Raises Conflict where waiting does not help, and what etcd's client raises for good.
    """
    candidate = _Candidate(client, cluster, record, on_loss)
    told = ""
    try:
        while True:
            try:
                return await candidate.claim(data)
            except (Conflict, OutcomeUnknown) as error:
                if isinstance(error, Conflict) and not error.leader:
                    raise
                if told != (told := f"{type(error).__name__} {error.leader}"):
                    _log.warning("this node does not lead slice %s yet, and tries again: %s", record.slice, error)
            await asyncio.sleep(CLAIM_RETRY_MS / 1000)
    except BaseException:
        await candidate.end()
        raise


class _Candidate:
    """Tries to make a node the leader of its slice. Keeps its registration, and makes a new one only if the lease was
    lost."""

    def __init__(self, client: EtcdClient, cluster: str, record: NodeRecord, on_loss: Callable[[], None]) -> None:
        self._client = client
        self._cluster = cluster
        self._record = record
        self._on_loss = on_loss
        self._registration: Registration | None = None
        self._leads = False

    async def claim(self, data: ClaimedData) -> tuple[Registration, SliceRecord]:
        """Tries once to claim the slice. Raises Conflict, Fenced, and what etcd's client raises."""
        registration = await self._registered()
        try:
            claimed = await claim_slice_leadership(self._client, self._cluster, self._record.slice, registration, data)
            if not registration.lease.remaining_s:
                raise Fenced(f"node {self._record.node} lost its lease while it claimed", subject=self._record.node)
        except Fenced:
            await self.end()
            raise
        self._leads = True
        return registration, claimed

    async def end(self) -> None:
        """Withdraws the registration, if there is one. Its loss is then not reported."""
        if self._registration is not None:
            ended, self._registration = self._registration, None
            await ended.end()

    async def _registered(self) -> Registration:
        if self._registration is not None and not self._registration.lease.remaining_s:
            await self.end()
        if self._registration is None:
            self._registration = await register_node(
                self._client, self._cluster, self._record, ttl_s=LEASE_S, on_loss=self._lost
            )
        return self._registration

    def _lost(self) -> None:
        if self._leads:
            self._on_loss()


def owned_bytes(partition_map: PartitionMap, slice_name: str) -> bytes:
    """Returns one byte for each partition: 1 if the slice owns it, else 0."""
    owned = bytearray(partition_map.partitions)
    for partition in partition_map.partitions_of(slice_name):
        owned[partition] = 1
    return bytes(owned)


def check_map(partition_map: PartitionMap, slice_name: str, state: State) -> None:
    """Raises Conflict if the map gives the slice other partitions than its data has by a map of the same version."""
    if partition_map.version == state.map_version and owned_bytes(partition_map, slice_name) != state.owned:
        raise Conflict(
            f"the cluster's map has version {partition_map.version}, and gives slice {slice_name} other partitions than"
            f" its data has from that version: etcd's records were made anew with other slices, another order of them,"
            f" or another number of partitions ({partition_map.partitions} now, {len(state.owned)} then). Empty etcd,"
            f" and make them again as they were: `python -m shoal_coordination create --id ... --slices ..."
            f" --partitions {len(state.owned)}`",
            subject=slice_name,
        )


async def keep_partitions(
    client: EtcdClient, cluster: str, cluster_id: str, slice_name: str, broker: Broker, known: asyncio.Event
) -> None:
    """Keeps the broker's partitions equal to the map's, until it is cancelled. Sets `known` once the broker has a map.

    Raises Fenced when etcd's record of the slice is no longer this leader's: another node may lead already; or when its
    records are those of another cluster: etcd lost its own.
    """
    async with aclosing(watch_cluster(client, cluster)) as views:
        async for view in views:
            if view.config.id != cluster_id:
                raise Fenced(f"etcd's records are of another cluster now, with id {view.config.id}", subject=cluster)
            broker.courier.follow(view)
            _check_epoch(view.slices.get(slice_name, SliceRecord(slice_name)), broker.lead.epoch)
            if view.map.version > broker.state.map_version:
                await broker.set_owned(view.map.version, owned_bytes(view.map, slice_name))
            known.set()


def _check_epoch(record: SliceRecord, epoch: int) -> None:
    if record.epoch != epoch:
        leader = f"node {record.leader}" if record.leader else "no node"
        raise Fenced(
            f"slice {record.name} is led by {leader} in epoch {record.epoch}, not by this node, in epoch {epoch}",
            subject=record.name,
            leader=record.leader_address,
            value=record.epoch,
        )
