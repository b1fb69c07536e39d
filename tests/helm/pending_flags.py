"""Flags that the chart passes and a slice node of this checkout does not take yet: left out where it is really started.

To be removed, with its uses, once the slice node takes them all: then it leaves out nothing.
"""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy
from functools import lru_cache

from shoal_chart.chart import Manifest
from shoal_chart.pods import template_of, workloads

PENDING = {"--admin-listen", "--admin-advertise", "--memory-mib", "--stop-s", "--archive-every", "--accept-empty"}


@lru_cache
def taken() -> str:
    """What the node's help says."""
    command = [sys.executable, "-m", "shoal_slice_node", "--help"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def without_pending(manifests: list[Manifest]) -> list[Manifest]:
    found = deepcopy(manifests)
    for one in workloads(found):
        for container in template_of(one)["spec"]["containers"]:
            if container["command"][-1] == "shoal_slice_node":
                unknown = {flag for flag in PENDING if f"{flag} " not in taken()}
                container["args"] = [word for word in container["args"] if word.partition("=")[0] not in unknown]
    return found
