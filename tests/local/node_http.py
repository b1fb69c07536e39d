"""Finds the HTTP addresses of a local cluster's nodes: those of health and metrics."""

from __future__ import annotations

from shoal_local.cluster import LocalCluster
from shoal_local.record import http_of, read_record


def node_http(cluster: LocalCluster) -> dict[str, str]:
    """Returns slice -> host:port of its node's HTTP, by the record in the cluster's folder."""
    record = read_record(cluster.log_folder.parent)
    return {name: record.address(http_of(name)) for name in record.slices}
