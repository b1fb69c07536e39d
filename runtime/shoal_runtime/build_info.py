"""Provides `shoal_build_info`, a metric: the version of the program that a process runs. Only servers import this."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from shoal_contract.version import version


class BuildInfo(Collector):
    """Adds `shoal_build_info{component, version} 1` to a registry."""

    def __init__(self, component: str, registry: CollectorRegistry) -> None:
        self._component = component
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("shoal_build_info", "Version of the program.", labels=("component", "version"))
        info.add_metric((self._component, version()), 1)
        yield info
