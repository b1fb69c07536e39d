"""Compares etcd's records with what a local cluster remembers of its slices, and makes lost records anew if told to.

A slice whose data is gone, too, would otherwise begin anew in silence, and so would one with an old copy of its data.
Belongs here: what was lost, what is said, making records anew. Does not: whether a slice may go on with its data: the
slice node decides that by the records (shoal_coordination.slice_data).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from shoal_contract.data_folder import has_data
from shoal_contract.errors import Conflict
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_coordination.entries import Put, absent
from shoal_coordination.keys import ClusterKeys
from shoal_coordination.records import SliceRecord, decode_record, encode_record
from shoal_local.commands import CLUSTER
from shoal_local.record import ETCD, Life, LocalRecord

REBUILD: Final = "--rebuild-etcd"
_KEYS: Final = ClusterKeys(CLUSTER)


def check_etcd_folder(folder: Path, record: LocalRecord) -> None:
    """Raises Conflict if slices were led and etcd's folder is gone: known before etcd is started and makes it anew."""
    if not (folder / ETCD / "data").exists():
        _refuse(folder, _lost(folder, record, known=False, held={}))


async def open_records(client: EtcdClient, folder: Path, record: LocalRecord, rebuild: bool) -> str:
    """Makes the cluster's records, unless etcd has them. Returns the cluster's id. `rebuild`: lost records are made
    anew from what `record` remembers; else they raise Conflict, which names each slice. Raises what EtcdClient raises.
    """
    known = await client.get(_KEYS.config) is not None
    held = await read_lives(client)
    lost = _lost(folder, record, known, held)
    old = sorted(name for name, life in record.lives.items() if name in held and is_older(held[name], life))
    if not rebuild:
        _refuse(folder, lost)
        _refuse(folder, old, "has older records than it had, of slices")
    config = await create_cluster(client, CLUSTER, record.slices, cluster_id=record.id)
    for name in (*lost, *old):
        # An epoch above 0 says that the slice was led: if its data is missing, the node refuses to begin anew.
        life = record.lives.get(name, Life(1, "", 0))
        made = SliceRecord(name, life.epoch, incarnation=life.incarnation, lsn=life.lsn)
        missing = [absent(_KEYS.slice(name))] if name in lost else []
        await client.transact(missing, [Put(_KEYS.slice(name), encode_record(made))], [])
    return config.id


async def read_lives(client: EtcdClient) -> dict[str, Life]:
    """Returns what etcd knows of each slice that was led."""
    records = [decode_record(entry, SliceRecord) for entry in (await client.range_prefix(_KEYS.slices)).entries]
    return {one.name: Life(one.epoch, one.incarnation, one.lsn) for one in records if one.epoch}


def is_older(life: Life, than: Life) -> bool:
    """Returns whether `life` is an earlier state of a slice's record: epochs grow, and LSNs grow within an epoch."""
    return (life.epoch, life.lsn) < (than.epoch, than.lsn)


def _lost(folder: Path, record: LocalRecord, known: bool, held: dict[str, Life]) -> list[str]:
    """Returns the slices whose records etcd should have, and has not. `known`: whether etcd has the cluster's own."""
    if known:
        return [name for name in record.lives if name not in held]
    if record.id or any(has_data(folder / name) for name in record.slices):
        return list(record.slices)
    return []


def _refuse(folder: Path, names: list[str], what: str = "has lost the records of slices") -> None:
    if not names:
        return
    told = ", ".join(f"{name} (its data is {'there' if has_data(folder / name) else 'MISSING'})" for name in names)
    raise Conflict(
        f"etcd in {folder / ETCD} {what} that were led: {told}. Nothing serves. Put etcd's"
        f" folder back as it was; or, if it is gone for good, start once with `shoal up --data {folder} {REBUILD}`: the"
        f" records are made anew from what {folder} remembers, and a slice is still refused whose data is missing, or"
        f" older than at its last start or clean stop",
        subject=str(folder),
    )
