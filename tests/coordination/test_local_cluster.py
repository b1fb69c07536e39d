"""A local cluster: starts, keeps its nodes running at their addresses, is refused twice, wipes only what is its own."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from shoal_contract.errors import Conflict, OutOfRange
from shoal_coordination.local_cluster import LocalCluster
from shoal_coordination.local_folder import RECORD, LocalFolder

WAIT_S = 30

HOLDS_ONE = """
import asyncio, json, sys
from pathlib import Path
from shoal_coordination.local_cluster import LocalCluster

async def main():
    async with LocalCluster(Path(sys.argv[1]), slices=1) as cluster:
        print(json.dumps([cluster.pid("s01"), cluster.pid("redirector"), cluster._etcd.pid]), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Lines:
    """What a cluster said, and a way to wait for it."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self._changed = asyncio.Event()

    def __call__(self, name: str, line: str) -> None:
        self.said.append((name, line))
        self._changed.set()

    async def until(self, part: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while not any(part in line for _, line in self.said):
                self._changed.clear()
                await self._changed.wait()


async def test_a_crashed_node_is_started_again_at_its_address(tmp_path: Path) -> None:
    lines = Lines()
    async with LocalCluster(tmp_path, slices=1, on_line=lines) as cluster:
        first, address = cluster.pid("s01"), cluster.addresses["s01"]
        await cluster.crash("s01")
        await lines.until("s01 is ready again")
        assert cluster.pid("s01") != first
        assert any("s01 ended by signal 9; starting it again in" in line for _, line in lines.said)
    async with LocalCluster(tmp_path) as cluster:
        assert cluster.addresses == {"s01": address}


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


def test_fresh_wipes_only_what_is_a_clusters_own(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.open(2, fresh=False)
    folder.close()
    (tmp_path / "s01").mkdir()
    (tmp_path / "s01" / "data").touch()
    (tmp_path / "notes.txt").touch()
    assert folder.open(1, fresh=True).slices == ["s01"]
    folder.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [RECORD, "notes.txt", "owner"]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, fresh: bool) -> None:
    (tmp_path / "etcd").mkdir()
    with pytest.raises(Conflict, match="is not a Shoal data folder: it has etcd"):
        LocalFolder(tmp_path).open(None, fresh)
    assert [path.name for path in tmp_path.iterdir()] == ["etcd"]


def test_another_number_of_slices_is_refused_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    folder.open(2, fresh=False)
    folder.close()
    with pytest.raises(Conflict, match="holds a cluster of 2 slices, not 3: leave out --slices"):
        folder.open(3, fresh=False)
    assert folder.open(None, fresh=False).slices == ["s01", "s02"]
    folder.close()


def test_too_many_slices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OutOfRange, match="1 to 64"):
        LocalFolder(tmp_path / "new").open(65, fresh=False)
    assert not (tmp_path / "new").exists()
