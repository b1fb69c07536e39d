"""`python -m shoal_coordination create`, as a process: makes a cluster once, refuses to change it, waits for etcd."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path

import pytest

from shoal_coordination.client import EtcdClient
from shoal_local.etcd import LocalEtcd
from tests.coordination.cluster_records import read_cluster

WAIT_S = 60


async def create(endpoint: str, cluster: str, slices: str, *more: str) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "shoal_coordination", "create", "--cluster", cluster, "--slices", slices),
        *("--etcd", endpoint, *more),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, problems = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode is not None
    return process.returncode, told.decode(), problems.decode()


@pytest.fixture
def cluster() -> str:
    return f"c{uuid.uuid4().hex[:12]}"


async def test_it_makes_a_cluster_once(shared_etcd: LocalEtcd, client: EtcdClient, cluster: str) -> None:
    code, told, problems = await create(shared_etcd.endpoint, cluster, "s0,s1", "--partitions", "64")
    assert (code, problems) == (0, "")
    first = await read_cluster(client, cluster)
    assert json.loads(told) == {"cluster": cluster, "id": first.config.id, "partitions": 64, "slices": ["s0", "s1"]}
    assert (first.map.partitions, list(first.map.slices)) == (64, ["s0", "s1"])
    code, again, _ = await create(shared_etcd.endpoint, cluster, "s0,s1", "--partitions", "64")
    assert (code, again) == (0, told)
    assert (await read_cluster(client, cluster)).map == first.map


@pytest.mark.parametrize(
    ("slices", "more", "complaint"),
    [
        ("s0,s1,s2", ("--partitions", "64"), "exists without slices s2"),
        ("s0", ("--partitions", "64"), "exists with slices s1 too"),
        ("s0,s1", ("--partitions", "128"), "exists with 64 partitions, not 128"),
    ],
)
async def test_a_cluster_that_exists_otherwise_is_left_as_it_is(
    shared_etcd: LocalEtcd, client: EtcdClient, cluster: str, slices: str, more: tuple[str, ...], complaint: str
) -> None:
    await create(shared_etcd.endpoint, cluster, "s0,s1", "--partitions", "64")
    before = await read_cluster(client, cluster)
    code, told, problems = await create(shared_etcd.endpoint, cluster, slices, *more)
    assert (code, told) == (1, "")
    assert complaint in problems
    assert (await read_cluster(client, cluster)).map == before.map


async def test_the_id_of_lost_records_may_be_given(shared_etcd: LocalEtcd, client: EtcdClient, cluster: str) -> None:
    code, told, _ = await create(shared_etcd.endpoint, cluster, "s0", "--id", "e" * 32)
    assert (code, json.loads(told)["id"]) == (0, "e" * 32)
    assert (await read_cluster(client, cluster)).config.id == "e" * 32
    code, _, problems = await create(shared_etcd.endpoint, cluster, "s0", "--id", "5")
    assert (code, "cluster id '5' is not 32 digits" in problems) == (2, True)


async def test_it_gives_up_on_a_silent_etcd_and_says_so(cluster: str) -> None:
    code, told, problems = await create("127.0.0.1:1", cluster, "s0", "--wait-s", "0")
    assert (code, told) == (1, "")
    assert "127.0.0.1:1" in problems


async def test_bad_names_are_refused_before_etcd_is_asked(cluster: str) -> None:
    code, _, problems = await create("127.0.0.1:1", cluster, "s0,-bad")
    assert code == 2
    assert "slice name '-bad'" in problems


async def test_a_certificate_file_that_holds_none_is_refused(cluster: str, tmp_path: Path) -> None:
    """An empty one would else mean: trust what the system trusts."""
    empty = tmp_path / "ca.crt"
    empty.touch()
    code, _, problems = await create("127.0.0.1:1", cluster, "s0", "--etcd-ca", str(empty))
    assert code == 2
    assert "ca.crt holds nothing in PEM form" in problems
