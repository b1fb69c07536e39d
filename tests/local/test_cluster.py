"""A local cluster: starts, keeps addresses, is refused twice, ends with its starter, goes on without a broken slice."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest

import shoal
from shoal_contract.errors import Conflict, ShoalError, Unavailable
from shoal_coordination.client import EtcdClient
from shoal_coordination.cluster_watch import first_view
from shoal_coordination.options import EtcdOptions
from shoal_local import limits
from shoal_local.cluster import LocalCluster
from shoal_local.record import ETCD, RECORD, LocalRecord, read_record
from tests.local.node_http import node_http
from tests.local.said import Said

WAIT_S = 60

HOLDS_ONE = """
import asyncio, json, sys
from pathlib import Path
from shoal_local import limits
from shoal_local.cluster import LocalCluster

async def main():
    async with LocalCluster(Path(sys.argv[1]), slices=1) as cluster:
        print(json.dumps([cluster.pid("s01"), cluster.pid("redirector"), cluster.pid("etcd")]), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_crashed_node_is_started_again_at_its_address(tmp_path: Path) -> None:
    said = Said()
    async with LocalCluster(tmp_path, slices=1, on_line=said) as cluster:
        first, address = cluster.pid("s01"), cluster.addresses["s01"]
        await cluster.crash("s01")
        await said.until("s01 is ready again")
        assert cluster.pid("s01") != first
        assert said.has("s01 ended by signal 9; starting it again in")
    async with LocalCluster(tmp_path) as cluster:
        assert cluster.addresses == {"s01": address}


async def test_every_address_is_known_told_and_kept(tmp_path: Path) -> None:
    """Metrics of slice nodes, and a redirector whose port was chosen, are where they were after a crash."""
    said = Said()
    async with LocalCluster(tmp_path, slices=2, on_line=said) as cluster:
        http, redirector = node_http(cluster), cluster.redirector
        for name in cluster.slices:
            assert ("s01", f"ready at {cluster.addresses['s01']}, metrics http://{http['s01']}/metrics") in said.lines
            assert await _answers(f"http://{http[name]}/metrics") == 200
        for name in ("s01", "redirector"):
            await cluster.crash(name)
            await said.until(f"{name} is ready again")
        assert await _answers(f"http://{http['s01']}/readyz") == 200
        async with shoal.connect(redirector) as broker:
            await broker.declare("inbox")
    async with LocalCluster(tmp_path) as cluster:
        assert node_http(cluster) == http


async def _answers(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False) as client:
        return (await client.get(url)).status_code


async def test_a_cluster_whose_etcd_was_lost_is_the_same_cluster(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, slices=1) as cluster, shoal.connect(cluster.redirector) as broker:
        await broker.declare("inbox")
        await broker.bind("inbox", "room")
        await broker.publish("room", b"kept")
    cluster_id = read_record(tmp_path).id
    shutil.rmtree(tmp_path / "etcd")
    async with LocalCluster(tmp_path, rebuild_etcd=True) as cluster, shoal.connect(cluster.redirector) as broker:
        assert [message.body for message in await broker.peek("inbox", 10)] == [b"kept"]
        async with EtcdClient(EtcdOptions((read_record(tmp_path).address("etcd"),))) as client:
            assert (await first_view(client, "local")).config.id == cluster_id


async def test_the_supervisors_own_lines_are_kept_with_their_time(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, slices=1) as cluster:
        cluster.say("something happened")
    lines = (tmp_path / "log" / "up.log").read_text().splitlines()
    told = [re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (.*)", line) for line in lines]
    assert all(told)
    texts = [found[1] for found in told if found]
    assert texts[0] == f"starting, by process {os.getpid()}"
    assert texts[-1] == "something happened"
    assert any(text.startswith("s01 ready at 127.0.0.1:") for text in texts)
    assert (tmp_path / "log" / "etcd.log").is_file(), "beside the others"


async def test_a_slice_that_does_not_start_is_missing_and_comes_back_when_it_can(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, slices=2):
        pass
    (tmp_path / "s02" / "journal").rename(tmp_path / "aside")
    (tmp_path / "s02" / "journal").touch()
    with pytest.raises(ShoalError, match="s02 ended with code 1 before it was ready"):
        await LocalCluster(tmp_path).start()
    said = Said()
    async with LocalCluster(tmp_path, partly=True, on_line=said) as cluster:
        assert list(cluster.missing) == ["s02"]
        assert "journal" in str(cluster.missing["s02"])
        assert await _answers(f"http://{node_http(cluster)['s01']}/readyz") == 200
        (tmp_path / "s02" / "journal").unlink()
        (tmp_path / "aside").rename(tmp_path / "s02" / "journal")
        await said.until("s02 is ready again")
        assert not cluster.missing


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
async def test_a_nodes_first_arguments_are_not_given_again(tmp_path: Path) -> None:
    """As --accept-empty must not be: a folder that is lost later would be accepted too."""
    said = Said()
    first = {"s01": ["--delta-rows", "1234"]}
    async with LocalCluster(tmp_path, slices=2, first=first, on_line=said) as cluster:
        given = {name: _command_line(cluster.pid(name)) for name in cluster.slices}
        assert [name for name, line in given.items() if "--delta-rows\x001234" in line] == ["s01"]
        await cluster.crash("s01")
        await said.until("s01 is ready again")
        assert "--delta-rows" not in _command_line(cluster.pid("s01"))


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


async def test_where_no_slice_starts_nothing_runs(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, slices=1):
        pass
    (tmp_path / "s01" / "journal").rename(tmp_path / "aside")
    (tmp_path / "s01" / "journal").touch()
    cluster = LocalCluster(tmp_path, partly=True)
    with pytest.raises(ShoalError, match="s01 ended with code 1 before it was ready"):
        await cluster.start()
    for name in ("etcd", "redirector"):
        with pytest.raises(ProcessLookupError):
            os.kill(cluster.pid(name), 0)


async def test_modules_in_the_folder_that_it_is_started_in_are_not_run(tmp_path: Path) -> None:
    """A user's own queue.py, or another user's lmdb.py in a folder that all may write to."""
    here = tmp_path / "here"
    here.mkdir()
    for module in ("lmdb", "queue", "grpc", "msgspec", "shoal_slice_node"):
        (here / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({module!r})")
    command = (sys.executable, "-P", "-c", HOLDS_ONE, str(tmp_path / "data"))
    starter = await asyncio.create_subprocess_exec(*command, cwd=here, stdout=asyncio.subprocess.PIPE)
    assert starter.stdout is not None
    async with asyncio.timeout(WAIT_S):
        assert json.loads(await starter.stdout.readline())
        starter.terminate()
        await starter.wait()
    assert not (tmp_path / "ran").exists()


async def test_processes_that_hang_are_named_and_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEALTH_EVERY_S", 0.1)
    monkeypatch.setattr(limits, "HEALTH_WITHIN_S", 1.0)
    monkeypatch.setattr(limits, "SILENT_S", 1.0)
    said = Said()
    async with LocalCluster(tmp_path, slices=1, admin="127.0.0.1:0", on_line=said) as cluster:
        pids = {name: cluster.pid(name) for name in ("s01", "redirector", "admin", "etcd")}
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)
        for name, pid in pids.items():
            await said.until(f"{name} (process {pid}) has not answered for")
        for pid in pids.values():
            os.kill(pid, signal.SIGCONT)
        await said.until("redirector answers again, after")
        assert cluster.pid("redirector") == pids["redirector"]


async def test_a_remembered_port_that_is_taken_is_told(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, slices=1):
        pass
    port = read_record(tmp_path).ports["s01"]
    said = Said()
    with socket.create_server(("127.0.0.1", port)):
        async with LocalCluster(tmp_path, on_line=said) as cluster:
            now = cluster.addresses["s01"].rpartition(":")[2]
            assert ("shoal", f"s01: port {port} is taken; from now on it is at port {now}") in said.lines


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[LocalCluster]:
    """Runs a cluster that chooses all its ports anew. Another test may take one of them before its server listens
    there: then the start fails, and the next one chooses another."""
    async with AsyncExitStack() as stack:
        for left in (2, 1, 0):
            try:
                cluster = await stack.enter_async_context(LocalCluster(folder))
                break
            except Unavailable as error:
                if not left or not re.search("cannot listen on|address already in use", error.message):
                    raise
        yield cluster


@pytest.mark.parametrize("role", ["s01", ETCD])
async def test_a_port_that_is_taken_during_a_start_is_another_one_at_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    async with LocalCluster(tmp_path, slices=1):
        pass
    record = read_record(tmp_path)
    record.ports.clear()
    record.save(tmp_path)
    taken: list[int] = []
    stack = ExitStack()
    choose = LocalRecord.choose_ports

    def chosen(record: LocalRecord, others: Collection[int] = ()) -> dict[str, int]:
        replaced = choose(record, others)
        if not taken:
            taken.append(record.ports[role])
            stack.enter_context(socket.create_server(("127.0.0.1", taken[0])))
        return replaced

    monkeypatch.setattr(LocalRecord, "choose_ports", chosen)
    with stack:
        async with started(tmp_path) as cluster:
            assert taken and read_record(tmp_path).ports[role] not in taken
            assert not cluster.missing


async def test_a_lost_record_is_written_again_as_the_refusal_says(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, slices=2) as cluster, shoal.connect(cluster.redirector) as broker:
        await broker.declare("inbox")
    (tmp_path / RECORD).unlink()
    with pytest.raises(Conflict, match=f"has etcd and s01, s02, but no {RECORD}") as caught:
        await LocalCluster(tmp_path).start()
    (tmp_path / RECORD).write_text("{" + str(caught.value).partition("{")[2])
    async with started(tmp_path) as cluster, shoal.connect(cluster.redirector) as broker:
        assert (await broker.describe("inbox")).exists


async def test_a_killed_node_stays_down_until_restarted(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, slices=1) as cluster:
        await cluster.kill("s01")
        with pytest.raises(ProcessLookupError):
            os.kill(cluster.pid("s01"), 0)
        address = cluster.addresses["s01"]
        await cluster.restart("s01")
        os.kill(cluster.pid("s01"), 0)
        assert cluster.addresses["s01"] == address


async def test_a_second_cluster_on_the_folder_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, slices=1) as cluster:
        for fresh in (False, True):
            with pytest.raises(Conflict, match=f"in use by process {os.getpid()}"):
                await LocalCluster(tmp_path, fresh=fresh).start()
        os.kill(cluster.pid("s01"), 0)
        assert (tmp_path / RECORD).exists()


async def test_no_child_outlives_a_starter_killed_with_9(tmp_path: Path) -> None:
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDS_ONE, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert starter.stdout is not None
    async with asyncio.timeout(WAIT_S):
        pids = json.loads(await starter.stdout.readline())
        starter.send_signal(signal.SIGKILL)
        await starter.wait()
        for pid in pids:
            while _runs(pid):  # noqa: ASYNC110 - a process that is not our child
                await asyncio.sleep(0.01)


def _runs(pid: int) -> bool:
    """Zombies that nobody waits for have ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
