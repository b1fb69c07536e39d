"""Finds which pods Kubernetes makes of a workload. Belongs here: names, labels, ordinals. Not here: starting them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from shoal_chart.chart import Manifest, hooks_of

SERVERS = ("StatefulSet", "Deployment")
JOBS = ("Job", "CronJob")
POD_INDEX = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True)
class Pod:
    """Describes one pod. `claims`: names of the volumes for which each pod of the set has its own claim. `ends`:
    whether it belongs to a job."""

    name: str
    namespace: str
    labels: dict[str, str]
    spec: dict[str, Any]
    claims: tuple[str, ...]
    ends: bool

    @property
    def containers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.spec["containers"]
        return found

    @property
    def ports(self) -> dict[str, int]:
        """Returns the ports of all containers, by name."""
        return {port["name"]: port["containerPort"] for one in self.containers for port in one.get("ports", ())}


def template_of(manifest: Manifest) -> dict[str, Any]:
    """Returns the pod template of a workload."""
    spec = manifest["spec"]
    template: dict[str, Any] = (spec["jobTemplate"]["spec"] if manifest["kind"] == "CronJob" else spec)["template"]
    return template


def workloads(manifests: Iterable[Manifest]) -> list[Manifest]:
    return [one for one in manifests if one["kind"] in SERVERS + JOBS]


def pods_of(workload: Manifest, namespace: str) -> Iterator[Pod]:
    """Yields all pods that a workload makes; for a CronJob, those of one run."""
    template, name = template_of(workload), workload["metadata"]["name"]
    claims = tuple(one["metadata"]["name"] for one in workload["spec"].get("volumeClaimTemplates", ()))
    ends = workload["kind"] in JOBS
    for ordinal in range(1 if ends else workload["spec"].get("replicas", 1)):
        pod_name, labels = f"{name}-{ordinal}", dict(template["metadata"]["labels"])
        if workload["kind"] == "StatefulSet":
            labels |= {POD_INDEX: str(ordinal), "statefulset.kubernetes.io/pod-name": pod_name}
        yield Pod(pod_name, namespace, labels, template["spec"], claims, ends)


def pods_at_install(manifests: Iterable[Manifest], namespace: str) -> list[Pod]:
    """Returns the pods that an install starts: no hooks, no scheduled jobs."""
    started = [one for one in workloads(manifests) if one["kind"] != "CronJob" and not hooks_of(one)]
    return [pod for workload in started for pod in pods_of(workload, namespace)]


def selects(selector: dict[str, str], labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())
