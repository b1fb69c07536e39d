"""The image, made from the Dockerfile's own lines in an empty root and run as a pod runs it, without an engine.

What is installed, which user runs, what can be written, and that the servers start from it. Needs root's rights for the
root (devices, mounts of its own); nothing of the machine's is changed or mounted.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

import shoal
from shoal_chart.chart import CHART, read_values, render
from shoal_chart.running import RenderedCluster
from shoal_contract.version import version
from tests.folders import NewFolder
from tests.helm.dockerfile import HELM
from tests.helm.image_root import ImageRoot, Target, fetch_wheels, possible
from tests.helm.lock_file import read_lock

WAIT_S = 120
WALK = """
import json, os
found = []
for folder, folders, files in os.walk("/"):
    if folder == "/":
        folders[:] = [name for name in folders if name not in ("proc", "dev")]
    found += [path for path in (os.path.join(folder, name) for name in (*folders, *files))
              if not os.path.islink(path) and os.access(path, os.W_OK, effective_ids=True)]
print(json.dumps(sorted(found)))
"""
TRY = """
import json, sys
def tried(path):
    try:
        open(path, "w").close()
        return ""
    except OSError as error:
        return error.strerror
print(json.dumps({path: tried(path) for path in sys.argv[1:]}))
"""
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not possible(), reason="needs root's rights, unshare, chroot, setpriv, ldd, a Python not of Debian"
    ),
]


@pytest.fixture(scope="module")
def image(module_folder: NewFolder) -> ImageRoot:
    fetch_wheels("requirements-build.txt", "requirements.txt")
    made = ImageRoot(module_folder("image"))
    made.make("shoal")
    return made


def run(image: ImageRoot, *words: str, mounts: dict[str, Path] | None = None) -> str:
    """What a program of the image says, which must end well."""
    done = image.run("shoal", *words, mounts=mounts)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_has_what_the_list_says_and_shoal(image: ImageRoot) -> None:
    code = "import json, importlib.metadata as m; print(json.dumps({d.name: d.version for d in m.distributions()}))"
    told = json.loads(run(image, "/opt/shoal/bin/python", "-c", code))
    found = {re.sub(r"[-_.]+", "-", name).lower(): number for name, number in told.items()}
    listed = read_lock((HELM / "requirements.txt").read_text(encoding="utf-8"))
    assert found == {name: number for name, (number, _) in listed.items()} | {"shoal": version()}


def test_it_has_no_pip_no_compiler_no_sources_and_no_java(image: ImageRoot) -> None:
    for program in ("pip", "gcc", "cc", "make", "java"):
        place = image.run("shoal", "sh", "-c", f"command -v {program}").stdout.strip()
        assert not place.startswith("/opt/shoal"), place
    assert image.run("shoal", "python", "-m", "pip").returncode != 0
    for folder in ("/src", "/wheels", "/opt/shoal/include/src"):
        assert image.run("shoal", "ls", folder).returncode != 0


def test_it_is_this_version(image: ImageRoot) -> None:
    assert run(image, "shoal", "--version") == f"shoal {version()}\n"


def test_it_runs_as_a_user_with_a_name_and_no_rights(image: ImageRoot) -> None:
    assert run(image, "id") == "uid=65532(shoal) gid=65532(shoal) groups=65532(shoal)\n"
    status = run(image, "cat", "/proc/self/status")
    rights = dict(re.findall(r"^(Cap\w+|NoNewPrivs):\s+(\w+)$", status, re.MULTILINE))
    assert {name: int(value, 16) for name, value in rights.items() if name != "NoNewPrivs"} == dict.fromkeys(
        ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), 0
    )
    assert rights["NoNewPrivs"] == "1"


def test_only_its_temporary_folder_and_its_volumes_can_be_written(image: ImageRoot, tmp_path: Path) -> None:
    mounts = {"/tmp": tmp_path / "tmp", "/data": tmp_path / "data"}
    for folder in mounts.values():
        folder.mkdir()
        folder.chmod(0o777)
    paths = (
        "/x",
        "/etc/x",
        "/opt/shoal/x",
        "/opt/shoal/lib/python3.11/site-packages/lmdb/__init__.py",
        "/data/x",
        "/tmp/x",
    )
    told = json.loads(run(image, "python", "-c", TRY, *paths, mounts=mounts))
    assert {path for path, problem in told.items() if not problem} == {"/data/x", "/tmp/x"}
    assert {problem for problem in told.values() if problem} == {"Read-only file system"}


def test_nothing_but_tmp_is_its_users_even_where_the_root_can_be_written(image: ImageRoot) -> None:
    """As `docker run` without --read-only has it."""
    root = image.make("shoal")
    command = ["chroot", "--userspec=65532:65532", "--groups=", str(root), "/opt/shoal/bin/python", "-c", WALK]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert json.loads(done.stdout) == ["/tmp"]


def test_a_module_in_the_folder_where_it_starts_is_not_taken(image: ImageRoot, tmp_path: Path) -> None:
    (tmp_path / "lmdb.py").write_text("raise SystemExit('lmdb of the current folder was run')")
    tmp_path.chmod(0o755)
    code = "import lmdb, os; print(os.getcwd(), lmdb.__file__)"
    for words in (("python", "-c", code), ("python", "-m", "shoal_slice_node", "--help")):
        told = run(image, *words, mounts={"/tmp": tmp_path})
        assert "/tmp /opt/shoal/lib/" in told or "usage" in told


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(image: ImageRoot, module_folder: NewFolder) -> AsyncIterator[RenderedCluster]:
    """The laptop's example, every program of ours from the image. Folders on the way to the volumes are closed to its
    user, as on a machine of Kubernetes."""
    manifests = render(read_values([CHART / "examples" / "laptop.yaml"]))
    folder = module_folder("pods")
    async with RenderedCluster(manifests, folder, image=Target(image, "shoal")) as running:
        yield running
    assert running.killed == []


@pytest.mark.asyncio(loop_scope="module")
async def test_redirector_slices_and_admin_start_from_it_and_carry_messages(cluster: RenderedCluster) -> None:
    async with shoal.connect(cluster.address("redirector", "grpc"), deadline_s=WAIT_S) as broker:
        await broker.declare("inbox")
        await broker.bind("inbox", ["one", "two", "three"])
        for key in ("one", "two", "three"):
            assert (await broker.publish(key, key.encode())).queues == 1
        assert sorted(message.body for message in await broker.peek("inbox", 10)) == [b"one", b"three", b"two"]
    servers = [pod for pod in cluster.pods if not pod.ends]
    for pod in servers:
        assert await cluster.probe(pod, "readinessProbe") == 200, pod.name
        assert cluster.starts(pod.name) == 1, cluster.log(pod.name)


def test_what_the_servers_wrote_is_their_users_and_lies_on_volumes(cluster: RenderedCluster, image: ImageRoot) -> None:
    data = cluster.volumes.claim("data-demo-shoal-slice-0")
    owners = {path.stat().st_uid for path in data.rglob("*")}
    assert owners == {65532} and (data / "node").is_dir()
    root = image.make("shoal")
    assert [path.name for path in (root / "tmp").iterdir()] == []
