"""Runs a whole cluster on this machine for `shoal up`, tests, demos: real processes of etcd, redirector, slice nodes.

Belongs here: which processes there are, their arguments, the order of their starts and ends. Does not: keeping them
running (supervisor.py), a child's life (child.py), the folder (folder.py), terminals.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from shoal_contract.errors import Conflict, ShoalError
from shoal_coordination.client import EtcdClient
from shoal_local.addresses import ClientAddresses
from shoal_local.archived import ArchiveSayings, Lacks
from shoal_local.child import Facts
from shoal_local.commands import ACCEPT_EMPTY, admin_command, node_command, redirector_command
from shoal_local.etcd import LocalEtcd, find_etcd, version_of
from shoal_local.files import make_folder
from shoal_local.folder import LocalFolder
from shoal_local.former_leaders import forget_addresses
from shoal_local.lives import REBUILD, check_etcd_folder, is_older, open_records, read_lives
from shoal_local.log import LogFile
from shoal_local.ports import HOST, until_former_ended
from shoal_local.process import LocalProcess, OnLine
from shoal_local.record import ETCD, ETCD_PEERS, RECORD, LocalRecord, http_of
from shoal_local.supervisor import Supervisor
from shoal_runtime.tasks import Tasks, all_ended

ANY_PORT = f"{HOST}:0"
REDIRECTOR = "redirector"
ADMIN = "admin"


def _say_nothing(name: str, line: str) -> None:
    pass


class LocalCluster:
    """Runs a cluster: `async with LocalCluster(folder) as cluster`, or `start` and `stop`. It ends with this process.

    `listen`, `http`: the redirector's addresses. `admin`: the HTTP gateway's address; if given, the gateway is started
    too. Port 0 takes a free one. `slices` None: as many as the folder remembers, or 3. `fresh`: wipe the folder first
    (only if it is a local cluster's). `archive`: slice nodes put closed journal segments there. `etcd`: the program;
    None: the one on PATH, else the wheel's. `partly`: if at least one slice starts, those that do not are listed in
    `missing` and tried again. `first`: further arguments of slice nodes, by slice, until they were ready once.
    `accept_empty`: slices that may begin, this once, without their missing data, or with an old copy of it.
    `rebuild_etcd`: makes etcd's lost records anew from what the folder remembers.
    `on_line(name, line)`: gets every line of every process except etcd, and our own lines as "shoal".
    """

    def __init__(
        self,
        folder: Path,
        *,
        slices: int | None = None,
        listen: str = ANY_PORT,
        http: str = ANY_PORT,
        admin: str = "",
        fresh: bool = False,
        archive: Path | None = None,
        etcd: Path | None = None,
        partly: bool = False,
        first: Mapping[str, Sequence[str]] | None = None,
        accept_empty: Collection[str] = (),
        rebuild_etcd: bool = False,
        on_line: OnLine = _say_nothing,
    ) -> None:
        self._folder = LocalFolder(folder)
        self._slices = slices
        self._at = ClientAddresses(listen, http, admin)
        self._fresh = fresh
        self._archive = archive
        self._program = etcd
        self._partly = partly
        self._first = {**(first or {}), **{name: (*(first or {}).get(name, ()), ACCEPT_EMPTY) for name in accept_empty}}
        self._rebuild_etcd = rebuild_etcd
        self._accepts = bool(accept_empty)
        self._on_line = on_line
        self._record = LocalRecord([])
        self._etcd: LocalEtcd | None = None
        self._supervisor = Supervisor(self.say)
        self._archives = ArchiveSayings()
        self._tasks = Tasks("local cluster")
        self.missing: dict[str, ShoalError] = {}
        """Slice that did not start -> the reason; empty again once all have started."""

    @property
    def redirector(self) -> str:
        """Returns the redirector's host:port, for `shoal.connect`."""
        return self._at.listen

    @property
    def http(self) -> str:
        """Returns host:port of the redirector's HTTP."""
        return self._at.http

    @property
    def admin(self) -> str:
        """Returns host:port of the HTTP gateway; empty: there is none."""
        return self._at.admin

    @property
    def slices(self) -> list[str]:
        return list(self._record.slices)

    @property
    def addresses(self) -> dict[str, str]:
        """Returns slice -> host:port of its node; the same after each start."""
        return {name: self._record.address(name) for name in self._record.slices}

    @property
    def log_folder(self) -> Path:
        return self._folder.path / "log"

    async def __aenter__(self) -> LocalCluster:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Starts all processes. Returns when all are ready, or, with `partly`, when at least one slice is.

        Otherwise nothing runs, and this raises Conflict (also for a port that is taken: then nothing was made),
        Corrupt, OutOfRange, Unavailable.
        """
        self._folder.check(self._slices)
        self._check_there()
        if self._archive is not None:
            self._folder.check_archive(self._archive)
        self._at.choose()
        program = self._program or find_etcd()
        version_of(program)
        self._record = self._folder.open(self._slices, self._fresh)
        try:
            self._check_names()
            if not self._rebuild_etcd:
                check_etcd_folder(self._folder.path, self._record)
            await until_former_ended(self._record.ports.values(), self._folder.path)
            copy_of = self._record.settle(self._folder.path)
            others = set(self._record.ports.values()) if copy_of else set()
            replaced = self._record.choose_ports(self._at.ports | others)
            self._record.save(self._folder.path)
            make_folder(self.log_folder)
            self._own_log.add(f"starting, by process {os.getpid()}")
            self._tell_ports(copy_of, replaced)
            await self._start_etcd(program)
            await self._start_servers()
            await self._remember()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends this cluster's gateway, then its redirector and nodes (nodes checkpoint), then its etcd."""
        await self._supervisor.stop([ADMIN], [REDIRECTOR, *self._record.slices], sparing=[ETCD])
        await self._tasks.close()
        await self._remember()
        await self._supervisor.stop([ETCD])
        self._folder.close()

    def archived(self, name: str) -> int | Lacks:
        """Returns, after `stop`, from which LSN on the archive has all records of a slice, as its node said when it
        ended; else why it has not. A node that did not end well, or said nothing, left them in its journal."""
        if not self._supervisor.ended_well(name):
            return Lacks.IN_JOURNAL
        return self._archives.of(name, self.pid(name))

    def say(self, line: str, name: str = "shoal") -> None:
        """Passes a line of our own, or of a process, to the listener, and with the time to log/up.log."""
        with suppress(OSError, Conflict):
            self._own_log.add(line if name == "shoal" else f"{name} {line}")
        self._on_line(name, line)

    async def kill(self, name: str) -> None:
        """Kills a process as kill -9; it stays down until `restart`. `name`: a slice, "etcd", "redirector", "admin"."""
        await self._supervisor.kill(name)

    async def crash(self, name: str) -> None:
        """Kills a process as kill -9; the cluster starts it again by itself. `name`: as for `kill`."""
        await self._supervisor.crash(name)

    async def restart(self, name: str) -> None:
        """Starts a process again at the same address, after a clean stop if it still runs. Returns when it is ready."""
        await self._supervisor.restart(name)

    def pid(self, name: str) -> int:
        """Returns the pid of a process. `name`: as for `kill`."""
        return self._supervisor.pid(name)

    def _tell_ports(self, copy_of: str, replaced: Mapping[str, int]) -> None:
        if copy_of:
            self.say(
                f"this folder is a copy of {copy_of}, or was moved from there: its slices and etcd are at other ports"
                f" from now on, where no client of that cluster looks for them ({RECORD} has them)"
            )
            return
        for role, port in replaced.items():
            self.say(f"{role}: port {port} is taken; from now on it is at port {self._record.ports[role]}")

    @property
    def _own_log(self) -> LogFile:
        return LogFile(self.log_folder / "up.log")

    async def _start_etcd(self, program: Path) -> None:
        ports, record = self._record.ports, self._record
        log = self.log_folder / "etcd.log"
        folder = self._folder.path / "etcd"
        self._etcd = etcd = LocalEtcd(folder, program=program, port=ports[ETCD], peer_port=ports[ETCD_PEERS], log=log)
        self._supervisor.add(etcd, lambda facts: None)
        await self._supervisor.start(ETCD)
        self.say(f"ready at {etcd.endpoint}; its log is {log}", ETCD)
        async with EtcdClient(etcd.options()) as client:
            cluster_id = await open_records(client, self._folder.path, record, self._rebuild_etcd)
            await forget_addresses(client)
        if not record.id:
            record.id = cluster_id
            record.save(self._folder.path)

    async def _remember(self) -> None:
        """Copies what etcd knows of the slices into the folder's record, while etcd runs."""
        if self._etcd is None or not self._supervisor.running(ETCD):
            return
        try:
            async with EtcdClient(self._etcd.options()) as client:
                lives = await read_lives(client)
            known = self._record.lives
            newer = {name: life for name, life in lives.items() if name not in known or is_older(known[name], life)}
            if newer:
                known |= newer
                self._record.save(self._folder.path)
        except ShoalError as problem:
            self.say(f"what etcd knows of the slices could not be copied into {RECORD}: {problem}")

    def _check_there(self) -> None:
        """Raises Conflict if a recovery is asked for, and the folder has no cluster that could be recovered."""
        if (self._rebuild_etcd or self._accepts) and not (self._folder.path / RECORD).is_file():
            flag = REBUILD if self._rebuild_etcd else ACCEPT_EMPTY
            folder = self._folder.path
            raise Conflict(
                f"there is no cluster in {folder}, so {flag} has nothing to recover: nothing was started. Look at"
                " --data",
                subject=str(folder),
            )

    def _check_names(self) -> None:
        """Raises Conflict if arguments name a slice that there is not."""
        if unknown := sorted(set(self._first) - set(self._record.slices)):
            known = ", ".join(self._record.slices)
            raise Conflict(f"there is no slice {unknown[0]}; the cluster has {known}", subject=unknown[0])

    async def _start_servers(self) -> None:
        for name in self._record.slices:
            command = node_command(self._record, name, self._folder.path / name, self._archive)
            self._add(name, command, self._record.address(http_of(name)), self._first.get(name, ()))
        self._add(REDIRECTOR, redirector_command(self._record, self._at), self.http)
        servers = [REDIRECTOR, *self._record.slices]
        results = await all_ended(*map(self._supervisor.start, servers))
        self._bear({name: result for name, result in zip(servers, results, strict=True) if result is not None})
        if self.admin:
            self._add(ADMIN, admin_command(self._at), self.admin)
            await self._start_admin()

    async def _start_admin(self) -> None:
        try:
            await self._supervisor.start(ADMIN)
        except ShoalError as problem:
            if not self._partly:
                raise
            self.say(f"did not start: {problem}; trying again", ADMIN)
            self._supervisor.try_on(ADMIN, problem)

    def _bear(self, problems: Mapping[str, BaseException]) -> None:
        """Goes on without slices that did not start, or raises."""
        for name, problem in problems.items():
            if not (self._partly and isinstance(problem, ShoalError)) or name == REDIRECTOR:
                raise problem
            self.missing[name] = problem
        if len(self.missing) == len(self._record.slices):
            raise next(iter(self.missing.values()))
        for name, problem in self.missing.items():
            self._supervisor.try_on(name, problem)

    def _add(self, name: str, command: list[str], health: str, first: Sequence[str] = ()) -> None:
        log = LogFile(self.log_folder / f"{name}.log")
        process = LocalProcess(name, command, log, self._pass_on, first, health)
        self._supervisor.add(process, lambda facts: self._ready(name, facts))

    def _pass_on(self, name: str, line: str) -> None:
        if name == "shoal":
            self.say(line)
            return
        if name in self._record.slices:
            self._archives.hear(name, self.pid(name), line)
        self._on_line(name, line)

    def _ready(self, name: str, facts: Facts) -> None:
        self.missing.pop(name, None)
        where = facts.get("address") or facts.get("grpc")
        metrics = f", metrics http://{facts['http']}/metrics" if where else ""
        where = where or f"http://{facts.get('http')}"
        self.say(f"ready at {where}{metrics}", name)
        if name in self._record.slices:
            self._tasks.start("remember", self._remember())
