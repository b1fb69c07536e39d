"""Prometheus figures of this process. Labels are route templates, methods and status classes: a bounded number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from shoal_runtime.build_info import BuildInfo
from shoal_runtime.http.kept_text import KeptText

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the series and say nothing new
_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})


class _ReadCounter(Collector):
    """Shows a counter, and reads its value when asked. Prometheus' own counters cannot, while its gauges can."""

    def __init__(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        self._name = name
        self._meaning = meaning
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(self._name, self._meaning, self._read())


class Metrics:
    """Keeps the figures of this process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        BuildInfo("admin", self._registry)
        self._requests = Counter(
            "shoal_admin_requests_total",
            "Requests answered.",
            ("route", "method", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "shoal_admin_request_seconds",
            "Time to the end of the answer; event streams are left out.",
            ("route",),
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self.published = Counter("shoal_admin_published_messages_total", "Published.", registry=self._registry)
        self.pulled = Counter("shoal_admin_pulled_messages_total", "Answered to pulls.", registry=self._registry)
        self.pushed = Counter("shoal_admin_pushed_messages_total", "Written to streams.", registry=self._registry)
        self.streams_ended = Counter(
            "shoal_admin_streams_ended_total",
            "Streams ended from this side, by reason.",
            ("reason",),
            registry=self._registry,
        )
        self.text = KeptText(lambda: generate_latest(self._registry)).now
        """Returns what `/metrics` answers."""

    def watch(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Adds a gauge that is read when asked for."""
        Gauge(name, meaning, registry=self._registry).set_function(read)

    def count(self, name: str, meaning: str, read: Callable[[], float]) -> None:
        """Adds a counter that is read when asked for; `_total` is added to its name."""
        self._registry.register(_ReadCounter(name, meaning, read))

    def answered(self, route: str, method: str, status: int, seconds: float | None) -> None:
        """Counts an answered request. `route`: a template, "" where none matched. `seconds` None: an event stream,
        which has no latency."""
        known = method if method in METHODS else "other"
        self._requests.labels(route or "none", known, f"{status // 100}xx").inc()
        if seconds is not None:
            self._seconds.labels(route or "none").observe(seconds)
