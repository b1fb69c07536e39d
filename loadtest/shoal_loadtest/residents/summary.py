"""The JSON summary of a run, and the same in sentences for a terminal."""

from __future__ import annotations

from pathlib import Path

import msgspec

from shoal_loadtest.residents.core.figures import Figures
from shoal_loadtest.residents.setting import Setting

PERCENTS = (50, 95, 99, 99.9)


class Population(msgspec.Struct, frozen=True):
    """Describes the population when measuring began. `consumed_share`: the share of the residents for which every
    message is checked."""

    residents: int
    groups: int
    memberships: int
    group_size_mean: float
    group_size_deviation: float
    group_size_max: int
    consumed_share: float


class Latency(msgspec.Struct, frozen=True):
    """Describes one kind of latency, in milliseconds."""

    count: int
    percentiles_ms: dict[str, float]
    longest_ms: float


class Used(msgspec.Struct, frozen=True):
    """Holds the mean and the peak of one figure while measuring."""

    mean: float
    peak: float


class Summary(msgspec.Struct, frozen=True):
    """Holds all results of a run. `levels`: (sentence, kept). `cases`: the first faults; `failures`: the first failed
    calls.

    `checked`: messages that came, once for each member; `audited`: messages that should have come and were looked for.
    `per_s`: means while measuring. `usage`: memory (MB resident) and CPU (100: a core) by role.
    """

    passed: bool
    broken: str
    setting: Setting
    levels: list[tuple[str, bool]]
    cases: list[str]
    failures: list[str]
    population: Population
    warm_up_s: float
    measured_s: float
    per_s: dict[str, float]
    latencies: dict[str, Latency]
    checked: int
    audited: int
    redelivered: int
    restarts: int
    usage: dict[str, Used]


def latencies_of(figures: Figures) -> dict[str, Latency]:
    return {
        name: Latency(
            histogram.count,
            {f"{percent:g}": round(histogram.percentile_ms(percent), 2) for percent in PERCENTS},
            round(histogram.longest_ms, 2),
        )
        for name, histogram in sorted(figures.latencies.items())
    }


def usage_of(figures: Figures) -> dict[str, Used]:
    used = {name: [point.value for point in line] for name, line in figures.lines.items() if name.endswith(("MB", "%"))}
    return {name: Used(round(sum(values) / len(values), 1), round(max(values), 1)) for name, values in used.items()}


def read_summary(path: Path) -> Summary:
    """Returns the summary in a file. Raises OSError, msgspec.ValidationError."""
    return msgspec.json.decode(path.read_bytes(), type=Summary)


def told(summary: Summary) -> str:
    """Returns the verdict, for people."""
    people, setting = summary.population, summary.setting
    lines = [
        f"scale {setting.scale:g}, {setting.shape}: {people.residents:,} residents, {people.groups:,} groups,"
        f" {people.memberships:,} memberships; group sizes mean {people.group_size_mean}, deviation"
        f" {people.group_size_deviation}, largest {people.group_size_max}",
        f"warm-up {summary.warm_up_s:g} s, measured {summary.measured_s:g} s;"
        f" {people.consumed_share:.1%} of the residents checked {summary.checked:,} messages",
    ]
    for name, latency in summary.latencies.items():
        shown = ", ".join(f"p{percent} {value:g}" for percent, value in latency.percentiles_ms.items())
        lines.append(f"  {name:<9} {latency.count:>9,} x  {shown}, longest {latency.longest_ms:g} ms")
    lines += [f"  {name:<18} mean {used.mean:,.0f}, peak {used.peak:,.0f}" for name, used in summary.usage.items()]
    lines += [f"  {'ok  ' if kept else 'FAIL'} {sentence}" for sentence, kept in summary.levels]
    lines += [f"  fault: {case}" for case in summary.cases]
    lines += [f"  failed: {failure}" for failure in summary.failures]
    lines += [f"  broken: {summary.broken}"] if summary.broken else []
    lines.append("passed" if summary.passed else "FAILED")
    return "\n".join(lines) + "\n"
