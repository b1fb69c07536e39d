"""What every example renders to: valid for several versions of Kubernetes, and whole in itself.

Belongs here: what can be seen in the objects. Not here: which values are let in (test_values.py), whether the processes
work with these arguments (test_running.py).
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import helm_python
import kubernetes_validate
import pytest

from shoal_chart.chart import CHART, Manifest, hooks_of, read_values, render
from shoal_chart.documented import schema_values
from shoal_chart.pods import JOBS, SERVERS, Pod, pods_of, selects, template_of, workloads
from shoal_contract.limits import SLICES_MAX
from shoal_slice_node.adapters.limits import STARTED_WAIT_S
from tests.helm.examples import EXAMPLES, FILES, NAMESPACE

KUBERNETES = ("1.28", "1.31", "1.34", "1.37")
"""The oldest that the chart says it runs on, the newest that schemas are here for, and two between."""
NOT_OF_KUBERNETES = {"ServiceMonitor"}
"""Kinds of others, for which there is no schema here."""
MADE_BY_USERS = {"shoal-etcd-tls", "shoal-etcd-login", "shoal-token", "shoal-example-org"}
"""What the examples' first lines ask users to make."""
PINNED = re.compile(r".+(:v?\d[\w.-]*|@sha256:[0-9a-f]{64})")


def pods(manifests: list[Manifest]) -> list[Pod]:
    """One of each workload, hooks and scheduled jobs too."""
    return [next(pods_of(workload, NAMESPACE)) for workload in workloads(manifests)]


def containers(manifests: list[Manifest]) -> Iterator[tuple[Pod, dict[str, Any]]]:
    for pod in pods(manifests):
        assert not pod.spec.get("initContainers")
        yield from ((pod, container) for container in pod.containers)


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [one for one in manifests if one["kind"] == kind]


@pytest.mark.parametrize("name", FILES)
def test_helm_finds_nothing_to_complain_about(name: str) -> None:
    report = helm_python.lint(CHART, read_values(FILES[name]), strict=True, namespace=NAMESPACE)
    serious = [one for one in report["messages"] if one["severity"] > 1]
    assert (serious, report["errors"]) == ([], [])


def test_the_chart_claims_the_oldest_version_that_is_tested() -> None:
    with helm_python.Chart.load(CHART) as chart:
        assert chart.metadata["kubeVersion"] == f">={KUBERNETES[0]}.0-0"
        project = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert chart.metadata["appVersion"] == project["version"]


def test_there_is_an_example_for_a_laptop_and_for_3_and_32_slices() -> None:
    counts = {file.stem: read_values([file])["slices"]["count"] for file in EXAMPLES}
    assert counts == {"laptop": 3, "three-slices": 3, "thirty-two-slices": 32}


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_manifest_is_valid(rendered: list[Manifest], version: str) -> None:
    assert len(rendered) > 10
    for one in rendered:
        if one["kind"] not in NOT_OF_KUBERNETES:
            assert kubernetes_validate.validate(one, version, strict=True) == version


def test_the_validation_bites(rendered: list[Manifest]) -> None:
    broken = next(one for one in rendered if one["kind"] == "StatefulSet")
    broken = {**broken, "spec": {**broken["spec"], "replicaz": 3}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES[0], strict=True)


def test_names_are_unique_and_short_enough_for_labels(rendered: list[Manifest]) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in rendered]
    assert len(set(names)) == len(names)
    # A StatefulSet's pods get a label of its name and a hash of 11 characters.
    assert all(len(name) <= 52 for _, name in names)


def test_selectors_match_the_pods_they_are_for(rendered: list[Manifest]) -> None:
    for workload in workloads(rendered):
        if workload["kind"] in SERVERS:
            selector = workload["spec"]["selector"]["matchLabels"]
            matched = [pod for pod in pods(rendered) if selects(selector, pod.labels)]
            assert [pod.spec for pod in matched] == [template_of(workload)["spec"]]


def test_services_lead_to_ports_of_pods(rendered: list[Manifest]) -> None:
    for service in of_kind(rendered, "Service"):
        behind = [pod for pod in pods(rendered) if selects(service["spec"]["selector"], pod.labels)]
        assert len(behind) == 1, service["metadata"]["name"]
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= set(behind[0].ports)


