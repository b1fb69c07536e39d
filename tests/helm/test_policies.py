"""Network policies: every link that the arguments make is let in, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal_chart.chart import Manifest, hooks_of, read_values, render
from shoal_chart.containers import command_of
from shoal_chart.network import Network
from shoal_chart.pods import Pod, pods_at_install, pods_of, selects, workloads
from shoal_chart.volumes import Volumes
from tests.helm.examples import NAMESPACE

CLIENT = Pod("client", NAMESPACE, {"shoal-client": "true"}, {}, (), False)
OPERATOR = Pod("operator", NAMESPACE, {"shoal-operator": "true"}, {}, (), False)
DNS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
STRANGER = Pod("stranger", NAMESPACE, {"app": "other"}, {}, (), False)


def lets_in(manifests: list[Manifest], source: Pod, target: Pod, port: str) -> bool:
    """As Kubernetes: open unless a policy selects the target; then one of those must let the source in."""
    of_target = policies_of(manifests, target, "Ingress")
    return not of_target or any(
        any(_is_peer(peer, source) for peer in rule["from"])
        for one in of_target
        for rule in one.get("ingress") or ()
        if port in {open_port["port"] for open_port in rule["ports"]}
    )


def lets_out(manifests: list[Manifest], source: Pod, target: Pod, port: str) -> bool:
    """The same for the way out."""
    of_source = policies_of(manifests, source, "Egress")
    return not of_source or any(
        any(_is_peer(peer, target) for peer in rule.get("to", ()))
        for one in of_source
        for rule in one["egress"]
        if port in {open_port["port"] for open_port in rule["ports"]}
    )


def policies_of(manifests: list[Manifest], pod: Pod, way: str) -> list[dict[str, Any]]:
    """Those that say something of a pod's traffic that way."""
    policies = [one["spec"] for one in manifests if one["kind"] == "NetworkPolicy"]
    return [
        one for one in policies if way in one["policyTypes"] and selects(one["podSelector"]["matchLabels"], pod.labels)
    ]


def _is_peer(peer: dict[str, Any], source: Pod) -> bool:
    """Pods of this namespace only: what the default values name."""
    return set(peer) == {"podSelector"} and selects(peer["podSelector"]["matchLabels"], source.labels)


@pytest.fixture(scope="module")
def manifests() -> list[Manifest]:
    return render(read_values([], ["archive.enabled=true"]), namespace=NAMESPACE)


@pytest.fixture(scope="module")
def pods(manifests: list[Manifest]) -> dict[str, Pod]:
    """One of each component."""
    found = pods_at_install(manifests, NAMESPACE)
    return {pod.labels["app.kubernetes.io/component"]: pod for pod in found}


def test_every_link_of_the_arguments_is_let_in(manifests: list[Manifest], pods: dict[str, Pod], tmp_path: Path) -> None:
    network = Network(manifests, pods.values(), "cluster.local")
    volumes = Volumes(tmp_path, manifests)
    for pod in pods.values():
        command_of(pod, pod.containers[0], network, volumes)
    components = {
        (link.source.labels["app.kubernetes.io/component"], link.target.labels["app.kubernetes.io/component"])
        for link in network.links
    }
    assert components == {("create", "etcd"), ("redirector", "etcd"), ("slice", "etcd"), ("admin", "redirector")}
    for link in network.links:
        port = next(name for name, number in link.target.ports.items() if number == link.port)
        assert lets_in(manifests, link.source, link.target, port)
    # By the addresses that the redirector hands out:
    for port in ("grpc", "admin"):
        assert lets_in(manifests, pods["admin"], pods["slice"], port)


def test_clients_reach_redirector_and_slices_and_no_more(manifests: list[Manifest], pods: dict[str, Pod]) -> None:
    assert reached(manifests, pods, CLIENT) == {("redirector", "grpc"), ("redirector", "http"), ("slice", "grpc")}


