"""A whole cluster on this machine, of real processes: etcd, a redirector, slice nodes. For `shoal up`, tests, demos.

Belongs here: starting in order, starting again what crashed, stopping in order. Does not: a child's life
(local_process.py), the folder (local_folder.py), terminals.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from shoal_contract.errors import ShoalError, Unavailable
from shoal_contract.tasks import Tasks
from shoal_coordination import limits
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster import create_cluster
from shoal_coordination.local_etcd import LocalEtcd
from shoal_coordination.local_folder import HOST, LocalFolder, LocalRecord
from shoal_coordination.local_process import LocalProcess, OnLine

CLUSTER = "local"
ANY_PORT = f"{HOST}:0"


def _say_nothing(name: str, line: str) -> None:
    pass


class LocalCluster:
    """Use as `async with LocalCluster(folder) as cluster`, or `start` and `stop`. Its children end with this process.

    `listen`, `http`: the redirector's addresses. `slices` None: as the folder remembers, or 3. `fresh`: wipe the folder
    first (only if it is a local cluster's). `archive`: slice nodes put closed journal segments there. `on_line(name,
    line)`: every line of every process, and our own as "shoal".
    """

    def __init__(
        self,
        folder: Path,
        *,
        slices: int | None = None,
        listen: str = ANY_PORT,
        http: str = ANY_PORT,
        fresh: bool = False,
        archive: Path | None = None,
        on_line: OnLine = _say_nothing,
    ) -> None:
        self._folder = LocalFolder(folder)
        self._slices = slices
        self._listen = listen
        self._http = http
        self._fresh = fresh
        self._archive = archive
        self._on_line = on_line
        self._etcd: LocalEtcd | None = None
        self._children: dict[str, LocalProcess] = {}
        """By name: slices, and "redirector"."""
        self._ended_on_purpose: set[str] = set()
        """Children that stay down until `restart`."""
        self._supervision = Tasks("local cluster")
        self.addresses: dict[str, str] = {}
        """Of slice nodes by slice, host:port."""
        self.http_addresses: dict[str, str] = {}
        """Of their HTTP (health, metrics), host:port; another one after each start."""

    @property
    def redirector(self) -> str:
        """host:port, for `shoal.connect`."""
        return self._listen

    @property
    def http(self) -> str:
        """host:port of the redirector's HTTP."""
        return self._http

    @property
    def slices(self) -> list[str]:
        return list(self.addresses)

    @property
    def log_folder(self) -> Path:
        return self._folder.path / "log"

    async def __aenter__(self) -> LocalCluster:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Until every process is ready. Else nothing runs: Conflict, Corrupt, OutOfRange, Unavailable."""
        record = self._folder.open(self._slices, self._fresh)
        try:
            self._folder.choose_ports(record)
            await self._start_all(record)
        except BaseException:
            await self.stop()
            raise
        for name in self._children:
            self._supervision.start(name, self._keep_running(name))

    async def stop(self) -> None:
        """Redirector and nodes first (nodes checkpoint), then etcd. Only this cluster's own processes."""
        self._ended_on_purpose.update(self._children)
        await self._supervision.close()
        await asyncio.gather(*(child.stop() for child in self._children.values()))
        if self._etcd is not None:
            await self._etcd.stop()
        self._folder.close()

    async def kill(self, slice_name: str) -> None:
        """As kill -9 of the slice's node; it stays down until `restart`."""
        self._ended_on_purpose.add(slice_name)
        await self._children[slice_name].kill()

    async def crash(self, slice_name: str) -> None:
        """As `kill`, but left to the cluster, which starts it again by itself."""
        await self._children[slice_name].kill()

    async def restart(self, slice_name: str) -> None:
        """Starts it again, at the same address, after a clean stop if it still runs. Returns when it is ready."""
        self._ended_on_purpose.add(slice_name)
        child = self._children[slice_name]
        await child.stop()
        self._ready_again(child, await child.start())
        self._ended_on_purpose.discard(slice_name)
        self._supervision.start(slice_name, self._keep_running(slice_name))

    def pid(self, name: str) -> int:
        """Of a slice's node, or of "redirector"."""
        return self._children[name].pid

    async def _start_all(self, record: LocalRecord) -> None:
        self.log_folder.mkdir(exist_ok=True)
        self._etcd = LocalEtcd(self._folder.path / "etcd")
        await self._etcd.start()
        self._on_line("etcd", f"ready at {self._etcd.endpoint}; its log is {self._folder.path / 'etcd' / 'etcd.log'}")
        async with EtcdClient(self._etcd.options()) as client:
            await create_cluster(client, CLUSTER, record.slices)
        for name in record.slices:
            self._add(name, self._node_command(name, record.ports[name]))
        self._add("redirector", ["shoal_redirector", "--listen", self._listen, "--http", self._http])
        started = await asyncio.gather(*(child.start() for child in self._children.values()), return_exceptions=True)
        for problem in started:
            if isinstance(problem, BaseException):
                raise problem
        for name, ready in zip(self._children, started, strict=True):
            assert isinstance(ready, dict)
            if name == "redirector":
                self._listen, self._http = str(ready["grpc"]), str(ready["http"])
            else:
                self.addresses[name] = str(ready["address"])
                self.http_addresses[name] = str(ready["http"])
            self._on_line(name, f"ready at {ready.get('address') or ready['grpc']}")

    def _node_command(self, name: str, port: int) -> list[str]:
        node = f"n{name.removeprefix('s')}"
        command = [
            "shoal_slice_node",
            "--slice",
            name,
            "--node",
            node,
            "--listen",
            f"{HOST}:{port}",
            "--http",
            ANY_PORT,
        ]
        archive = [] if self._archive is None else ["--archive", str(self._archive)]
        return [*command, "--data", str(self._folder.path / name), *archive]

    def _add(self, name: str, command: list[str]) -> None:
        assert self._etcd is not None
        where = ["--etcd", self._etcd.endpoint, "--cluster", CLUSTER]
        self._children[name] = LocalProcess(name, [*command, *where], self.log_folder / f"{name}.log", self._on_line)

    async def _keep_running(self, name: str) -> None:
        child, loop = self._children[name], asyncio.get_running_loop()
        pause_s = limits.LOCAL_RESTART_S_MIN
        while True:
            since = loop.time()
            code = await child.wait()
            if name in self._ended_on_purpose:
                return
            if loop.time() - since > limits.LOCAL_STEADY_S:
                pause_s = limits.LOCAL_RESTART_S_MIN
            self._on_line("shoal", f"{name} ended {_how(code)}; starting it again in {pause_s:g} s")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, limits.LOCAL_RESTART_S_MAX)
            if name in self._ended_on_purpose:
                return
            await self._start_again(child)

    def _ready_again(self, child: LocalProcess, ready: dict[str, object]) -> None:
        if child.name in self.http_addresses:
            self.http_addresses[child.name] = str(ready["http"])

    async def _start_again(self, child: LocalProcess) -> None:
        try:
            self._ready_again(child, await child.start())
            self._on_line("shoal", f"{child.name} is ready again")
        except Unavailable as error:
            self._on_line("shoal", f"{child.name} did not start: {error.message}")
        except ShoalError as error:
            self._on_line("shoal", str(error))


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with code {code}"