def test_what_refers_to_a_service_finds_it(rendered: list[Manifest]) -> None:
    services = {one["metadata"]["name"]: one for one in of_kind(rendered, "Service")}
    for workload in of_kind(rendered, "StatefulSet"):
        assert workload["spec"]["serviceName"] in services
    for ingress in of_kind(rendered, "Ingress"):
        for rule in ingress["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                to = path["backend"]["service"]
                assert to["port"]["name"] in {port["name"] for port in services[to["name"]]["spec"]["ports"]}
    for monitor in of_kind(rendered, "ServiceMonitor"):
        wanted = monitor["spec"]["selector"]["matchLabels"]
        watched = [one for one in services.values() if selects(wanted, one["metadata"]["labels"])]
        assert len(watched) == 1
        ports = {port["name"] for port in watched[0]["spec"]["ports"]}
        assert {endpoint["port"] for endpoint in monitor["spec"]["endpoints"]} <= ports


def test_budgets_and_scalers_are_of_something_that_exists(rendered: list[Manifest]) -> None:
    for budget in of_kind(rendered, "PodDisruptionBudget"):
        selector = budget["spec"]["selector"]["matchLabels"]
        assert len([pod for pod in pods(rendered) if selects(selector, pod.labels)]) == 1
    for scaler in of_kind(rendered, "HorizontalPodAutoscaler"):
        target = scaler["spec"]["scaleTargetRef"]
        (scaled,) = [one for one in of_kind(rendered, target["kind"]) if one["metadata"]["name"] == target["name"]]
        assert "replicas" not in scaled["spec"]


def test_every_container_is_as_restricted_as_it_can_be(rendered: list[Manifest]) -> None:
    for pod, container in containers(rendered):
        assert pod.spec["automountServiceAccountToken"] is False
        security = pod.spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_every_container_says_what_it_needs_and_servers_how_they_are(rendered: list[Manifest]) -> None:
    for pod, container in containers(rendered):
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert "memory" in container["resources"]["limits"]
        if not pod.ends:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                assert container[probe]["httpGet"]["port"] in {port["name"] for port in container["ports"]}


def test_no_startup_probe_asks_whether_a_server_is_ready(rendered: list[Manifest]) -> None:
    """A server that waits for etcd, or whose disk is full, is not ready for as long as that takes: it was ended again
    and again. A slice has not started before its journal is recovered."""
    asked = {}
    for pod, container in containers(rendered):
        if "startupProbe" in container and pod.labels["app.kubernetes.io/component"] != "etcd":
            probe = container["startupProbe"]
            asked[pod.labels["app.kubernetes.io/component"]] = probe["httpGet"]["path"]
            assert container["readinessProbe"]["httpGet"] == {**probe["httpGet"], "path": "/readyz"}
            assert container["livenessProbe"]["httpGet"] == {**probe["httpGet"], "path": "/healthz"}
    assert asked == {"slice": "/startedz", "redirector": "/healthz", "admin": "/healthz"}


def test_the_chart_takes_as_many_slices_as_a_cluster_may_have() -> None:
    """Else all pods and volumes are installed, and the job that makes the cluster fails."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"]["slices"]["properties"]["count"]["maximum"] == SLICES_MAX


def test_a_start_has_time_to_wait_for_etcd() -> None:
    """A slice counts as started once it has waited for STARTED_WAIT_S: before its startup probe has failed for good."""
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    allowed_s = schema["properties"]["slices"]["properties"]["startSeconds"]["minimum"]
    probes = [
        container["startupProbe"]
        for pod, container in containers(render({"slices": {"startSeconds": allowed_s}}))
        if container["name"] == "slice"
    ]
    assert [probe["periodSeconds"] * probe["failureThreshold"] for probe in probes] == [allowed_s]
    assert allowed_s >= 2 * STARTED_WAIT_S


def test_images_are_pinned(rendered: list[Manifest]) -> None:
    for _, container in containers(rendered):
        assert PINNED.fullmatch(container["image"]), container["image"]


def test_what_is_mounted_and_read_exists(rendered: list[Manifest]) -> None:
    secrets = {one["metadata"]["name"] for one in of_kind(rendered, "Secret")} | MADE_BY_USERS
    claims = {one["metadata"]["name"] for one in of_kind(rendered, "PersistentVolumeClaim")}
    for pod, container in containers(rendered):
        volumes = {one["name"]: one for one in pod.spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes) | set(pod.claims)
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
        for volume in volumes.values():
            assert volume.get("secret", {}).get("secretName", "shoal-token") in secrets
            assert volume.get("persistentVolumeClaim", {}).get("claimName", "") in {"", *claims}
        for variable in container.get("env", ()):
            reference = variable.get("valueFrom", {}).get("secretKeyRef")
            assert reference is None or reference["name"] in secrets


def test_a_laptops_own_image_is_never_pulled_and_etcds_is() -> None:
    policies = {
        container["image"].partition(":")[0]: container.get("imagePullPolicy")
        for _, container in containers(render(read_values(FILES["laptop"])))
    }
    assert policies == {"shoal": "Never", "gcr.io/etcd-development/etcd": None}


def test_the_guide_names_what_an_install_makes() -> None:
    """With its own release and namespace, both `shoal`."""
    guide = (CHART.parents[1] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    made = {(one["kind"], one["metadata"]["name"]) for one in render({}, release="shoal", namespace="shoal")}
    services = {*re.findall(r"svc/([a-z-]+)", guide), *re.findall(r"([a-z-]+)\.shoal\.svc\.cluster\.local", guide)}
    assert services == {"shoal-admin", "shoal-redirector"}
    assert {("Service", name) for name in services} <= made
    assert {("Secret", name) for name in re.findall(r"get secret ([a-z-]+)", guide)} == {
        ("Secret", "shoal-admin-token")
    }
    assert ("Secret", "shoal-admin-token") in made
    values = {name[:end] for name in schema_values() for end in range(len(name) + 1) if name[end:][:1] in ("", ".")}
    named = set(re.findall(r"`([A-Za-z]+\.[A-Za-z.]+)`", guide))
    assert len(named) > 5
    assert named <= values


def test_jobs_end_and_only_the_check_and_the_test_are_hooks(rendered: list[Manifest]) -> None:
    for one in workloads(rendered):
        if one["kind"] in JOBS:
            assert template_of(one)["spec"]["restartPolicy"] in ("Never", "OnFailure")
    assert [hooks_of(one) for one in rendered if hooks_of(one)] == [["pre-upgrade"], ["test"]]
    without = render({"cluster": {"checkBeforeUpgrade": False}})
    assert [hooks_of(one) for one in without if hooks_of(one)] == [["test"]]


def test_the_create_job_gets_another_name_when_its_pod_changes() -> None:
    """A Job cannot be changed: an upgrade would fail."""

    def name(**values: Any) -> str:
        jobs = [one for one in render(values) if one["kind"] == "Job" and not hooks_of(one)]
        return str(jobs[0]["metadata"]["name"])

    assert name() == name(serviceMonitor={"enabled": True})
    assert name() != name(image={"tag": "0.2.0"})
