"""Recovers a node's data at its start: finds out whose data it is, and builds the state from checkpoint and journal.

Belongs here: looking before anything is changed, opening, replaying in steps. Not here: whether the node may serve it
(slice_data), what records do (core).
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from shoal_contract.data_folder import JOURNAL_FOLDER, STORE_FOLDER
from shoal_contract.data_identity import DataIdentity
from shoal_contract.errors import Conflict, Corrupt, ShoalError
from shoal_slice_node.adapters.limits import (
    DELTA_AGE_MS,
    DELTA_BYTES_MAX,
    DELTA_ROWS_MAX,
    DELTA_STALL_FACTOR,
    DELTA_START_FACTOR,
    LOOP_SLICE_MS,
    TAIL_BYTES_MAX,
    TAIL_OPERATIONS_MAX,
)
from shoal_slice_node.adapters.store import Store
from shoal_slice_node.core.apply.effects import Effects
from shoal_slice_node.core.node.freezing import FreezeLimits, Freezing
from shoal_slice_node.core.node.replica import Replica
from shoal_slice_node.core.turns import Work
from shoal_slice_node.storage.files import DiskFiles
from shoal_slice_node.storage.journal_files import Journal
from shoal_slice_node.storage.journal_reader import list_segments
from shoal_slice_node.storage.journal_segment import read_head
from shoal_slice_node.storage.lmdb_layout import DATA_FILE, is_made
from shoal_slice_node.storage.lmdb_tables import LmdbBase

_log = logging.getLogger(__name__)
FREEZE_LIMITS = FreezeLimits(DELTA_BYTES_MAX, DELTA_AGE_MS, TAIL_OPERATIONS_MAX, TAIL_BYTES_MAX)


@dataclass(frozen=True, slots=True)
class Found:
    """Describes the data found in a folder. `identity`: whose data it is; None: the data does not say."""

    identity: DataIdentity | None
    checkpoint_lsn: int


@dataclass(frozen=True, slots=True)
class Recovered:
    """Holds the recovered parts of a node. `freezing` decides when the replica's changes are frozen. `replayed`: the
    number of records that the checkpoint did not have."""

    store: Store
    journal: Journal
    replica: Replica
    freezing: Freezing
    replayed: int

    async def close(self) -> None:
        """Closes journal and store; for the case that nothing takes them over."""
        await asyncio.to_thread(self.journal.close)
        await self.store.close()


def look(folder: Path) -> Found | None:
    """Returns whose data a node's folder holds; None: it holds none. Changes nothing.

    Raises Conflict where store and journal name different identities, Corrupt, Malformed.
    """
    store, journal = folder / STORE_FOLDER, folder / JOURNAL_FOLDER
    said: dict[str, bytes] = {}
    checkpoint_lsn = 0
    files = DiskFiles()
    segments = list_segments(files, journal) if journal.is_dir() else []
    if is_made(store) or (segments and (store / DATA_FILE).is_file()):
        base = LmdbBase(store)
        try:
            said["its store"], checkpoint_lsn = base.identity, base.lsn
        finally:
            base.close()
    for segment in segments[:1]:
        head = read_head(files.read(segment.path))
        if head is not None:
            said["its journal"] = head.identity
    if not said:
        return None
    if len(set(said.values())) > 1:
        told = "; ".join(f"{what} is of {_shown(identity)}" for what, identity in said.items())
        raise Conflict(f"{folder} is put together from two nodes' data: {told}", subject=str(folder))
    (identity,) = set(said.values())
    return Found(DataIdentity.decode(identity) if identity else None, checkpoint_lsn)


def standalone_identity(found: Found | None, slice_name: str, node: str) -> DataIdentity:
    """Returns the identity with which a standalone node goes on. Raises Conflict for data of a cluster, or of another
    slice."""
    if found is None or found.identity is None:
        return DataIdentity("", slice_name, node, uuid4().hex)
    if found.identity.cluster_id or found.identity.slice != slice_name:
        raise Conflict(
            f"the folder holds the data of {found.identity}; slice {slice_name}, alone, was told to use it: give it a"
            " folder of its own",
            subject=slice_name,
        )
    return found.identity


def _shown(identity: bytes) -> str:
    return str(DataIdentity.decode(identity)) if identity else "an unnamed node"


async def recover(
    folder: Path, identity: DataIdentity | None = None, delta_rows_max: int = DELTA_ROWS_MAX
) -> Recovered:
    """Opens the folder's store and journal, or makes them with this identity; then replays the journal above the
    checkpoint.

    Raises Conflict (another process has the folder), Corrupt, ResourceExhausted.
    """
    encoded = b"" if identity is None else identity.encode()
    store = await Store.open(folder / STORE_FOLDER, delta_rows_max, encoded)
    try:
        journal = Journal.open(folder / JOURNAL_FOLDER, store.checkpoint_lsn, identity=encoded)
        replica = Replica(store.tables, store.checkpoint_lsn)
        freezing = Freezing(replica.state, store, FREEZE_LIMITS)
        replayed = await _replay(replica, store, journal, freezing)
    except BaseException:
        await store.close()
        raise
    return Recovered(store, journal, replica, freezing, replayed)


def _step(work: Work[Effects]) -> Effects | None:
    """Does a step of applying a record. Returns its effects when it is applied."""
    try:
        next(work)
    except StopIteration as stop:
        effects: Effects = stop.value
        return effects
    return None


def _is_oversized(store: Store, freezing: Freezing) -> bool:
    return not store.freezing and freezing.is_large(DELTA_STALL_FACTOR)


async def _bound(store: Store, freezing: Freezing) -> None:
    """Writes what is frozen before the delta over it grows without bound: a journal may be longer than what a running
    node takes, as one that is replayed without its store. Raises what the checkpoint raises."""
    if store.freezing and freezing.is_large(DELTA_START_FACTOR):
        await store.checkpoint()


async def _checkpoint(store: Store) -> None:
    """Writes the frozen delta. Tries again once, since a checkpointer may be killed; then it stays frozen, and the
    node's checkpoints try it. Raises Corrupt."""
    for _ in range(2):
        try:
            await store.checkpoint()
            return
        except Corrupt:
            raise
        except ShoalError as error:
            _log.warning("a checkpoint failed during the start, which goes on without it: %s", error)


