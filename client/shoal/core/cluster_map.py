"""Holds the partition map and the addresses of the slices' leaders: immutable, built from WatchMap responses."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal_contract.errors import Malformed
from shoal_contract.limits import NAME_BYTES_MAX
from shoal_contract.partition_map import PartitionMap
from shoal_contract.wire import redirector_pb2 as wire


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """Holds the partition map, with the addresses of all its slices. `addresses[slice]` is host:port of the slice's
    leader, "" while it has none. `admin_addresses`: where its administration and bulk load listen, if on a port of
    their own."""

    partition_map: PartitionMap
    addresses: dict[str, str]
    admin_addresses: dict[str, str] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """Returns the map's version, which grows with each change."""
        return self.partition_map.version

    @property
    def slices(self) -> tuple[str, ...]:
        """Returns the names of all slices."""
        return self.partition_map.slices

    def owner_of(self, key: bytes) -> str:
        """Returns the slice that owns the key."""
        return self.partition_map.owner_of(key)

    def address_of(self, slice_name: str) -> str:
        """Returns host:port of the slice's leader; "" while it has none, or for an unknown slice."""
        return self.addresses.get(slice_name, "")

    def admin_address_of(self, slice_name: str) -> str:
        """Returns host:port of AdminService and BulkService; in clusters of older versions, the slice's address."""
        return self.admin_addresses.get(slice_name) or self.address_of(slice_name)


def first_map(response: wire.WatchMapResponse) -> ClusterMap:
    """Returns the whole map from the first response of a stream. Raises Malformed."""
    if response.partitions != len(response.owners):
        raise Malformed(f"map of {response.partitions} partitions has {len(response.owners)} owners")
    names = _names(response)
    owners = PartitionMap(response.map_version, names, tuple(response.owners))
    return ClusterMap(owners, _addresses(response), _admin_addresses(response))


def next_map(before: ClusterMap, response: wire.WatchMapResponse) -> ClusterMap:
    """Returns the map with the changes of a later response. Raises Malformed."""
    if response.partitions:
        return first_map(response)
    if len(response.moved) != len(response.owners):
        raise Malformed(f"map change moves {len(response.moved)} partitions to {len(response.owners)} owners")
    names = _names(response)
    position = {name: index for index, name in enumerate(names)}
    old = before.partition_map
    # PartitionMap refuses -1: a slice may only leave the list once it owns nothing.
    index_of = [position.get(name, -1) for name in old.slices]
    owners = list(old.owners) if names == old.slices else [index_of[owner] for owner in old.owners]
    for partition, owner in zip(response.moved, response.owners, strict=True):
        if partition >= len(owners):
            raise Malformed(f"map change moves partition {partition} of {len(owners)}")
        owners[partition] = owner
    new = PartitionMap(response.map_version, names, tuple(owners))
    return ClusterMap(new, _addresses(response), _admin_addresses(response))


def _names(response: wire.WatchMapResponse) -> tuple[str, ...]:
    """Returns the names of the slices. Raises Malformed where names or addresses are not what logs may show."""
    for entry in response.slices:
        for what in (entry.slice, entry.address, entry.admin_address):
            if len(what) > NAME_BYTES_MAX or not what.isprintable():
                raise Malformed(f"map names a slice, or its address, {what[:40]!r}: it is too long, or not printable")
    return tuple(entry.slice for entry in response.slices)


def _addresses(response: wire.WatchMapResponse) -> dict[str, str]:
    return {entry.slice: entry.address for entry in response.slices}


def _admin_addresses(response: wire.WatchMapResponse) -> dict[str, str]:
    return {entry.slice: entry.admin_address for entry in response.slices if entry.admin_address}
