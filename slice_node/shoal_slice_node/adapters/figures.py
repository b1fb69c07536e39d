"""Gathers a slice's figures when they are requested, from counts that tables and counters keep anyway: without a scan.

Gathering takes up to 5 ms where the delta is large (its tombstones are counted). The result is kept for FIGURES_KEPT_S,
so many requests cost as much as one.
"""

from __future__ import annotations

import os
import time

from shoal_contract.data_identity import DataIdentity
from shoal_contract.version import version
from shoal_contract.wire import admin_pb2 as wire
from shoal_runtime.memory_guard import MemoryGuard
from shoal_slice_node.adapters.archiving import ArchiveFigures
from shoal_slice_node.adapters.broker import Broker
from shoal_slice_node.adapters.clock import wall_ms
from shoal_slice_node.adapters.limits import FIGURES_KEPT_S
from shoal_slice_node.core.apply.counters import Counters
from shoal_slice_node.core.rows import farewell_row
from shoal_slice_node.core.rows.due_row import DELAYED, decode_counts
from shoal_slice_node.core_choice import running_core
from shoal_slice_node.storage.mapped_memory import resident_bytes


class Figures:
    """Gathers one broker's figures. `slice_name`, `node`: the names under which it leads its slice."""

    def __init__(self, broker: Broker, slice_name: str, node: str) -> None:
        self._broker = broker
        self._slice = slice_name
        self._node = node
        identity = broker.journal.identity
        self._incarnation = DataIdentity.decode(identity).incarnation if identity else ""
        self._began_s = time.monotonic()
        self._kept: tuple[float, wire.FiguresResponse] | None = None

    def now(self) -> wire.FiguresResponse:
        """Returns the figures, at most FIGURES_KEPT_S old. The caller must not change them."""
        clock = time.monotonic()
        if self._kept is None or clock - self._kept[0] >= FIGURES_KEPT_S:
            self._kept = (clock, self._gather(clock))
        return self._kept[1]

    @property
    def archive(self) -> ArchiveFigures | None:
        """Returns the archive's figures; None if nothing is archived."""
        archiving = self._broker.archiving
        return None if archiving is None else archiving.figures

    @property
    def refuses(self) -> str:
        """Says why changes are refused now, as a sentence; "" while they are taken."""
        return self._broker.refuses

    @property
    def checkpoint_problem(self) -> str:
        """Says why the last attempt to write a checkpoint failed; "" if it succeeded."""
        return self._broker.checkpoints.problem

    @property
    def clock_behind_ms(self) -> int:
        """Returns how far this machine's clock is behind the newest record; 0 if it is not."""
        return self._broker.clock.behind_ms

    @property
    def watches(self) -> int:
        """Returns the number of watches of members and counts that are open now."""
        return len(self._broker.node.watching)

    @property
    def farewells_ended(self) -> int:
        """Returns how many farewells for other slices ended, as their keys were full for too long."""
        return self._broker.dispatcher.farewells.letters.ended

    @property
    def guard(self) -> MemoryGuard:
        """Returns what ends connections for memory, or for room on a port."""
        return self._broker.watchman.guard

    def _gather(self, clock: float) -> wire.FiguresResponse:
        broker = self._broker
        state, store, journal = broker.state, broker.store, broker.journal
        tables = state.tables
        delayed = decode_counts(tables.meta.get(DELAYED))
        farewells = farewell_row.decode_counts(tables.meta.get(farewell_row.FAREWELLS))
        return wire.FiguresResponse(
            slice=self._slice,
            node=self._node,
            epoch=broker.lead.epoch,
            map_version=state.map_version,
            partitions=state.owned.count(1),
            time_ms=wall_ms(),
            uptime_ms=int((clock - self._began_s) * 1000),
            queues=tables.queue_by_name.entries(),
            keys=tables.key.entries(),
            bindings=tables.binding.entries(),
            messages=state.kept.messages,
            body_bytes=state.kept.body_bytes,
            sessions=len(broker.writers),
            attached_queues=len(broker.dispatcher.feeds),
            journal=wire.JournalFigures(
                lsn=journal.next_lsn - 1,
                applied_lsn=broker.node.commit.applied_lsn,
                segments=journal.segment_count,
                bytes=journal.written_bytes,
            ),
            checkpoint=wire.CheckpointFigures(
                lsn=store.checkpoint_lsn,
                age_ms=max(0, wall_ms() - store.checkpoint_ms),
                lag_records=broker.node.commit.applied_lsn - store.checkpoint_lsn,
                delta_rows=store.delta_rows,
                delta_bytes=store.delta_bytes,
            ),
            resident_bytes=resident_bytes(os.getpid()),
            checkpointer_resident_bytes=resident_bytes(store.checkpointer_pid),
            disk_bytes=store.disk_bytes + journal.allocated_bytes,
            disk_free_bytes=store.disk_free_bytes,
            counters=_counters(state.counters),
            refused=[wire.RefusalCount(code=code, count=count) for code, count in state.counters.refused.items()],
            loop_longest_step_us=int(broker.steps.longest_s * 1e6),
            lease_remaining_ms=int(broker.lead.remaining_s * 1000),
            memory=self._memory(),
            silent_bindings=broker.watchman.silent,
            trouble=broker.trouble,
            checkpointer_restarts=store.checkpointer_restarts,
            version=version(),
            incarnation=self._incarnation,
            core=running_core(),
            letters_waiting=broker.dispatcher.letters.unsent,
            delayed_publishes=delayed.chunks,
            delayed_bytes=delayed.chunk_bytes,
            farewells=farewells.rows,
            farewell_bytes=farewells.message_bytes,
        )

    def _memory(self) -> list[wire.MemoryShare]:
        broker, plan = self._broker, self._broker.options.memory
        shares = broker.dispatcher.shares
        shown = [
            (share.name, share.used_bytes, share.limit_bytes)
            for share in (shares.deliveries, shares.attached, shares.owed, broker.answers.share)
        ]
        shown.append(("pending", broker.node.commit.pending_bytes, plan.pending_bytes))
        shown.append(("delta", broker.store.delta_bytes, plan.delta_bytes))
        return [wire.MemoryShare(name=name, used_bytes=used, limit_bytes=limit) for name, used, limit in shown]


def _counters(counters: Counters) -> wire.Counters:
    names = [field.name for field in wire.Counters.DESCRIPTOR.fields]
    return wire.Counters(**{name: getattr(counters, name) for name in names})
