"""Real etcd processes: every version that this machine has; and clients of them."""

import asyncio
import os
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from shoal_coordination.client import EtcdClient
from shoal_local.etcd import LocalEtcd, etcd_in_wheel, version_of
from tests.folders import NewFolder


def _programs() -> dict[tuple[int, ...], Path]:
    """One program for each version: the wheel's, those on PATH, and those that make put into .tools.

    SHOAL_TEST_ETCD names the only one.
    """
    if given := os.environ.get("SHOAL_TEST_ETCD"):
        return {version_of(Path(given)): Path(given).resolve()}
    on_path = [Path(folder, "etcd") for folder in os.get_exec_path()]
    # The wheel's launcher beside this Python is not looked at: it only starts the wheel's program.
    own = Path(sys.executable).parent
    made = sorted((Path(__file__).parents[2] / ".tools").glob("etcd-*/etcd"))
    candidates = [etcd_in_wheel(), *(path for path in on_path if path.is_file() and path.parent != own), *made]
    return {version_of(path): path for path in candidates if path is not None}


PROGRAMS = _programs()


@pytest.fixture(scope="session", params=PROGRAMS, ids=lambda version: ".".join(map(str, version)))
def program(request: pytest.FixtureRequest) -> Path:
    return PROGRAMS[request.param]


@pytest.fixture(scope="session")
def shared_etcd(program: Path, session_folder: NewFolder) -> Iterator[LocalEtcd]:
    """One for all tests that leave it running; each has a prefix of its own."""
    with asyncio.Runner() as runner:
        etcd = LocalEtcd(session_folder("etcd"), program=program)
        runner.run(etcd.start())
        yield etcd
        runner.run(etcd.stop())


@pytest.fixture
async def client(shared_etcd: LocalEtcd) -> AsyncIterator[EtcdClient]:
    async with EtcdClient(shared_etcd.options()) as client:
        yield client


@pytest.fixture
async def etcd(program: Path, tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    """The test's own, which it may kill."""
    etcd = LocalEtcd(tmp_path / "etcd", program=program)
    await etcd.start()
    yield etcd
    await etcd.stop()


@pytest.fixture
def prefix() -> bytes:
    """Of keys that no other test has. Names only; nothing depends on its value."""
    return f"/test/{uuid.uuid4().hex}/".encode()