async def _replay(replica: Replica, store: Store, journal: Journal, freezing: Freezing) -> int:
    """Applies the records that the checkpoint does not have, LOOP_SLICE_MS at a time. Returns their number. Only an
    oversized tail, and what a set-aside record left, is checkpointed during replay; otherwise the first checkpoint
    waits until the node follows. Where one fails, what is frozen stays so: a node on a full disk starts, since it is
    drops and purges that free it."""
    began = turn_began = time.perf_counter()
    state, replayed = replica.state, 0
    for record in journal.records(store.checkpoint_lsn + 1):
        work = replica.in_steps(record)
        while (effects := _step(work)) is None:
            if replica.may_stop_within(record) and _is_oversized(store, freezing):
                freezing.freeze(replica.save_part())
                await _checkpoint(store)
            await _bound(store, freezing)
        replayed += 1
        if effects.set_aside:
            _log.warning(
                "journal record %d was set aside by an operator (shoal repair --skip): what cannot be applied of it is"
                " left out",
                record.lsn,
            )
        if (effects.set_aside and not store.freezing) or _is_oversized(store, freezing):
            # What was left out is decided once: another version might apply it later, below what is acknowledged now.
            freezing.freeze()
            await _checkpoint(store)
        await _bound(store, freezing)
        if time.perf_counter() - turn_began > LOOP_SLICE_MS / 1000:
            await asyncio.sleep(0)
            turn_began = time.perf_counter()
    _log.info(
        "the journal was replayed to LSN %d: %d records in %.2f s",
        *(state.lsn, replayed, time.perf_counter() - began),
    )
    return replayed
