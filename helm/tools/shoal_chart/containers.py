"""Turns what Kubernetes would start for a container into a command of this machine. Belongs here: command, arguments,
environment. Not here: the process's life (running.py)."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final, Protocol

from shoal_chart import volumes
from shoal_chart.network import HOST, Network
from shoal_chart.pods import Pod
from shoal_chart.volumes import Volumes
from shoal_local.etcd import find_etcd

ETCD: Final = "etcd"
"""The only program that is in another image."""

_VARIABLE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_LABEL = re.compile(r"metadata\.labels\['(.+)'\]")


class Image(Protocol):
    """Stands for the image that a container's programs and files come from, if not from this machine."""

    def environment(self) -> dict[str, str]:
        """Returns the variables that the image sets."""

    def command(self, mounts: Mapping[str, Path], words: Sequence[str]) -> list[str]:
        """Returns the command that starts a program inside, with folders of this machine mounted at paths of the
        container."""


@dataclass(frozen=True)
class Command:
    """Describes a command of this machine. `folder`: the folder for /tmp, where the image starts its programs; None:
    the command goes there itself. `probes`: (host:port, path) of the declared HTTP probes on this machine, by kind."""

    program: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    folder: Path | None
    probes: dict[str, tuple[str, str]]


def command_of(
    pod: Pod, container: Mapping[str, Any], network: Network, held: Volumes, image: Image | None = None
) -> Command:
    """Returns the command of a container. `image`: the image of our own programs; None: those of this Python, with
    paths translated to folders. Raises LookupError for a variable, path, address, probe or program that does not
    exist."""
    mounts = held.mounts(pod, container)
    variables = {one["name"]: _value(one, pod, container, held) for one in container.get("env", ())}
    words = [_expanded(word, variables) for word in (*container["command"], *container.get("args", ()))]
    inside = image if words[0] != ETCD else None

    def lead(text: str) -> str:
        placed = volumes.translated(text, mounts)
        return network.translated(text if inside is not None else placed, pod)

    environment = {name: lead(value) for name, value in variables.items()}
    program, *arguments = words[0], *map(lead, words[1:])
    probes = _probes(pod, container, network)
    if inside is not None:
        for folder in mounts.values():
            held.own(folder, pod.spec["securityContext"]["fsGroup"])
        command = inside.command(mounts, [program, *arguments])
        return Command(command[0], tuple(command[1:]), inside.environment() | environment, None, probes)
    if "/tmp" in mounts:
        environment |= {"TMPDIR": str(mounts["/tmp"]), "HOME": str(mounts["/tmp"])}
    return Command(_program(program), tuple(arguments), environment, mounts.get("/tmp"), probes)


def _program(name: str) -> str:
    if name == ETCD:
        return str(find_etcd())
    found = Path(sys.executable).parent / name
    if not found.is_file():
        raise LookupError(f"there is no program {name} in {found.parent}")
    return str(found)


def _value(variable: Mapping[str, Any], pod: Pod, container: Mapping[str, Any], held: Volumes) -> str:
    if "value" in variable:
        return str(variable["value"])
    source = variable["valueFrom"]
    if "secretKeyRef" in source:
        return held.secret(source["secretKeyRef"]["name"], source["secretKeyRef"]["key"]).decode()
    if "resourceFieldRef" in source:
        return _resource(source["resourceFieldRef"], container)
    path = source["fieldRef"]["fieldPath"]
    if label := _LABEL.fullmatch(path):
        return pod.labels[label[1]]
    return {"metadata.name": pod.name, "metadata.namespace": pod.namespace, "status.podIP": HOST}[path]


def _resource(asked: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """Returns a resource as Kubernetes does, rounded up to whole divisors. Raises LookupError for what the container
    does not say."""
    kind, _, name = asked["resource"].partition(".")
    if name != "cpu" or asked.get("divisor", "1") not in ("1", 1):
        raise LookupError(f"{asked} is not known here")
    try:
        cores = str(container["resources"][kind][name])
    except KeyError:
        raise LookupError(f"the container says nothing of {asked['resource']}") from None
    return str(-(-int(cores.removesuffix("m")) // 1000) if cores.endswith("m") else ceil(float(cores)))


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
