"""Samples of the cluster as the overview and the cluster's state. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from shoal_ops.http import limits, models_admin
from shoal_ops.http.samples import Rates, Sample, SliceSample, total

_HISTORY: Final[dict[str, Callable[[SliceSample], float]]] = {
    "publishes": lambda one: one.rates.publishes,
    "deliveries": lambda one: one.rates.deliveries,
    "changes": lambda one: one.rates.changes,
    "messages": lambda one: one.figures.messages if one.figures else 0,
    "resident_bytes": lambda one: one.figures.memory.resident_bytes if one.figures else 0,
}


def cluster(sample: Sample) -> models_admin.Cluster:
    slices = [
        models_admin.SliceState(
            slice=one.info.slice,
            address=one.info.address,
            epoch=one.info.epoch,
            partitions=one.info.partitions,
            node=one.figures.node if one.figures else "",
            state="serving" if one.figures else "silent",
            problem=one.problem,
        )
        for one in sample.slices
    ]
    return models_admin.Cluster(
        map_version=sample.map_version,
        map_age_ms=sample.map_age_ms,
        partitions=sample.partitions,
        healthy=not sample.problem and all(one.figures is not None for one in sample.slices),
        slices=slices,
    )


def overview(samples: Sequence[Sample]) -> models_admin.Overview:
    """Of one sample at least, oldest first."""
    newest = samples[-1]
    by_slice = [{one.info.slice: one for one in sample.slices} for sample in samples]
    return models_admin.Overview(
        time_ms=newest.time_ms,
        map_version=newest.map_version,
        map_age_ms=newest.map_age_ms,
        partitions=newest.partitions,
        problem=newest.problem,
        every_s=limits.SAMPLE_EVERY_S,
        times_ms=[sample.time_ms for sample in samples],
        rates=_shown_rates(total(one.rates for one in newest.slices)),
        slices=[_slice(one, [known.get(one.info.slice) for known in by_slice]) for one in newest.slices],
    )


def _slice(one: SliceSample, history: Sequence[SliceSample | None]) -> models_admin.SliceGlance:
    return models_admin.SliceGlance(
        slice=one.info.slice,
        address=one.info.address,
        epoch=one.info.epoch,
        partitions=one.info.partitions,
        state="serving" if one.figures else "silent",
        problem=one.problem,
        figures=_figures(one),
        rates=_shown_rates(one.rates),
        history={
            name: [round(read(past), 2) if past is not None and past.figures is not None else None for past in history]
            for name, read in _HISTORY.items()
        },
    )


def _figures(one: SliceSample) -> models_admin.Glance | None:
    found = one.figures
    if found is None:
        return None
    return models_admin.Glance(
        uptime_s=found.uptime_s,
        queues=found.queues,
        keys=found.keys,
        bindings=found.bindings,
        messages=found.messages,
        body_bytes=found.body_bytes,
        sessions=found.sessions,
        attached_queues=found.attached_queues,
        journal_lsn=found.journal.lsn,
        journal_bytes=found.journal.bytes,
        checkpoint_age_s=found.checkpoint.age_s,
        checkpoint_lag=found.checkpoint.lag_records,
        resident_bytes=found.memory.resident_bytes + found.memory.checkpointer_resident_bytes,
        disk_bytes=found.disk_bytes,
    )


def _shown_rates(rates: Rates) -> models_admin.Rates:
    return models_admin.Rates(
        binds=round(rates.binds, 2),
        unbinds=round(rates.unbinds, 2),
        publishes=round(rates.publishes, 2),
        deliveries=round(rates.deliveries, 2),
        acks=round(rates.acks, 2),
    )


FIGURES_EXAMPLE: Final = {
    "slice": "s01",
    "node": "n01",
    "epoch": 1,
    "map_version": 1,
    "partitions": 1366,
    "time_ms": 1_790_000_000_000,
    "uptime_s": 86400.0,
    "queues": 68000,
    "keys": 131953,
    "bindings": 629637,
    "messages": 1200,
    "body_bytes": 150000,
    "sessions": 40,
    "attached_queues": 3000,
    "journal": {"lsn": 1000000, "applied_lsn": 1000000, "segments": 2, "bytes": 50000000},
    "checkpoint": {"lsn": 998500, "age_s": 21.0, "lag_records": 1500, "delta_rows": 9000, "delta_bytes": 900000},
    "memory": {
        "resident_bytes": 90000000,
        "checkpointer_resident_bytes": 30000000,
        "shares": [{"name": "input", "used_bytes": 100000, "limit_bytes": 67108864}],
    },
    "disk_bytes": 400000000,
    "counters": {
        "declares": 68000,
        "binds": 700000,
        "unbinds": 70363,
        "publishes": 743000,
        "chunks": 743000,
        "deliveries": 3500000,
        "acks": 3500000,
        "drops": 0,
        "purges": 0,
        "refusals": 12,
    },
    "trouble": "",
    "version": "0.1.0",
    "incarnation": "5f0c3a9d1e2b4c68",
    "loop_longest_step_us": 3200,
    "lease_remaining_ms": 7400,
    "disk_free_bytes": 180000000000,
    "silent_bindings": 0,
    "refused": {"NO_SUCH_QUEUE": 12},
    "checkpointer_restarts": 0,
}
