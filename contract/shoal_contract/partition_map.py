"""Defines the partition map: a versioned table partition -> slice. Immutable; every side of the contract holds one.

Stored form (JSON, one etcd value): {"version", "slices": [names], "runs": [[slice index, how many partitions], ...]}.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from shoal_contract.errors import Malformed
from shoal_contract.limits import PARTITIONS_MAX, SLICES_MAX
from shoal_contract.partition_hash import partition_of


@dataclass(frozen=True, slots=True)
class PartitionMap:
    """Maps partitions to slices. `owners[p]` is an index into `slices`. `version` grows by one with each change."""

    version: int
    slices: tuple[str, ...]
    owners: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.owners) <= PARTITIONS_MAX:
            raise Malformed(f"map has {len(self.owners)} partitions; it needs 1 to {PARTITIONS_MAX}")
        if len(self.slices) > SLICES_MAX:
            raise Malformed(f"map has {len(self.slices)} slices; it may have {SLICES_MAX}")
        if not all(0 <= owner < len(self.slices) for owner in self.owners):
            raise Malformed(f"map version {self.version} names an owner beyond its {len(self.slices)} slices")

    @property
    def partitions(self) -> int:
        return len(self.owners)

    def owner_of(self, key: bytes) -> str:
        """Returns the name of the slice that owns `key`."""
        return self.slices[self.owners[partition_of(key, len(self.owners))]]

    def partitions_of(self, slice_name: str) -> list[int]:
        """Returns the partitions that a slice owns, ascending."""
        if slice_name not in self.slices:
            return []
        index = self.slices.index(slice_name)
        return [partition for partition, owner in enumerate(self.owners) if owner == index]

    def moved(self, changes: Mapping[int, str]) -> PartitionMap:
        """Returns the next version, with these partitions given to these slices (new slices are added)."""
        slices = self.slices + tuple(sorted(set(changes.values()) - set(self.slices)))
        owners = list(self.owners)
        for partition, slice_name in changes.items():
            owners[partition] = slices.index(slice_name)
        return PartitionMap(self.version + 1, slices, tuple(owners))

    def encode(self) -> bytes:
        runs = [[owner, sum(1 for _ in run)] for owner, run in groupby(self.owners)]
        return json.dumps({"version": self.version, "slices": self.slices, "runs": runs}).encode()

    @staticmethod
    def decode(data: bytes) -> PartitionMap:
        """Returns the map that `data` encodes. Raises Malformed."""
        try:
            value = json.loads(data)
            runs = [(int(owner), int(count)) for owner, count in value["runs"]]
            if any(count < 1 for _, count in runs) or sum(count for _, count in runs) > PARTITIONS_MAX:
                raise ValueError(f"runs must be at least 1 long and {PARTITIONS_MAX} in all")
            owners = tuple(owner for owner, count in runs for _ in range(count))
            return PartitionMap(int(value["version"]), tuple(value["slices"]), owners)
        except (ValueError, KeyError, TypeError) as error:
            raise Malformed(f"partition map cannot be read: {error}") from None

    @staticmethod
    def even(slices: Iterable[str], partitions: int) -> PartitionMap:
        """Returns version 1 of a map: each slice gets a contiguous run of about the same length."""
        names = tuple(slices)
        owners = tuple(partition * len(names) // partitions for partition in range(partitions))
        return PartitionMap(1, names, owners)
