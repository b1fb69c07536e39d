"""What would fail in Kubernetes fails in the runner: names, ports, paths, Secrets and variables that lead nowhere."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from shoal_chart.chart import Manifest, render
from shoal_chart.containers import Command, command_of
from shoal_chart.network import Network, free_port
from shoal_chart.pods import pods_at_install
from shoal_chart.volumes import Volumes, translated
from tests.helm.examples import NAMESPACE


@pytest.fixture
def manifests() -> list[Manifest]:
    return deepcopy(render({"archive": {"enabled": True}}, namespace=NAMESPACE))


def commands(manifests: list[Manifest], folder: Path) -> dict[str, Command]:
    """By pod."""
    pods = pods_at_install(manifests, NAMESPACE)
    network, volumes = Network(manifests, pods, "cluster.local"), Volumes(folder, manifests)
    return {pod.name: command_of(pod, pod.containers[0], network, volumes) for pod in pods}


def container(manifests: list[Manifest], kind: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in manifests if one["kind"] == kind and one["metadata"]["name"] == f"demo-shoal-{name}"]
    only: dict[str, Any] = found["spec"]["template"]["spec"]["containers"][0]
    return only


def test_each_slice_gets_its_own_name_addresses_and_folders(manifests: list[Manifest], tmp_path: Path) -> None:
    found = commands(manifests, tmp_path)
    nodes = [dict(word[2:].split("=", 1) for word in found[f"demo-shoal-slice-{n}"].arguments[2:]) for n in range(3)]
    assert [(node["slice"], node["node"]) for node in nodes] == [("s0", "n0"), ("s1", "n1"), ("s2", "n2")]
    for node in nodes:
        assert node["advertise"] == node["listen"]
    for different in ("listen", "http", "data"):
        assert len({node[different] for node in nodes}) == 3
    assert len({node["archive"] for node in nodes}) == 1


def test_all_are_led_to_the_same_etcd_and_redirector(manifests: list[Manifest], tmp_path: Path) -> None:
    found = commands(manifests, tmp_path)
    etcds = {word for command in found.values() for word in command.arguments if word.startswith("--etcd=")}
    listening = [word for word in found["demo-shoal-etcd-0"].arguments if word.startswith("--listen-client-urls=")]
    assert [f"--listen-client-urls=http://{word.removeprefix('--etcd=')}" for word in etcds] == listening
    at = next(word for word in found["demo-shoal-admin-0"].arguments if word.startswith("--at="))
    assert f"--listen={at.removeprefix('--at=')}" in found["demo-shoal-redirector-0"].arguments


BROKEN: dict[str, tuple[Callable[[list[Manifest]], object], str]] = {
    "a Service that is not there": (
        lambda manifests: manifests.remove(
            next(one for one in manifests if one["kind"] == "Service" and "redirector" in one["metadata"]["name"])
        ),
        "there is no Service demo-shoal-redirector",
    ),
    "a name outside the cluster": (
        lambda manifests: container(manifests, "Deployment", "redirector")["args"].append("--etcd=etcd.other.svc:2379"),
        "etcd.other.svc:2379",
    ),
    "a port that no container has": (
        lambda manifests: container(manifests, "Deployment", "redirector")["args"].append("--http=0.0.0.0:7499"),
        "listens on 7499",
    ),
    "a port that no Service has": (
        lambda manifests: container(manifests, "Deployment", "admin")["args"].append("--at=demo-shoal-redirector:1"),
        "has no port 1",
    ),
    "a path on no volume": (
        lambda manifests: container(manifests, "StatefulSet", "slice")["args"].append("--data=/var/lib/shoal"),
        "/var/lib/shoal lies on no volume",
    ),
    "a Secret that is not there": (
        lambda manifests: manifests.remove(next(one for one in manifests if one["kind"] == "Secret")),
        "there is no Secret demo-shoal-admin-token",
    ),
    "a claim that nothing makes": (
        lambda manifests: manifests.remove(next(one for one in manifests if one["kind"] == "PersistentVolumeClaim")),
        "the claim demo-shoal-archive",
    ),
    "a variable that is not set": (
        lambda manifests: container(manifests, "StatefulSet", "slice").update(env=[]),
        "uses ORDINAL",
    ),
    "a probe of a port that is not there": (
        lambda manifests: container(manifests, "Deployment", "redirector")["livenessProbe"]["httpGet"].update(port="x"),
        "livenessProbe of demo-shoal-redirector-0 asks port x",
    ),
    "a program that is not in the image": (
        lambda manifests: container(manifests, "Deployment", "admin").update(command=["shoal-admin"]),
        "there is no program shoal-admin",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_leads_nowhere_is_refused_by_name(case: str, manifests: list[Manifest], tmp_path: Path) -> None:
    break_it, named = BROKEN[case]
    assert commands(manifests, tmp_path)
    break_it(manifests)
    with pytest.raises(LookupError, match=named):
        commands(manifests, tmp_path)


def test_paths_go_to_the_deepest_volume_and_urls_are_no_paths() -> None:
    mounts = {"/data": Path("/x"), "/data/archive": Path("/y")}
    assert translated("--data=/data/node", mounts) == "--data=/x/node"
    assert translated("--a=/data/archive/s0,/data", mounts) == "--a=/y/s0,/x"
    assert translated("http://0.0.0.0:2379/health", mounts) == "http://0.0.0.0:2379/health"


def test_ports_are_free_and_never_given_twice() -> None:
    taken: set[int] = set()
    for _ in range(20):
        port = free_port(taken)
        assert port not in taken
        taken.add(port)