def test_operators_reach_the_administration_of_slices_and_clients_do_not(
    manifests: list[Manifest], pods: dict[str, Pod]
) -> None:
    assert ("slice", "admin") not in reached(manifests, pods, CLIENT)
    assert reached(manifests, pods, OPERATOR) == {("redirector", "grpc"), ("slice", "admin")}
    (test,) = [pod for one in manifests if "test" in hooks_of(one) for pod in pods_of(one, NAMESPACE)]
    assert reached(manifests, pods, test) == {("redirector", "grpc"), ("slice", "grpc"), ("slice", "admin")}


def reached(manifests: list[Manifest], pods: dict[str, Pod], source: Pod) -> set[tuple[str, str]]:
    return {(name, port) for name, pod in pods.items() for port in pod.ports if lets_in(manifests, source, pod, port)}


def test_prometheus_reaches_figures_and_nothing_else(pods: dict[str, Pod]) -> None:
    peer = {"podSelector": {"matchLabels": {"app": "prometheus"}}}
    manifests = render({"networkPolicy": {"metricsFrom": [peer]}}, namespace=NAMESPACE)
    prometheus = Pod("prometheus", NAMESPACE, {"app": "prometheus"}, {}, (), False)
    assert reached(manifests, pods, prometheus) == {("redirector", "http"), ("slice", "http"), ("admin", "metrics")}


def test_where_the_way_out_is_closed_everything_that_is_needed_is_open(tmp_path: Path) -> None:
    closed = {"networkPolicy": {"egress": {"enabled": True}}, "archive": {"enabled": True}, "census": {"enabled": True}}
    manifests = render(closed, namespace=NAMESPACE)
    made = [pod for one in workloads(manifests) for pod in list(pods_of(one, NAMESPACE))[:1]]
    by_name = {pod.labels["app.kubernetes.io/component"]: pod for pod in made}
    assert len(by_name) == 7
    allowed = {
        (one, other, port)
        for one, source in by_name.items()
        for other, target in by_name.items()
        for port in target.ports
        if lets_out(manifests, source, target, port)
    }
    to_etcd = {(one, "etcd", "client") for one in ("redirector", "slice", "create")}
    to_cluster = {
        (one, *to)
        for one in ("admin", "test")
        for to in (("redirector", "grpc"), ("slice", "grpc"), ("slice", "admin"))
    }
    assert allowed == to_etcd | to_cluster
    for pod in made:
        rules = [rule for one in policies_of(manifests, pod, "Egress") for rule in one["egress"]]
        assert {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}], "to": [DNS]} in rules


def test_an_etcd_of_yours_is_reached_at_its_ports() -> None:
    external = {"builtIn": {"enabled": False}, "external": {"endpoints": ["a:2379", "b:2379", "c:12379"]}}
    peer = {"ipBlock": {"cidr": "10.0.0.0/24"}}
    for etcd_to in ([], [peer]):
        egress = {"enabled": True, "etcdTo": etcd_to}
        manifests = render({"etcd": external, "networkPolicy": {"egress": egress}})
        (policy,) = [one for one in manifests if one["metadata"]["name"].endswith("-slice-out")]
        rule = policy["spec"]["egress"][1]
        assert [port["port"] for port in rule["ports"]] == [2379, 12379]
        assert rule.get("to", []) == etcd_to


def test_a_stranger_reaches_nothing(manifests: list[Manifest], pods: dict[str, Pod]) -> None:
    assert len(pods) == 5
    for pod in pods.values():
        assert not any(lets_in(manifests, STRANGER, pod, port) for port in pod.ports or {"any": 0})


def test_an_empty_list_of_peers_lets_in_nobody_rather_than_everyone() -> None:
    manifests = render({"networkPolicy": {"clientsFrom": []}})
    rules = [rule for one in manifests if one["kind"] == "NetworkPolicy" for rule in one["spec"].get("ingress") or ()]
    assert rules
    assert all(rule["from"] for rule in rules)


def test_without_policies_everything_is_open(pods: dict[str, Pod]) -> None:
    manifests = render({"networkPolicy": {"enabled": False}})
    assert lets_in(manifests, STRANGER, pods["etcd"], "client")
