"""A slice's figures, gathered when asked for: counts that the tables and counters have anyway. Nothing is scanned.

One gathering takes up to 5 ms where the delta is large (its tombstones are counted), and is kept for FIGURES_KEPT_S, so
that many who ask cost as one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from shoal_contract.wire import admin_pb2 as wire
from shoal_slice_node.adapters.archiving import ArchiveFigures
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.commit_loop import now_ms
from shoal_slice_node.core.counters import Counters
from shoal_slice_node.limits import FIGURES_KEPT_S

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Figures:
    """Of one broker, under the names that it leads by."""

    def __init__(self, broker: Broker, slice_name: str, node: str) -> None:
        self._broker = broker
        self._slice = slice_name
        self._node = node
        self._began_s = time.monotonic()
        self._kept: tuple[float, wire.FiguresResponse] | None = None

    def now(self) -> wire.FiguresResponse:
        """Not to be changed by the caller."""
        clock = time.monotonic()
        if self._kept is None or clock - self._kept[0] >= FIGURES_KEPT_S:
            self._kept = (clock, self._gather(clock))
        return self._kept[1]

    @property
    def archive(self) -> ArchiveFigures | None:
        """None: nothing is archived."""
        archiving = self._broker.archiving
        return None if archiving is None else archiving.figures

    def _gather(self, clock: float) -> wire.FiguresResponse:
        broker = self._broker
        state, store, journal = broker.state, broker.store, broker.journal
        tables = state.tables
        return wire.FiguresResponse(
            slice=self._slice,
            node=self._node,
            epoch=broker.epoch,
            map_version=state.map_version,
            partitions=state.owned.count(1),
            time_ms=now_ms(),
            uptime_ms=int((clock - self._began_s) * 1000),
            queues=tables.queue_by_name.entries(),
            keys=tables.key.entries(),
            bindings=tables.binding.entries(),
            messages=state.kept.messages,
            body_bytes=state.kept.body_bytes,
            sessions=broker.client_sessions,
            attached_queues=len(broker.dispatcher.feeds),
            journal=wire.JournalFigures(
                lsn=journal.next_lsn - 1,
                applied_lsn=broker.commit.applied_lsn,
                segments=journal.segment_count,
                bytes=journal.written_bytes,
            ),
            checkpoint=wire.CheckpointFigures(
                lsn=store.checkpoint_lsn,
                age_ms=max(0, now_ms() - store.checkpoint_ms),
                lag_records=broker.commit.applied_lsn - store.checkpoint_lsn,
                delta_rows=store.delta_rows,
                delta_bytes=store.delta_bytes,
            ),
            resident_bytes=resident_bytes(os.getpid()),
            checkpointer_resident_bytes=resident_bytes(store.checkpointer_pid),
            disk_bytes=store.disk_bytes + journal.allocated_bytes,
            counters=_counters(state.counters),
        )


def _counters(counters: Counters) -> wire.Counters:
    return wire.Counters(**{name: getattr(counters, name) for name in Counters.__slots__})


def resident_bytes(pid: int) -> int:
    """Of a process's memory (Linux: /proc/PID/statm); 0 if it is gone, or where there is no such file."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError):
        return 0
