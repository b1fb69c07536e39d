"""Turns samples of the cluster into the overview and the cluster's state. Pure."""

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
            trouble=_trouble(one),
        )
        for one in sample.slices
    ]
    return models_admin.Cluster(
        map_version=sample.map_version,
        map_age_ms=sample.map_age_ms,
        partitions=sample.partitions,
        healthy=not sample.problem and all(one.figures and not one.figures.trouble for one in sample.slices),
        slices=slices,
    )


def overview(samples: Sequence[Sample]) -> models_admin.Overview:
    """Returns the overview of samples: one at least, oldest first."""
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


def _trouble(one: SliceSample) -> str:
    return one.figures.trouble if one.figures else ""


def _slice(one: SliceSample, history: Sequence[SliceSample | None]) -> models_admin.SliceGlance:
    return models_admin.SliceGlance(
        slice=one.info.slice,
        address=one.info.address,
        epoch=one.info.epoch,
        partitions=one.info.partitions,
        state="serving" if one.figures else "silent",
        problem=one.problem,
        trouble=_trouble(one),
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
