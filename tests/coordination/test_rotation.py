"""Certificates and passwords that change while a client runs: used from the next connection on, without a restart."""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
from pathlib import Path

import pytest

from shoal_contract.errors import Malformed
from shoal_coordination.arguments import add_etcd_arguments, etcd_options
from shoal_coordination.client import EtcdClient
from shoal_coordination.lease import grant_lease
from shoal_coordination.options import EtcdOptions, Tls
from shoal_local.etcd import LocalEtcd, ServerTls
from tests.coordination.certificates import issue

WAIT_S = 60
FILES = ("ca.pem", "client.pem", "client.key")


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    return authority_in(tmp_path / "first")


def authority_in(folder: Path) -> Path:
    """A folder with an authority of its own, and certificates of etcd and of a client."""
    folder.mkdir()
    issue(folder, "server")
    issue(folder, "client")
    return folder


def mount(folder: Path, mounted: Path, *names: str) -> None:
    """Puts files where the client looks for them, each at once, as Kubernetes does with a Secret's."""
    mounted.mkdir(exist_ok=True)
    for name in names or FILES:
        shutil.copy(folder / name, mounted / "new")
        (mounted / "new").rename(mounted / name)


def arguments(endpoint: str, mounted: Path, *more: str) -> EtcdOptions:
    """As a server reads its arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--etcd")
    add_etcd_arguments(parser)
    names = zip(("--etcd-ca", "--etcd-certificate", "--etcd-key"), FILES, strict=True)
    files = [text for option, name in names for text in (option, str(mounted / name))]
    return etcd_options(parser.parse_args(["--etcd", endpoint, *files, *more]), "")


def server_tls(folder: Path) -> ServerTls:
    shown = Tls(*((folder / name).read_bytes() for name in FILES))
    return ServerTls(folder / "server.pem", folder / "server.key", client=shown, ca=folder / "ca.pem")


async def restart(etcd: LocalEtcd, folder: Path) -> None:
    """As after a rotation on etcd's side: it trusts the folder's authority only."""
    await etcd.stop()
    etcd.tls = server_tls(folder)
    await etcd.start()


async def renewed(left_s: object, lease_left_s: float) -> None:
    """Waits until the lease lives longer than it did."""
    assert callable(left_s)
    async with asyncio.timeout(WAIT_S):
        while left_s() <= lease_left_s:  # noqa: ASYNC110 - a clock has no event
            await asyncio.sleep(0.02)


async def test_new_certificates_are_used_by_calls_and_leases_without_a_restart(
    program: Path, tmp_path: Path, authority: Path
) -> None:
    second, mounted = authority_in(tmp_path / "second"), tmp_path / "mounted"
    mount(authority, mounted)
    etcd = LocalEtcd(tmp_path / "etcd", program=program, tls=server_tls(authority))
    await etcd.start()
    lost = asyncio.Event()
    async with EtcdClient(arguments(etcd.endpoint, mounted)) as client:
        await client.put(b"k", b"1")
        lease = await grant_lease(client, 20, lost.set)
        mount(second, mounted)
        await restart(etcd, second)
        await client.put(b"k", b"2")
        await renewed(lambda: lease.remaining_s, lease.remaining_s)
        assert not lost.is_set()
        await lease.revoke()
    await etcd.stop()


async def test_a_pair_that_does_not_fit_is_told_once_and_the_old_one_goes_on(
    program: Path, tmp_path: Path, authority: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second, mounted = authority_in(tmp_path / "second"), tmp_path / "mounted"
    mount(authority, mounted)
    etcd = LocalEtcd(tmp_path / "etcd", program=program, tls=server_tls(authority))
    await etcd.start()
    async with EtcdClient(arguments(etcd.endpoint, mounted)) as client:
        await client.put(b"k", b"1")
        mount(second, mounted, "client.key")
        with caplog.at_level(logging.ERROR):
            for _ in range(2):
                await restart(etcd, authority)
                await client.put(b"k", b"2")
        told = [record.message for record in caplog.records if "certificate files" in record.message]
        assert len(told) == 1 and "client.key" in told[0]
        mount(second, mounted)
        await restart(etcd, second)
        await client.put(b"k", b"3")
    await etcd.stop()


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [("client.key", "client.pem and .*client.key cannot be used"), ("client.pem", "holds nothing in PEM form")],
)
def test_files_that_do_not_fit_are_refused_at_the_start(
    tmp_path: Path, authority: Path, broken: str, complaint: str
) -> None:
    mounted = tmp_path / "mounted"
    mount(authority, mounted)
    if broken == "client.key":
        shutil.copy(authority / "server.key", mounted / broken)
    else:
        (mounted / broken).write_text("")
    with pytest.raises(Malformed, match=complaint):
        arguments("127.0.0.1:1", mounted)


def test_a_certificate_without_an_authority_is_refused(tmp_path: Path) -> None:
    """It would else mean plain text."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--etcd")
    add_etcd_arguments(parser)
    given = parser.parse_args(["--etcd", "127.0.0.1:1", "--etcd-certificate", str(tmp_path / "x.pem")])
    with pytest.raises(Malformed, match="say with --etcd-ca which authority to trust"):
        etcd_options(given, "")
