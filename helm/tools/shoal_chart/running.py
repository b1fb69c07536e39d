"""Runs processes as the manifests' containers would run: all started at once, started again when they end, and probed.

Belongs here: life and health of processes. Not here: what is started (containers.py), what is done with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from shoal_chart import limits
from shoal_chart.chart import Manifest
from shoal_chart.containers import Command, Image, command_of
from shoal_chart.network import Network
from shoal_chart.pods import Pod, pods_at_install, pods_of
from shoal_chart.volumes import Volumes
from shoal_local.end_with_parent import tied_command
from shoal_runtime.tasks import Tasks

HTTP_OK = 200
# No proxy: everything is on loopback.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NotReady(Exception):
    """Says that a pod did not become ready or a job did not succeed in time; with the end of its log."""


class RenderedCluster:
    """Runs the pods of an install. Use as `async with`: ready inside, everything stopped after. It writes only below
    `folder`.

    `outside`, `secrets`: the addresses and secrets of others (Network, Volumes). `image`: where our programs come from;
    None: this Python's own.
    """

    def __init__(
        self,
        manifests: Iterable[Manifest],
        folder: Path,
        *,
        namespace: str = "chat",
        domain: str = "cluster.local",
        outside: Mapping[str, str] | None = None,
        secrets: Mapping[str, Mapping[str, bytes]] | None = None,
        image: Image | None = None,
    ) -> None:
        self.manifests = list(manifests)
        self.pods = pods_at_install(self.manifests, namespace)
        self.network = Network(self.manifests, self.pods, domain, outside)
        self.volumes = Volumes(folder, self.manifests, secrets)
        self._namespace = namespace
        self._image = image
        self._logs = folder / "log"
        self._tasks = Tasks("rendered cluster")
        self.killed: list[str] = []
        """The pods that did not end by themselves within STOP_S."""
        self._commands: dict[str, Command] = {}
        """The command of each pod. It is made once, since it fills the folders of Secrets, which their readers must
        find whole."""
        self._running: dict[str, asyncio.subprocess.Process] = {}
        self._starts: dict[str, int] = {}
        self._done: dict[str, asyncio.Event] = {pod.name: asyncio.Event() for pod in self.pods if pod.ends}

    async def __aenter__(self) -> RenderedCluster:
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    def address(self, component: str, port: str) -> str:
        """Returns host:port, on this machine, of the Service of a component. Raises LookupError."""
        for one in self.manifests:
            if one["kind"] == "Service" and one["metadata"]["labels"]["app.kubernetes.io/component"] == component:
                number = next(found["port"] for found in one["spec"]["ports"] if found["name"] == port)
                return self.network.service(one["metadata"]["name"], number)
        raise LookupError(f"no Service of {component}")

    def starts(self, pod: str) -> int:
        """Returns how often the pod was started."""
        return self._starts[pod]

    async def probe(self, pod: Pod, kind: str) -> int:
        """Returns the HTTP status of a probe of the pod's first container; 0 if there is no answer."""
        address, path = self._commands[pod.name].probes[kind]
        return await asyncio.to_thread(_status, f"http://{address}{path}")

    def kill(self, pod: str) -> None:
        """Ends the process of a pod, which is started again."""
        self._running[pod].kill()

    async def run_job(self, workload: Manifest) -> tuple[int, str]:
        """Runs a Job or CronJob once, hook or not. Returns its exit code and its output."""
        (pod,) = pods_of(workload, self._namespace)
        before = len(self.log(pod.name))
        process = await self._process(pod, self._command(pod))
        try:
            async with asyncio.timeout(limits.DONE_S_MAX):
                code = await process.wait()
        finally:
            await _end(process, 0)
        return code, self.log(pod.name)[before:]

    def log(self, pod: str) -> str:
        path = self._logs / f"{pod}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    async def _start(self) -> None:
        self._logs.mkdir(parents=True, exist_ok=True)
        self._commands = {pod.name: self._command(pod) for pod in self.pods}
        for pod in self.pods:
            self._tasks.start(pod.name, self._keep_running(pod, self._commands[pod.name]))
        waiting = [self._tasks.start(f"{pod.name} ready", self._until_ready(pod)) for pod in self.pods]
        try:
            async with asyncio.timeout(limits.READY_S):
                await asyncio.gather(*waiting)
        except TimeoutError:
            late = [
                pod.name for pod, wait in zip(self.pods, waiting, strict=True) if not wait.done() or wait.cancelled()
            ]
            last = "\n".join(f"--- {name}\n{self.log(name)[-2_000:]}" for name in late)
            raise NotReady(f"not ready after {limits.READY_S:g} s: {', '.join(late)}\n{last}") from None

    async def _stop(self) -> None:
        """Stops all processes, etcd's clients first: nodes say goodbye to etcd."""
        await self._tasks.close()
        order = sorted(self._running, key=lambda name: "-etcd-" in name)
        for late in (False, True):
            now = [name for name in order if ("-etcd-" in name) == late]
            ended = await asyncio.gather(*(_end(self._running[name], limits.STOP_S) for name in now))
            self.killed += [name for name, cleanly in zip(now, ended, strict=True) if not cleanly]

    def _command(self, pod: Pod) -> Command:
        (container,) = pod.containers
        return command_of(pod, container, self.network, self.volumes, self._image)

    async def _process(self, pod: Pod, command: Command) -> asyncio.subprocess.Process:
        environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", **command.environment}
        self._logs.mkdir(parents=True, exist_ok=True)
        with (self._logs / f"{pod.name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *tied_command(command.program, *command.arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=command.folder,
                start_new_session=True,
            )

    async def _keep_running(self, pod: Pod, command: Command) -> None:
        pause_s = limits.RESTART_S_MIN
        while True:
            self._starts[pod.name] = self._starts.get(pod.name, 0) + 1
            process = self._running[pod.name] = await self._process(pod, command)
            code = await process.wait()
            if pod.ends and code == 0:
                self._done[pod.name].set()
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, limits.RESTART_S_MAX)

    async def _until_ready(self, pod: Pod) -> None:
        if pod.ends:
            await self._done[pod.name].wait()
            return
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            while True:
                if await self.probe(pod, kind) == HTTP_OK:
                    break
                await asyncio.sleep(limits.PROBE_PAUSE_S)


def _status(url: str) -> int:
    try:
        with _OPENER.open(url, timeout=limits.PROBE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError):
        return 0


async def _end(process: asyncio.subprocess.Process, grace_s: float) -> bool:
    """Asks a process to end. Returns whether it ended by itself within `grace_s`."""
    if process.returncode is not None:
        return True
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(grace_s):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        return False
    return True


def summary(cluster: RenderedCluster) -> str:
    """Returns one line of JSON with the addresses of what runs."""
    found = {"ready": True, "redirector": cluster.address("redirector", "grpc")}
    with suppress(LookupError):
        found["admin"] = cluster.address("admin", "http")
    return json.dumps(found | {"pods": [pod.name for pod in cluster.pods]})
