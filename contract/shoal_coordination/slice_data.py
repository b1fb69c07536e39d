"""Decides whether a slice may go on with the data that its node has found in its folder.

Belongs here: the rules, with their messages for operators. Pure: no files, no etcd, no randomness. Does not: where the
node keeps an identity (its store and its journal), claiming (leadership.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shoal_contract.data_identity import DataIdentity
from shoal_contract.errors import Conflict
from shoal_coordination.records import ClusterConfig, SliceRecord


@dataclass(frozen=True, slots=True)
class ClaimedData:
    """Describes the data with which a node claims its slice.

    `lsn`: the LSN of its last record. `epoch`: the highest epoch in it; the claim gets a higher one. `replaces`: it
    replaces the data that etcd's record names, as an operator has said.
    """

    incarnation: str
    lsn: int
    replaces: bool = False
    epoch: int = 0


def admit(
    config: ClusterConfig,
    record: SliceRecord,
    found: DataIdentity | None,
    lsn: int,
    accept_empty: bool,
    *,
    node: str,
    folder: str,
    fresh: str,
) -> DataIdentity:
    """Returns the identity with which `node` goes on: the one `found` in `folder`, or one of a new life.

    If nothing is found, a new life begins, with `fresh` as its incarnation: in a slice that was never led, or, with
    `accept_empty`, in place of the missing data. `accept_empty` admits an old copy too. Data of this cluster and slice
    is adopted if etcd knows of none, as after a restore of etcd. Raises Conflict, which says what is there, what was
    expected, and what to do.
    """
    expected = DataIdentity(config.id, record.name, node, record.incarnation)
    if found is None:
        if not accept_empty and (record.epoch or record.incarnation):
            raise _missing(record, folder)
        return replace(expected, incarnation=fresh)
    _check_owner(config, expected, found, folder)
    check_life(record, ClaimedData(found.incarnation, lsn, replaces=False), folder, old_copy=accept_empty)
    return found


def check_life(record: SliceRecord, data: ClaimedData, folder: str = "", *, old_copy: bool = False) -> None:
    """Raises Conflict if `data` is of another life than etcd's record names, or, unless `old_copy`, an old copy."""
    if data.replaces or not record.incarnation:
        return
    where = f" in {folder}" if folder else ""
    if data.incarnation != record.incarnation:
        raise Conflict(
            f"the data{where} is of another life of slice {record.name} ({data.incarnation}): the slice goes on with"
            f" {record.incarnation}. Mount that data; or move this away, and start once with --accept-empty to begin"
            f" without any",
            subject=record.name,
        )
    if data.lsn < record.lsn and not old_copy:
        raise Conflict(
            f"the data{where} of slice {record.name} is an old copy: it ends at LSN {data.lsn}, and had {record.lsn}"
            f" already; {record.lsn - data.lsn} records are missing. Mount the newer data; or start once with"
            f" --accept-empty to go on without them: they are then gone",
            subject=record.name, limit=record.lsn, value=data.lsn,
        )  # fmt: skip


def _missing(record: SliceRecord, folder: str) -> Conflict:
    return Conflict(
        f"data of slice {record.name} is missing at {folder}: mount it, or start once with --accept-empty to begin"
        f" without it: everything it held is then gone",
        subject=record.name,
    )


def check_cluster(config: ClusterConfig, cluster_id: str, slice_name: str, folder: str) -> None:
    """Raises Conflict if data of the cluster with this id meets the records of another one."""
    if cluster_id != config.id:
        raise Conflict(
            f"the data in {folder} is of slice {slice_name} of another cluster, with id {cluster_id}; this node belongs"
            f" to cluster {config.name} with id {config.id}. Give it its own folder; or, if etcd lost the records of"
            f" the data's cluster, make them again with `python -m shoal_coordination create --id {cluster_id}`, and"
            f" the slices and partitions of before",
            subject=slice_name,
        )


def _check_owner(config: ClusterConfig, expected: DataIdentity, found: DataIdentity, folder: str) -> None:
    told = f"the data in {folder} is"
    check_cluster(config, found.cluster_id, found.slice, folder)
    if found.slice != expected.slice:
        raise Conflict(
            f"{told} of slice {found.slice} of cluster {config.name}; slice {expected.slice} was told to use it. Give"
            f" each slice its own folder",
            subject=expected.slice,
        )
    if found.node != expected.node:
        raise Conflict(
            f"{told} of node {found.node}, slice {found.slice}; node {expected.node} was told to use it. Give each"
            f" node its own folder, or start it as node {found.node}",
            subject=expected.node,
        )
