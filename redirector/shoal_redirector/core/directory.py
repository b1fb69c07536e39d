"""Holds what a redirector knows: the partition map, and each slice's address. Tells which slice owns a key.

Belongs here: locating and checking keys, the difference of two directories. Does not: where a directory comes from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from shoal_contract.errors import TooLarge
from shoal_contract.names import DIRECT_PREFIX, check_name
from shoal_contract.partition_hash import partition_of
from shoal_contract.partition_map import PartitionMap


@dataclass(frozen=True, slots=True)
class SliceAddress:
    """Describes a slice with its addresses. `address`: host:port of its leader, "" while it has none. `admin_address`:
    where its administration listens, "" if that is not known."""

    slice: str
    address: str = ""
    epoch: int = 0
    admin_address: str = ""


@dataclass(frozen=True, slots=True)
class Directory:
    """Holds the map and the slices' addresses. `slices[i]` has those of `map.slices[i]`; further slices own no
    partition yet."""

    map: PartitionMap
    slices: tuple[SliceAddress, ...]

    def __post_init__(self) -> None:
        assert tuple(each.slice for each in self.slices[: len(self.map.slices)]) == self.map.slices

    @property
    def without_leader(self) -> int:
        """Returns how many slices have no address."""
        return sum(not each.address for each in self.slices)


def directory_of(partition_map: PartitionMap, known: Mapping[str, SliceAddress]) -> Directory:
    """Returns a directory with the slices in the map's order; slices without partitions follow by name."""
    further = sorted(known.keys() - set(partition_map.slices))
    names = (*partition_map.slices, *further)
    return Directory(partition_map, tuple(known.get(name, SliceAddress(name)) for name in names))


def locate(directory: Directory, keys: Iterable[bytes]) -> tuple[list[int], list[int]]:
    """Returns (partitions, owners), one of each for every key, in order; owners are indices into `directory.slices`."""
    held = directory.map
    partitions = [partition_of(key, held.partitions) for key in keys]
    return partitions, [held.owners[partition] for partition in partitions]


def check_keys(keys: Sequence[bytes], keys_max: int) -> None:
    """Raises TooLarge for too many keys, InvalidName for a bad one. The direct key of a queue is a key too."""
    if len(keys) > keys_max:
        raise TooLarge(
            f"{len(keys)} keys to locate in one call; the limit is {keys_max}",
            subject="keys", limit=keys_max, value=len(keys),
        )  # fmt: skip
    for key in keys:
        # A direct key may have one byte more than a queue's name may have.
        check_name(key.removeprefix(DIRECT_PREFIX) if len(key) > 1 else key, "key")


def moved(before: Directory, after: Directory) -> tuple[list[int], list[int]] | None:
    """Returns (partitions with another owner, their owners as indices into `after.slices`), ascending by partition.

    Returns None if the maps cannot be compared, because P differs: the cluster was made anew.
    """
    old, new = before.map, after.map
    if old.partitions != new.partitions:
        return None
    if old.slices == new.slices:
        changed = [p for p, (was, now) in enumerate(zip(old.owners, new.owners, strict=True)) if was != now]
    else:
        names = zip(old.owners, new.owners, strict=True)
        changed = [p for p, (was, now) in enumerate(names) if old.slices[was] != new.slices[now]]
    return changed, [new.owners[partition] for partition in changed]
