"""Counts a redirector's requests, and writes its metrics in Prometheus's text form. Bounded: no label holds a key."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from shoal_redirector.adapters.board import Board
from shoal_runtime import guard_metrics
from shoal_runtime.build_info import BuildInfo
from shoal_runtime.http.kept_text import KeptText
from shoal_runtime.memory_guard import MemoryGuard


class Tally:
    """Keeps plain counters, added to by the services. `watchers`: streams open now; `watchers_max`: how many may be
    open."""

    def __init__(self, watchers_max: int = 0) -> None:
        self.watchers_max = watchers_max
        self.locates = 0
        self.keys_located = 0
        self.map_responses = 0
        self.watchers = 0
        self.watchers_refused = 0

    def located(self, keys: int) -> None:
        self.locates += 1
        self.keys_located += keys


class RedirectorMetrics(Collector):
    """Collects the metrics. `text` returns what `/metrics` answers."""

    def __init__(self, board: Board, tally: Tally, guard: MemoryGuard | None = None) -> None:
        """`guard`: what ends gRPC's connections, if there is one."""
        self._guard = guard
        self._board = board
        self._tally = tally
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        BuildInfo("redirector", self._registry)
        self.text = KeptText(lambda: generate_latest(self._registry)).now

    def collect(self) -> Iterator[Metric]:
        board, tally = self._board, self._tally
        directory = board.directory
        gauges = (
            ("map_version", "Version of the partition map; 0 before the first.", directory and directory.map.version),
            ("map_age_seconds", "Since etcd was last heard; 0 while connected.", board.age_ms / 1000),
            ("map_partitions", "Partitions of the map.", directory and directory.map.partitions),
            ("slices", "Slices known.", directory and len(directory.slices)),
            ("slices_without_leader", "Slices without an address.", directory and directory.without_leader),
            ("watchers", "Streams that watch the map.", tally.watchers),
            ("watchers_limit", "How many there is memory for.", tally.watchers_max),
        )
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"shoal_redirector_{name}", text, value or 0)
        counters = (
            ("locates", "Locate calls answered, gRPC and HTTP.", tally.locates),
            ("keys_located", "Keys in them.", tally.keys_located),
            ("map_responses", "Maps and changes sent to watchers.", tally.map_responses),
            ("watchers_refused", "Watchers refused for want of memory.", tally.watchers_refused),
        )
        for name, text, value in counters:
            yield CounterMetricFamily(f"shoal_redirector_{name}", text, value)
        if self._guard is not None:
            for name, text, of in guard_metrics.GAUGES:
                yield GaugeMetricFamily(f"shoal_redirector_{name}", text, of(self._guard))
            for name, text, of in guard_metrics.COUNTERS:
                yield CounterMetricFamily(f"shoal_redirector_{name}", text, of(self._guard))
