"""Which etcd the tests run: SHOAL_TEST_ETCD=PROGRAM, else what a local cluster would find. Which files run together,
and the cluster that they share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

import shoal_runtime.without_forks  # noqa: F401 - before gRPC is imported, as every program does
from tests.folders import NewFolder, new_folders

VARIABLE = "SHOAL_TEST_ETCD"
OF_SPARK = "tests/pipeline/"

test_folder = pytest.fixture(new_folders, scope="function", name="test_folder")
module_folder = pytest.fixture(new_folders, scope="module", name="module_folder")
package_folder = pytest.fixture(new_folders, scope="package", name="package_folder")
session_folder = pytest.fixture(new_folders, scope="session", name="session_folder")


class FilesButOneSpark(LoadFileScheduling):  # type: ignore[misc] # It has no types.
    """A worker takes a file at a time, and all files of Spark together: each worker with Spark starts a JVM."""

    def _split_scope(self, nodeid: str) -> str:
        return OF_SPARK if nodeid.startswith(OF_SPARK) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> FilesButOneSpark | None:
    """Takes the place of `--dist loadfile`."""
    return FilesButOneSpark(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_configure() -> None:
    """Puts the program's folder in front of PATH, for this process and for all that it starts; they hear Ctrl-C, which
    a shell has its background jobs ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    given = os.environ.get(VARIABLE)
    if given is None:
        return
    program = Path(given).resolve()
    if program.name != "etcd" or not program.is_file():
        raise SystemExit(f"{VARIABLE}={given} is not a program called etcd")
    os.environ["PATH"] = os.pathsep.join((str(program.parent), os.environ["PATH"]))


@pytest.fixture(scope="session")
def real_redirector(session_folder: NewFolder) -> Iterator[str]:
    """host:port of a redirector of three slice nodes, for all tests of a worker (each cluster takes a tenth of a core
    while it is idle); or SHOAL_TEST_REDIRECTOR's."""
    given = os.environ.get("SHOAL_TEST_REDIRECTOR")
    if given:
        yield given
        return
    from tests.client.real_cluster import RealCluster

    with RealCluster(session_folder("real") / "data") as redirector:
        yield redirector
