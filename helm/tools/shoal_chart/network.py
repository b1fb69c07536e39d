"""Puts the cluster's addresses on loopback: a container port gets a port of this machine, and a DNS name leads to one.

An address in an argument that no Service or pod answers to is an error, as it would be a failure in Kubernetes.
Belongs here: names and ports. Not here: which pods may connect (tests/helm/test_policies.py), opening connections.
"""

from __future__ import annotations

import re
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shoal_chart import limits
from shoal_chart.chart import Manifest
from shoal_chart.pods import Pod, selects

HOST = "127.0.0.1"
_ADDRESS = re.compile(r"(?<![\w.-])([A-Za-z0-9][A-Za-z0-9.-]*):(\d{1,5})(?![\w.-])")


@dataclass(frozen=True)
class Link:
    """Says that `source` has an address of `target` in its arguments. `port` is the container's."""

    source: Pod
    target: Pod
    port: int


class Network:
    """Translates addresses. `outside`: a map from each host:port that others serve to its place here."""

    def __init__(
        self, manifests: Iterable[Manifest], pods: Iterable[Pod], domain: str, outside: Mapping[str, str] | None = None
    ) -> None:
        self._pods = list(pods)
        self._services = {one["metadata"]["name"]: one for one in manifests if one["kind"] == "Service"}
        self._domain = domain
        self._outside = outside or {}
        self._local: dict[tuple[str, int], int] = {}
        self.links: list[Link] = []

    def local_port(self, pod: Pod, port: int) -> int:
        """Returns this machine's port for a port of a pod. It is chosen when it is first asked for."""
        known = self._local.get((pod.name, port))
        if known is None:
            known = self._local[pod.name, port] = free_port(set(self._local.values()))
        return known

    def service(self, name: str, port: int, asked_by: Pod | None = None) -> str:
        """Returns host:port, on this machine, of a Service's port: that of its first pod. Raises LookupError."""
        if name not in self._services:
            raise LookupError(f"there is no Service {name}")
        spec = self._services[name]["spec"]
        target = next((one["targetPort"] for one in spec["ports"] if one["port"] == port), None)
        if target is None:
            raise LookupError(f"Service {name} has no port {port}")
        behind = [pod for pod in self._pods if selects(spec["selector"], pod.labels)]
        if not behind:
            raise LookupError(f"Service {name} selects no pod")
        return self._to(behind[0], behind[0].ports.get(target, target), asked_by)

    def translated(self, text: str, pod: Pod) -> str:
        """Returns an argument of `pod` with every address in it translated to this machine. Raises LookupError."""
        return _ADDRESS.sub(lambda found: self._lead(found[1], int(found[2]), pod), text)

    def _lead(self, host: str, port: int, pod: Pod) -> str:
        if f"{host}:{port}" in self._outside:
            return self._outside[f"{host}:{port}"]
        if host == "0.0.0.0":
            if port not in pod.ports.values():
                raise LookupError(f"{pod.name} listens on {port}, which is none of its containers' ports")
            return f"{HOST}:{self.local_port(pod, port)}"
        if host in ("127.0.0.1", "localhost"):
            return f"{HOST}:{self.local_port(pod, port)}"
        names = host.removesuffix(f".{pod.namespace}.svc.{self._domain}").split(".")
        if len(names) == 2:
            return self._one_pod(names[0], names[1], port, pod)
        if len(names) == 1:
            return self.service(names[0], port, pod)
        raise LookupError(f"{host}:{port}, in the arguments of {pod.name}, is nowhere")

    def _one_pod(self, name: str, service: str, port: int, asked_by: Pod) -> str:
        """Translates the name that a headless Service gives each pod of a StatefulSet. Raises LookupError."""
        if service not in self._services or self._services[service]["spec"].get("clusterIP") != "None":
            raise LookupError(f"there is no headless Service {service}")
        selector = self._services[service]["spec"]["selector"]
        found = [pod for pod in self._pods if pod.name == name and selects(selector, pod.labels)]
        if not found or port not in found[0].ports.values():
            raise LookupError(f"{name}.{service}:{port} is nowhere")
        return self._to(found[0], port, asked_by)

    def _to(self, target: Pod, port: int, asked_by: Pod | None) -> str:
        if asked_by is not None and asked_by.name != target.name:
            self.links.append(Link(asked_by, target, port))
        return f"{HOST}:{self.local_port(target, port)}"


def free_port(taken: set[int]) -> int:
    """Returns a free port, chosen at random, so that clusters that start together rarely choose the same. Raises
    LookupError."""
    for _ in range(limits.PORT_ATTEMPTS_MAX):
        port = secrets.choice(limits.PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if port not in taken and probe.connect_ex((HOST, port)) != 0 and _binds(probe, port):
                return port
    raise LookupError(f"no free port found from {limits.PORTS.start} on")


def _binds(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind((HOST, port))
    except OSError:
        return False
    return True
