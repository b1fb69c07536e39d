"""Computes the service levels that decide a run. Pure: figures in, sentences out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from shoal_loadtest.residents import limits
from shoal_loadtest.residents.core.figures import Figures
from shoal_loadtest.residents.core.load import Load
from shoal_loadtest.residents.core.windows import DOUBLED, FAULT_KINDS


@dataclass(frozen=True, slots=True)
class Level:
    """Is one line of the verdict. `measured` may not exceed `limit`, or (`at_least`) may not be below it."""

    name: str
    measured: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def kept(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def __str__(self) -> str:
        sign = "at least" if self.at_least else "at most"
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.name}: {_shown(self.measured)}{unit}, {sign} {_shown(self.limit)}"


@dataclass(frozen=True, slots=True)
class Ended:
    """Holds the facts of a run at its end. `online_share`: residents online, on average, of those wanted;
    `present_share`: of all.

    `moving_s`: the seconds in which crowds came or went; `moved`: their binds and unbinds. `slack`: multiplies the
    latency limits.
    """

    shape: str
    seconds: float
    faults: Mapping[str, int]
    restarts: int
    failures: int
    online_share: float
    present_share: float
    moving_s: float = 0.0
    moved: int = 0
    slack: float = 1.0


def levels(load: Load, figures: Figures, ended: Ended) -> list[Level]:
    """Returns all levels that must be kept. Repeats without a mark are no fault where a slice restarted: its marks
    begin anew."""
    found = [Level(f"messages {kind}", ended.faults.get(kind, 0), 0, "") for kind in FAULT_KINDS if kind != DOUBLED]
    doubled = 0 if ended.restarts else ended.faults.get(DOUBLED, 0)
    found += [Level(f"messages {DOUBLED}", doubled, 0, ""), Level("failed calls", ended.failures, 0, "")]
    steady = ended.shape == "steady"
    talking = 1.0 if steady else ended.present_share
    found += [
        _latency(figures, "bind", limits.BIND_P99_MS if steady else limits.RUSH_BIND_P99_MS, ended),
        _latency(figures, "unbind", limits.UNBIND_P99_MS if steady else limits.RUSH_BIND_P99_MS, ended),
        _latency(figures, "publish", limits.PUBLISH_P99_MS if steady else limits.RUSH_PUBLISH_P99_MS, ended),
        _latency(figures, "delivery", limits.DELIVERY_P99_MS if steady else limits.RUSH_DELIVERY_P99_MS, ended),
        _rate(figures, ended, "messages", ("messages",), load.messages_per_s * talking),
        Level("messages delivered", figures.counts["deliveries"], 1, "", at_least=True),
    ]
    if steady:
        found += [
            _rate(figures, ended, "membership churn", ("binds", "unbinds"), load.membership_churn_per_s, 9.3),
            _rate(figures, ended, "group churn", ("founded", "ended"), load.group_churn_per_s),
            Level("residents online", ended.online_share, limits.ONLINE_SHARE_MIN, "of those wanted", at_least=True),
        ]
    else:
        moved_per_s = ended.moved / ended.moving_s if ended.moving_s else 0.0
        least = min(limits.RUSH_OPERATIONS_PER_S_MIN, ended.moved / 2) / ended.slack
        found.append(Level("binds and unbinds of crowds", moved_per_s, least, "per s", at_least=True))
    return found


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.4g}"


def _latency(figures: Figures, name: str, limit_ms: float, ended: Ended) -> Level:
    return Level(f"{name} p99", figures.latencies[name].percentile_ms(99), limit_ms * ended.slack, "ms")


def _rate(
    figures: Figures, ended: Ended, name: str, counted: tuple[str, ...], per_s: float, cluster: float = 1.0
) -> Level:
    """Returns the level of a rate. `cluster`: how many events come together; the count scatters more with it."""
    expected = max(1e-9, per_s * ended.seconds)
    scatter = limits.RATE_DEVIATIONS * sqrt(cluster / expected)
    share = min(limits.RATE_SHARE_MIN, 1 - scatter)
    measured = sum(figures.counts[one] for one in counted) / ended.seconds
    return Level(name, measured, max(0.0, share * per_s), "per s", at_least=True)
