"""What Kubernetes would start for a container, as a command of this machine. Belongs here: command, arguments,
environment. Does not: the process's life (running.py).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal_chart import volumes
from shoal_chart.network import Network
from shoal_chart.pods import Pod
from shoal_chart.volumes import Volumes
from shoal_coordination.local_etcd import find_etcd

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_LABEL = re.compile(r"metadata\.labels\['(.+)'\]")


@dataclass(frozen=True)
class Command:
    """`folder`: what /tmp is, where the image starts its programs. `probes`: (host:port, path) of the declared HTTP
    probes, by kind, led to this machine."""

    program: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: Path | None
    probes: dict[str, tuple[str, str]]


def command_of(
    pod: Pod, container: Mapping[str, Any], network: Network, held: Volumes, programs: Path | None = None
) -> Command:
    """`programs`: the folder of the image's, or this Python's own. Raises LookupError for a variable, path, address,
    probe or program that leads nowhere."""
    mounts = held.mounts(pod, container)
    variables = {one["name"]: _value(one, pod, held) for one in container.get("env", ())}
    words = [_expanded(word, variables) for word in (*container["command"], *container.get("args", ()))]
    program, *arguments = words
    led = [network.translated(volumes.translated(word, mounts), pod) for word in arguments]
    environment = {
        name: network.translated(volumes.translated(value, mounts), pod) for name, value in variables.items()
    }
    if "/tmp" in mounts:
        environment |= {"TMPDIR": str(mounts["/tmp"]), "HOME": str(mounts["/tmp"])}
    path = _program(program, programs or Path(sys.executable).parent)
    return Command(path, tuple(led), environment, mounts.get("/tmp"), _probes(pod, container, network))


def _program(name: str, folder: Path) -> str:
    if name == "etcd":
        return str(find_etcd())
    found = folder / name
    if not found.is_file():
        raise LookupError(f"there is no program {name} in {folder}")
    return str(found)


def _value(variable: Mapping[str, Any], pod: Pod, held: Volumes) -> str:
    if "value" in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    if "secretKeyRef" in source:
        return held.secret(source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]).decode()
    path = source["fieldRef"]["fieldPath"]
    if label := _LABEL.fullmatch(path):
        return pod.labels[label[1]]
    return {"metadata.name": pod.name, "metadata.namespace": pod.namespace}[path]


def _expanded(word: str, variables: Mapping[str, str]) -> str:
    def lead(found: re.Match[str]) -> str:
        if found[1] not in variables:
            raise LookupError(f"{word} uses {found[1]}, which is none of the container's variables")
        return variables[found[1]]

    return _VARIABLE.sub(lead, word)


def _probes(pod: Pod, container: Mapping[str, Any], network: Network) -> dict[str, tuple[str, str]]:
    named = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
    found = {}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        if kind in container:
            asked = container[kind]["httpGet"]
            if asked["port"] not in named:
                raise LookupError(f"{kind} of {pod.name} asks port {asked['port']}, which the container has not")
            found[kind] = (f"127.0.0.1:{network.local_port(pod, named[asked['port']])}", asked["path"])
    return found
