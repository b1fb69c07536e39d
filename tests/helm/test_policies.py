"""Network policies: every link that the arguments make is let in, and nothing else is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal_chart.chart import Manifest, read_values, render
from shoal_chart.containers import command_of
from shoal_chart.network import Network
from shoal_chart.pods import Pod, pods_at_install, selects
from shoal_chart.volumes import Volumes
from tests.helm.examples import NAMESPACE

CLIENT = Pod("client", NAMESPACE, {"shoal-client": "true"}, {}, (), False)
STRANGER = Pod("stranger", NAMESPACE, {"app": "other"}, {}, (), False)


def lets_in(manifests: list[Manifest], source: Pod, target: Pod, port: str) -> bool:
    """As Kubernetes: open unless a policy selects the target; then one of those must let the source in."""
    policies = [one["spec"] for one in manifests if one["kind"] == "NetworkPolicy"]
    of_target = [one for one in policies if selects(one["podSelector"]["matchLabels"], target.labels)]
    return not of_target or any(
        any(_is_peer(peer, source) for peer in rule["from"])
        for one in of_target
        for rule in one.get("ingress") or ()
        if port in {open_port["port"] for open_port in rule["ports"]}
    )


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
    assert lets_in(manifests, pods["admin"], pods["slice"], "grpc")


def test_clients_reach_redirector_and_slices_and_no_more(manifests: list[Manifest], pods: dict[str, Pod]) -> None:
    reached = {
        (name, port) for name, pod in pods.items() for port in pod.ports if lets_in(manifests, CLIENT, pod, port)
    }
    assert reached == {("redirector", "grpc"), ("redirector", "http"), ("slice", "grpc")}


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
