"""What each role is told, and what Kubernetes is told of it: one number in both places, and a stop that fits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from shoal_chart.chart import CHART, Manifest, merged, read_values, render
from shoal_chart.pods import SERVERS, template_of, workloads
from shoal_redirector.limits import watchers_max
from shoal_runtime.http.limits import BODIES_BYTES_MAX
from tests.helm.examples import EXAMPLES, FILES

EVERYTHING: dict[str, Any] = {"archive": {"enabled": True}, "census": {"enabled": True}}


def spec_of(manifests: list[Manifest], component: str) -> dict[str, Any]:
    """The pod of a component; of several (create) the first."""
    found = [
        template_of(one)
        for one in workloads(manifests)
        if template_of(one)["metadata"]["labels"]["app.kubernetes.io/component"] == component
    ]
    spec: dict[str, Any] = found[0]["spec"]
    return spec


def flags(spec: dict[str, Any]) -> dict[str, str]:
    """By name, of its one container."""
    words = [word[2:].partition("=") for word in spec["containers"][0]["args"] if word.startswith("--")]
    return {name: value for name, _, value in words}


def limit_mib(spec: dict[str, Any]) -> int:
    text = str(spec["containers"][0]["resources"]["limits"]["memory"])
    return int(text[:-2]) * {"Mi": 1, "Gi": 1024}[text[-2:]]


@pytest.mark.parametrize("name", FILES)
def test_memory_is_one_number_for_the_pod_and_its_process(name: str) -> None:
    manifests = render(read_values(FILES[name]))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    values = merged(defaults, read_values(FILES[name]))
    slices, redirector, admin = (spec_of(manifests, one) for one in ("slice", "redirector", "admin"))
    assert limit_mib(slices) == values["slices"]["memoryMiB"] == 2 * int(flags(slices)["memory-mib"])
    assert limit_mib(redirector) == values["redirector"]["memoryMiB"] == int(flags(redirector)["memory-mib"])
    assert watchers_max(limit_mib(redirector)) > 100
    assert limit_mib(admin) << 20 > 4 * BODIES_BYTES_MAX


def test_two_numbers_of_memory_are_refused_by_name() -> None:
    for role in ("slices", "redirector"):
        with pytest.raises(helm_python.HelmError, match=rf"{role}\.resources\.limits\.memory: say {role}\.memoryMiB"):
            render({role: {"resources": {"limits": {"memory": "2Gi"}}}})
    assert render({"slices": {"resources": {"limits": {"cpu": "2"}}}})


@pytest.mark.parametrize("component", ["redirector", "admin"])
def test_a_replaced_pod_serves_on_until_nothing_is_led_to_it(component: str) -> None:
    for given, drain_s in (({}, 5), ({component: {"drainSeconds": 20}}, 20)):
        spec = spec_of(render(given), component)
        assert flags(spec)["drain-s"] == str(drain_s)
        assert spec["terminationGracePeriodSeconds"] >= drain_s + 10


def test_a_slice_stops_in_the_time_that_kubernetes_gives_it() -> None:
    for given, grace_s in (({}, 120), ({"slices": {"stopSeconds": 65}}, 65)):
        spec = spec_of(render(given), "slice")
        assert spec["terminationGracePeriodSeconds"] == grace_s
        assert int(flags(spec)["stop-s"]) == grace_s - 5
    with pytest.raises(helm_python.HelmError, match="stopSeconds"):
        render({"slices": {"stopSeconds": 64}})


def test_slices_are_found_by_their_address_and_their_administration_has_a_port_of_its_own() -> None:
    spec = spec_of(render({}), "slice")
    told = flags(spec)
    assert (told["advertise"], told["admin-advertise"]) == ("$(POD_IP):7410", "$(POD_IP):7412")
    assert told["admin-listen"] == "0.0.0.0:7412"
    (address,) = [one for one in spec["containers"][0]["env"] if one["name"] == "POD_IP"]
    assert address["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"


def test_where_pods_have_ipv6_addresses_everything_listens_on_them() -> None:
    manifests = render(merged(EVERYTHING, {"ipFamily": "IPv6"}))
    assert flags(spec_of(manifests, "slice"))["advertise"] == "[$(POD_IP)]:7410"
    listening = [
        word
        for one in workloads(manifests)
        if one["kind"] in SERVERS
        for word in template_of(one)["spec"]["containers"][0]["args"]
        if re.match(r"--(listen|http|metrics|admin-listen)", word) and "peer" not in word
    ]
    assert len(listening) == 8
    assert all("[::]:" in word for word in listening), listening
    external = {"builtIn": {"enabled": False}, "external": {"endpoints": ["[fd00::1]:2379"]}}
    assert flags(spec_of(render({"etcd": external}), "slice"))["etcd"] == "[fd00::1]:2379"


def test_the_census_takes_what_it_is_given_and_no_more() -> None:
    spec = spec_of(render(merged(EVERYTHING, {"census": {"scratch": "7Gi"}})), "census")
    (container,) = spec["containers"]
    assert flags(spec)["master"] == "local[$(CPUS)]"
    assert flags(spec)["memory"] == "50%"
    (cpus,) = [one["valueFrom"]["resourceFieldRef"] for one in container["env"] if one["name"] == "CPUS"]
    assert (cpus["resource"], cpus["containerName"]) == ("requests.cpu", container["name"])
    (scratch,) = [one["emptyDir"] for one in spec["volumes"] if one["name"] == "tmp"]
    assert scratch["sizeLimit"] == container["resources"]["requests"]["ephemeral-storage"] == "7Gi"
    assert {"allow-empty", "dated"} <= set(flags(spec))
    assert "%Y-%m-%d" in flags(spec)["out"] and "%Y-%m-%d" in flags(spec)["report"]
    (scheduled,) = [one for one in render(EVERYTHING) if one["kind"] == "CronJob"]
    assert scheduled["spec"]["startingDeadlineSeconds"] == 3600


def test_the_census_image_goes_by_its_own_digest() -> None:
    digests = [f"sha256:{pair * 32}" for pair in ("ab", "cd")]
    given = merged(EVERYTHING, {"image": {"digest": digests[0]}})
    with pytest.raises(helm_python.HelmError, match=r"census\.digest: image\.digest names the image without Java"):
        render(given)
    image = spec_of(render(merged(given, {"census": {"digest": digests[1]}})), "census")["containers"][0]["image"]
    assert image == f"shoal@{digests[1]}"
    image = spec_of(render(merged(given, {"census": {"tag": "0.1.0-spark"}})), "census")["containers"][0]["image"]
    assert image == "shoal:0.1.0-spark"


def test_a_segment_is_archived_by_its_age() -> None:
    assert flags(spec_of(render(EVERYTHING), "slice"))["archive-every"] == "600"
    assert "archive-every" not in flags(spec_of(render({}), "slice"))


def test_a_start_without_data_is_asked_for_by_name() -> None:
    assert "accept-empty" not in flags(spec_of(render({}), "slice"))
    assert "accept-empty" in flags(spec_of(render({"slices": {"acceptEmpty": True}}), "slice"))
    assert flags(spec_of(render({"cluster": {"id": "0123456789abcdef"}}), "create"))["id"] == "0123456789abcdef"


def test_no_secret_is_a_variable() -> None:
    """A file is renewed with its Secret; a variable would stay as it was until a restart."""
    for file in EXAMPLES:
        for one in workloads(render(read_values([file]))):
            spec = template_of(one)["spec"]
            variables = [name for container in spec["containers"] for name in container.get("env", ())]
            assert not [name for name in variables if "secretKeyRef" in name.get("valueFrom", {})]
            mounts = [mount for container in spec["containers"] for mount in container["volumeMounts"]]
            assert not [mount for mount in mounts if "subPath" in mount], "which is never renewed"
    spec = spec_of(render(read_values([CHART / "examples" / "three-slices.yaml"])), "slice")
    assert flags(spec)["etcd-password-file"] == "/etc/shoal/etcd-login/password"


def test_workloads_can_be_annotated_for_what_watches_over_them() -> None:
    given = {"pods": {"workloadAnnotations": {"reloader.stakater.com/auto": "true"}}}
    for one in workloads(render(given)):
        if one["kind"] in SERVERS:
            assert one["metadata"]["annotations"]["reloader.stakater.com/auto"] == "true"
            assert "annotations" not in template_of(one)["metadata"]


def test_jobs_run_where_they_are_told_to() -> None:
    where = {"nodeSelector": {"kubernetes.io/arch": "amd64"}, "tolerations": [{"key": "pool", "operator": "Exists"}]}
    jobs = [one for one in workloads(render({"jobs": where})) if one["kind"] == "Job"]
    assert len(jobs) == 3
    for one in jobs:
        spec = template_of(one)["spec"]
        assert (spec["nodeSelector"], spec["tolerations"]) == (where["nodeSelector"], where["tolerations"])


def test_the_built_in_etcd_has_no_http_gateway() -> None:
    assert flags(spec_of(render({}), "etcd"))["enable-grpc-gateway"] == "false"


def test_the_ingress_leads_to_the_api_and_the_page_and_nowhere_else() -> None:
    (ingress,) = [
        one for one in render(read_values([CHART / "examples" / "three-slices.yaml"])) if one["kind"] == "Ingress"
    ]
    (rule,) = ingress["spec"]["rules"]
    assert [(path["path"], path["pathType"]) for path in rule["http"]["paths"]] == [
        ("/v1", "Prefix"),
        ("/page", "Prefix"),
        ("/", "Exact"),
    ]


def test_slices_spread_by_machine_and_by_zone() -> None:
    spec = spec_of(render(read_values([CHART / "examples" / "thirty-two-slices.yaml"])), "slice")
    spread = {one["topologyKey"]: one["whenUnsatisfiable"] for one in spec["topologySpreadConstraints"]}
    assert spread == {"topology.kubernetes.io/zone": "DoNotSchedule", "kubernetes.io/hostname": "DoNotSchedule"}


@pytest.mark.parametrize("component", ["slice", "redirector", "admin"])
def test_every_role_spreads_unless_it_is_told_not_to(component: str) -> None:
    (machine,) = spec_of(render({}), component)["topologySpreadConstraints"]
    assert (machine["topologyKey"], machine["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")


def test_a_budget_never_protects_what_is_not_ready() -> None:
    budgets = [one for one in render({}) if one["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == 3
    assert {one["spec"]["unhealthyPodEvictionPolicy"] for one in budgets} == {"AlwaysAllow"}


def test_redirectors_scale_by_their_clients_and_go_slowly() -> None:
    given = {"redirector": {"autoscaling": {"enabled": True, "watchersPerPod": 2000, "cpuPercent": 300}}}
    (scaler,) = [one for one in render(given) if one["kind"] == "HorizontalPodAutoscaler"]
    cpu, watchers = scaler["spec"]["metrics"]
    assert cpu["resource"]["target"]["averageUtilization"] == 300
    assert watchers["pods"]["metric"]["name"] == "shoal_redirector_watchers"
    assert scaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] >= 300


@pytest.mark.parametrize("given", [{"fullnameOverride": "a.b.c"}, {}])
def test_names_with_dots_make_names_that_services_may_have(given: dict[str, Any]) -> None:
    manifests = render(given, release="chat.prod")
    names = [one["metadata"]["name"] for one in manifests if one["kind"] == "Service"]
    assert len(names) == 4
    assert all(re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name) for name in names), names


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_names_everything_that_it_does_not_make(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    head = " ".join(line for line in text.splitlines() if line.startswith("#"))
    manifests = render(read_values([file]))
    made = {(one["kind"], one["metadata"]["name"]) for one in manifests}
    asked = {name for kind, name in references(manifests) if (kind, name) not in made}
    assert asked or file.stem == "laptop"
    assert [name for name in asked if name not in head] == []


def references(value: Any, kind: str = "") -> set[tuple[str, str]]:
    """(kind, name) of Secrets, claims and classes that objects refer to."""
    keys = {
        "secretName": "Secret",
        "claimName": "PersistentVolumeClaim",
        "storageClassName": "StorageClass",
        "priorityClassName": "PriorityClass",
    }
    if isinstance(value, list):
        return {found for one in value for found in references(one)}
    if not isinstance(value, dict):
        return set()
    here = {(keys[key], held) for key, held in value.items() if key in keys and isinstance(held, str)}
    return here | {found for held in value.values() for found in references(held)}
