"""Folds a watch of a cluster's records into views of the whole cluster at one revision. Pure: updates in, views out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from shoal_contract.partition_map import PartitionMap
from shoal_coordination.entries import Entry
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.records import ClusterConfig, NodeRecord, SliceRecord, decode_record
from shoal_coordination.watch import Changes, Snapshot


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Holds the whole cluster as of etcd's `revision`, so it is consistent. Equal parts of two views may be the same
    objects.

    `slices` has every slice of the map, and those that have a record; `nodes` has those that are registered now.
    """

    revision: int
    config: ClusterConfig
    map: PartitionMap
    slices: Mapping[str, SliceRecord]
    nodes: Mapping[str, NodeRecord]

    def leads(self, slice_name: str) -> bool:
        """Returns whether a slice's leader is registered, at the addresses that the slice's record has. If not, it
        serves no longer, or not yet; and by now another cluster's slice may listen at those addresses."""
        record = self.slices.get(slice_name)
        node = None if record is None else self.nodes.get(record.leader)
        if record is None or node is None:
            return False
        addresses = record.leader_address, record.leader_admin_address
        return addresses == (node.address, node.admin_address)


class ViewFold:
    """Keeps the records known so far, and decodes only those that changed."""

    def __init__(self, cluster: str) -> None:
        self._keys = ClusterKeys(cluster)
        self._config: ClusterConfig | None = None
        self._map: PartitionMap | None = None
        self._slices: dict[str, SliceRecord] = {}
        self._nodes: dict[str, NodeRecord] = {}

    def apply(self, update: Snapshot | Changes) -> ClusterView | None:
        """Returns the view after an update; None while the cluster does not exist. Raises Malformed for a damaged
        record."""
        if isinstance(update, Snapshot):
            self._config = self._map = None
            self._slices, self._nodes = {}, {}
            for entry in update.entries:
                self._put(entry)
        else:
            for change in update.changes:
                (self._delete if change.deleted else self._put)(change.entry)
        if self._config is None or self._map is None:
            return None
        slices = {name: SliceRecord(name) for name in self._map.slices} | self._slices
        nodes = dict(self._nodes)
        return ClusterView(update.revision, self._config, self._map, MappingProxyType(slices), MappingProxyType(nodes))

    def _put(self, entry: Entry) -> None:
        match self._place(entry):
            case ["config"]:
                self._config = decode_record(entry, ClusterConfig)
            case ["map"]:
                self._map = PartitionMap.decode(entry.value)
            case ["slices", name]:
                self._slices[name] = decode_record(entry, SliceRecord)
            case ["nodes", name]:
                self._nodes[name] = decode_record(entry, NodeRecord)

    def _delete(self, entry: Entry) -> None:
        match self._place(entry):
            case ["config"]:
                self._config = None
            case ["map"]:
                self._map = None
            case ["slices", name]:
                self._slices.pop(name, None)
            case ["nodes", name]:
                self._nodes.pop(name, None)

    def _place(self, entry: Entry) -> list[str]:
        """Returns a key's parts below the cluster's prefix. Keys of newer versions match no case."""
        return entry.key.removeprefix(self._keys.prefix).decode(errors="replace").split("/")
