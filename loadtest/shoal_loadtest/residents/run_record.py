"""The record of a run: takes reports, and at the end writes the verdict, a JSON summary and a page with plots.

Belongs here: putting together what generators, processes and levels report. Not here: Locust, the page's looks
(page.py).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from math import sqrt

import msgspec

from shoal_loadtest.residents import wire
from shoal_loadtest.residents.core.figures import Figures
from shoal_loadtest.residents.core.levels import Ended, Level, levels
from shoal_loadtest.residents.core.load import load_at
from shoal_loadtest.residents.fleet import Fleet
from shoal_loadtest.residents.limits import FAULT_CASES_MAX, PROGRESS_EVERY_S
from shoal_loadtest.residents.page import write_page
from shoal_loadtest.residents.setting import Setting
from shoal_loadtest.residents.summary import Population, Summary, latencies_of, usage_of
from shoal_loadtest.residents.usage import Usage

_log = logging.getLogger(__name__)
Fire = Callable[[str, float, Exception | None], None]
"""Takes (name of the call, ms, why it failed)."""


class CallFailed(Exception):
    """Says that a resident's call was refused, or not answered."""


class RunRecord:
    """Records a run. `fire` gets every latency while measuring, and every failure."""

    def __init__(self, setting: Setting, fire: Fire) -> None:
        self._setting = setting
        self._fire = fire
        self._figures = Figures()
        self._usage = Usage()
        self._failures: list[str] = []
        self._failure_count = 0
        self._online: list[tuple[int, int, int]] = []
        """(online, wanted, all) residents, at each report."""
        self._moved_before = (0, 0.0)
        self._began_s = time.monotonic()
        self._warm_up_s = 0.0
        self._told_s = self._began_s
        self.fleet = Fleet(setting, self._report)
        self.measuring = False
        self.since_s = 0.0
        """The moment at which measuring began; time.monotonic."""
        self.ended = False
        self.passed = False

    @property
    def faulty(self) -> bool:
        """Returns whether there is any fault: one is enough for the run to fail."""
        return bool(self.fleet.faults)

    def start(self) -> None:
        """Starts the generators, and watches all processes from now on."""
        self.fleet.start()
        own = [("cluster", self._setting.cluster_pid)] if self._setting.cluster_pid else []
        self._usage.roots = [*own, *(("generators", pid) for pid in self.fleet.pids), ("locust", os.getpid())]

    def measure(self) -> None:
        """Begins to measure: the warm-up is over."""
        self.measuring = True
        self.since_s = time.monotonic()
        self._warm_up_s = self.since_s - self._began_s
        self._moved_before = (self.fleet.moved, self.fleet.moving_s)
        self.fleet.tell(wire.Measure())

    def look(self) -> None:
        """Adds a point to every plot, and now and then logs a line of progress."""
        used = self._usage.look()
        if time.monotonic() - self._told_s >= PROGRESS_EVERY_S:
            self._told_s = time.monotonic()
            _log.info("shoal: %s", self._progress())
        if self.measuring and not self.ended:
            online = {"residents online": float(self.fleet.online), "residents wanted": float(self.fleet.wanted)}
            self._figures.point(time.monotonic() - self.since_s, {**used, **online})

    def _progress(self) -> str:
        now_s = time.monotonic()
        online = f"{self.fleet.online:,} residents online"
        if not self.measuring:
            return f"{now_s - self._began_s:.0f} s of warm-up, {online}"
        counts = self._figures.counts
        told = ", ".join(f"{counts[name]:,} {name}" for name in ("binds", "unbinds", "messages", "deliveries"))
        return f"{now_s - self.since_s:.0f} of {self._setting.duration_s:.0f} s, {online}, {told}"

    def end(self) -> None:
        """Lets the generators check all messages, and writes the results."""
        seconds = time.monotonic() - self.since_s if self.measuring else 0.0
        self.ended = True
        self.fleet.finish()
        summary = self._summary(seconds)
        self.passed = summary.passed
        (self._setting.folder / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
        write_page(self._setting.folder / "report.html", summary, self._figures)

    def _report(self, report: wire.Report) -> None:
        for name, why in report.failures:
            self._failure_count += 1
            if len(self._failures) < FAULT_CASES_MAX:
                self._failures.append(f"{name}: {why}")
            self._fire(name, 0.0, CallFailed(why))
        if not self.measuring:
            return
        self._figures.measured(report.samples_ms, report.counts)
        for name, latencies_ms in report.samples_ms.items():
            for latency_ms in latencies_ms:
                self._fire(name, latency_ms, None)
        self._online.append((report.online, report.wanted, self.fleet.seats // self._setting.generators))

    def _summary(self, seconds: float) -> Summary:
        setting, fleet = self._setting, self.fleet
        verdict: list[Level] = []
        if seconds and not fleet.broken:
            online, wanted, everyone = map(sum, zip(*self._online, strict=True)) if self._online else (0, 1, 1)
            ended = Ended(
                shape=setting.shape,
                seconds=seconds,
                faults=fleet.faults,
                restarts=self._usage.restarts,
                failures=self._failure_count,
                online_share=online / max(1, wanted),
                present_share=online / everyone,
                moving_s=fleet.moving_s - self._moved_before[1],
                moved=fleet.moved - self._moved_before[0],
                slack=setting.slack,
            )
            verdict = levels(load_at(setting.scale, setting.pace), self._figures, ended)
        finished = list(fleet.finished.values())
        return Summary(
            passed=bool(verdict) and all(level.kept for level in verdict),
            broken=fleet.broken,
            setting=setting,
            levels=[(str(level), level.kept) for level in verdict],
            cases=[case for one in finished for case in one.cases][:FAULT_CASES_MAX],
            failures=self._failures,
            population=self._population(),
            warm_up_s=round(self._warm_up_s, 1),
            measured_s=round(seconds, 1),
            per_s={name: round(count / seconds, 2) for name, count in self._figures.counts.items() if seconds},
            latencies=latencies_of(self._figures),
            checked=sum(one.seen for one in finished),
            audited=sum(one.audited for one in finished),
            redelivered=sum(one.redelivered for one in finished),
            restarts=self._usage.restarts,
            usage=usage_of(self._figures),
        )

    def _population(self) -> Population:
        sizes = [one.sizes for one in self.fleet.finished.values()]
        groups, memberships = sum(one.groups for one in sizes), sum(one.memberships for one in sizes)
        mean = memberships / groups if groups else 0.0
        squares = sum(one.squares for one in sizes) / groups if groups else 0.0
        seats = self.fleet.seats
        consumed = sum(ready.consumed for ready in self.fleet.ready.values())
        return Population(
            residents=seats,
            groups=groups,
            memberships=memberships,
            group_size_mean=round(mean, 3),
            group_size_deviation=round(sqrt(max(0.0, squares - mean * mean)), 3),
            group_size_max=max((one.largest for one in sizes), default=0),
            consumed_share=round(consumed / seats, 4) if seats else 0.0,
        )
