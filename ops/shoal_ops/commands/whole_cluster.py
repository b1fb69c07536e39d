"""Says what a local cluster's folder lacks, or has in the wrong place, as far as its record tells: a copy of it may be
incomplete, or put together from several. Not here: whether the data of each node is sound (offline.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from shoal_contract.data_folder import has_data
from shoal_contract.data_identity import DataIdentity
from shoal_local.record import ETCD, RECORD, Life, LocalRecord, read_record
from shoal_slice_node.storage.offline import CheckReport


def misplaced(folder: Path, reports: Mapping[str, CheckReport]) -> list[str]:
    """Returns a sentence for each fault; none where `folder` has no record. `reports`: those of the nodes in it that
    could be read, by the names of their folders. Raises Corrupt for a record that cannot be read."""
    if not (folder / RECORD).is_file():
        return []
    record = read_record(folder)
    return [*_faults(folder, record, reports)]


def _faults(folder: Path, record: LocalRecord, reports: Mapping[str, CheckReport]) -> Iterator[str]:
    if record.id and not (folder / ETCD / "data").exists():
        yield f"{folder / ETCD} is missing: the cluster's own records are in it"
    for name in record.slices:
        life, report = record.lives.get(name), reports.get(name)
        if report is not None and report.whose is not None:
            yield from _wrong(folder / name, name, record.id, life, report.whose, report.last_lsn)
        elif life is not None and not has_data(folder / name):
            yield f"{folder / name} is missing: the data of slice {name}, up to LSN {life.lsn:,} at least"
    for name in sorted(reports.keys() - set(record.slices)):
        yield f"{folder / name} is of no slice that {RECORD} names"


def _wrong(
    node: Path, name: str, cluster_id: str, life: Life | None, whose: DataIdentity, last_lsn: int
) -> Iterator[str]:
    if whose.slice != name:
        yield f"{node} should have the data of slice {name}, and has that of slice {whose.slice}"
    elif cluster_id and whose.cluster_id != cluster_id:
        yield f"{node} has data of another cluster, {whose.cluster_id[:8]}; this one is {cluster_id[:8]}"
    elif life is not None and life.incarnation and whose.incarnation != life.incarnation:
        yield f"{node} has data that began anew, or another life of slice {name}: {RECORD} knows another incarnation"
    elif life is not None and last_lsn < life.lsn:
        yield f"{node} is an old copy: it ends at LSN {last_lsn:,}, and slice {name} had come to {life.lsn:,}"
