"""`shoal up` as an operator meets it: arguments that cannot work, taken ports, slices that do not start, kills."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from shoal_local.archived import Lacks
from shoal_local.etcd import version_of
from shoal_local.folder import LocalFolder
from shoal_local.ports import holder_of
from shoal_local.record import ETCD, http_of, read_record
from shoal_ops import exits
from shoal_ops.commands.cluster import told_archive, told_data

from .command_line import WAIT_S, check_bad_argument, ended_at_last, shoal

ANY = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("up", "--listen", "7910"), "'--listen': 7910 needs HOST:PORT, as in 127.0.0.1:7910"),
        (("up", "--listen", ":7910"), ":7910 needs HOST:PORT"),
        (("up", "--http", "localhost"), "'--http': localhost needs HOST:PORT"),
        (("up", "--http", "127.0.0.1:x"), "127.0.0.1:x has no port from 0 to 65535"),
        (("up", "--admin", "127.0.0.1:70000"), "127.0.0.1:70000 has no port from 0 to 65535"),
        (("up", "--admin", "7402"), "'--admin': 7402 needs HOST:PORT"),
        (("up", "--listen", "0.0.0.0:7910"), "0.0.0.0:7910 is not loopback: the slices of a local cluster are at"),
        (("up", "--http", "[::]:7910"), "[::]:7910 is not loopback"),
        (("up", "--listen", "broker.example:7910"), "broker.example:7910 is not loopback"),
        (("up", "--etcd", "/nowhere/etcd"), "/nowhere/etcd"),
        (("admin", "--listen", "7402"), "'--listen': 7402 needs HOST:PORT"),
    ],
)
async def test_an_address_that_cannot_work_is_a_bad_argument(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    await check_bad_argument(tmp_path, arguments, complaint)


@pytest.mark.parametrize("option", ["--listen", "--http", "--admin"])
async def test_a_taken_port_is_told_before_anything_is_made(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        data = ("--data", str(tmp_path / "data"))
        code, out, error = await shoal("up", *data, *ANY, option, f"127.0.0.1:{port}")
    assert code == exits.BAD_CALL
    assert error == f"shoal: port {port} is taken by process {os.getpid()}; choose another {option}\n"
    assert "ready" not in out
    assert not (tmp_path / "data").exists()


async def test_a_gateway_that_needs_a_token_is_refused_before_anything_starts(tmp_path: Path) -> None:
    code, out, error = await shoal("up", "--data", str(tmp_path / "data"), *ANY, "--admin", "0.0.0.0:0")
    assert code == exits.NO_RIGHTS
    assert "0.0.0.0:0 is not loopback, so a token is needed: SHOAL_ADMIN_TOKEN in the environment, or `shoal" in error
    assert "ready" not in out
    assert not (tmp_path / "data").exists()


async def test_a_start_that_fails_is_one_line_without_the_advice_to_start_it(tmp_path: Path) -> None:
    code, _, error = await shoal("up", "--data", str(tmp_path / "data"), *ANY, "--etcd", "/bin/false")
    assert code == exits.BAD_CALL
    assert error.startswith("shoal: /bin/false --version failed") and error.count("\n") == 1
    assert not (tmp_path / "data").exists()


async def test_a_program_that_is_no_etcd_is_told_in_words(tmp_path: Path) -> None:
    code, _, error = await shoal("up", "--data", str(tmp_path / "data"), *ANY, "--etcd", "/bin/true")
    assert code == exits.BAD_CALL
    assert "/bin/true is no etcd: `/bin/true --version` says " in error and error.count("\n") == 1


def test_the_question_for_the_version_does_not_hear_ctrl_c(tmp_path: Path) -> None:
    program = tmp_path / "etcd"
    program.write_text("#!/bin/sh\necho etcd Version: 3.5.$(ps -o sid= -p $$ | tr -d ' ')\n")
    program.chmod(0o700)
    assert version_of(program)[2] != os.getsid(0)


@pytest.mark.parametrize("archive", ["s3://a", "s3a://bucket/x"])
async def test_an_archive_that_is_a_url_is_a_bad_argument_and_named_as_it_was_typed(
    tmp_path: Path, archive: str
) -> None:
    code, out, error = await shoal("up", "--data", str(tmp_path / "data"), *ANY, "--archive", archive)
    assert (code, out) == (2, "") and f"{archive} is a URL" in error
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("archive", ["data", "data/s01", "data/log/x", "other", "other/s02/n", "linked", "."])
async def test_an_archive_in_a_cluster_s_own_folders_is_refused_before_anything_starts(
    tmp_path: Path, archive: str
) -> None:
    """The next start with --fresh deleted it, with all that was said to be archived."""
    data, other = tmp_path / ("s01" if archive == "." else "data"), tmp_path / "other"
    LocalFolder(other).open(2, fresh=False)
    (tmp_path / "linked").symlink_to(data)
    where = str(tmp_path / archive)
    code, out, error = await shoal("up", "--data", str(data), *ANY, "--archive", where)
    assert code == exits.BAD_CALL
    assert f"--archive {where}" in error and "choose another folder" in error
    assert "archived" not in out and not data.exists()


async def test_an_archive_in_a_node_s_folder_is_refused_before_anything_starts(tmp_path: Path) -> None:
    for folder in ("store", "journal"):
        (tmp_path / "nodes" / "a" / folder).mkdir(parents=True)
    for where in ("nodes", "nodes/a", "nodes/a/journal"):
        code, _, error = await shoal("up", "--data", str(tmp_path / "data"), *ANY, "--archive", str(tmp_path / where))
        assert code == exits.BAD_CALL and f"{tmp_path}/nodes/a is a slice node's data folder" in error
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("archive", ["precious.txt", "precious.txt/below"])
async def test_an_archive_that_is_no_folder_is_refused_before_anything_starts(tmp_path: Path, archive: str) -> None:
    (tmp_path / "precious.txt").write_text("precious")
    where = str(tmp_path / archive)
    code, out, error = await shoal("up", "--data", str(tmp_path / "data"), *ANY, "--archive", where)
    assert code == exits.BAD_CALL
    assert f"--archive {where}" in error and "is not a folder" in error
    assert "archived" not in out
    assert not (tmp_path / "data").exists()


async def test_an_archive_that_failed_is_not_called_complete(tmp_path: Path) -> None:
    data, archive = tmp_path / "data", tmp_path / "archive"
    async with up(data, "--slices", "1", "--archive", str(archive)) as running:
        at = (await running.until("clients connect to")).split()[-1]
        assert (await shoal("declare", "anna", at=at))[0] == 0
        shutil.rmtree(archive, ignore_errors=True)
        archive.write_text("no folder any more")
        assert await running.end() == 0
    assert any(
        "NOT all that happened is archived" in line and "of s01 are only" in line and "with another --archive" in line
        for line in running.lines
    )
    archive.unlink()
    async with up(data, "--archive", str(archive)) as running:
        await running.until("clients connect to")
        assert await running.end() == 0
    assert any(f"all that happened is archived in {archive}: shoal pipeline" in line for line in running.lines)


def archived_by(archive: Path) -> list[Path]:
    return sorted(archive.rglob("*.journal"))


async def stopped(data: Path, *more: str) -> str:
    """What an idle life of the cluster says of its archive at its end."""
    async with up(data, *more) as running:
        await running.until("clients connect to")
        assert await running.end() == 0
    (told,) = [line for line in running.lines if line.lstrip().startswith("shoal ") and "archived in" in line]
    return told


async def test_an_idle_life_calls_only_that_archived_which_is_in_the_archive(tmp_path: Path) -> None:
    """It said that all was, and nothing was there; an operator then deletes the folder of the data."""
    data, archive = tmp_path / "data", tmp_path / "archive"
    other = str(tmp_path / "other")
    async with up(data, "--slices", "2", "--archive", str(archive)) as running:
        at = (await running.until("clients connect to")).split()[-1]
        assert (await shoal("publish", await key_of("s02", at), "hello", at=at))[0] == 0
        (archive / "s02").mkdir(parents=True)
        (archive / "s02" / "n02").write_text("no folder")
        assert await running.end() == 0
    told = next(line for line in running.lines if "archived in" in line and "NOT all" in line)
    assert "the last changes of s02 are only in the journal" in told
    assert {path.parts[-3] for path in archived_by(archive)} == {"s01"}
    assert "NOT all that happened" in await stopped(data, "--archive", str(archive)), "s02 still cannot"
    (archive / "s02" / "n02").unlink()
    all_told = f"all that happened is archived in {archive}: shoal pipeline census {archive}"
    assert all_told in await stopped(data, "--archive", str(archive))
    assert {path.parts[-3] for path in archived_by(archive)} == {"s01", "s02"}
    told = await stopped(data, "--archive", other)
    assert "NOT all that happened" in told and "lacks what happened of s01, s02 before" in told
    assert not archived_by(tmp_path / "other")
    assert all_told in await stopped(data, "--archive", str(archive))


def test_a_stop_says_of_each_slice_what_is_archived(tmp_path: Path) -> None:
    whole = f"all that happened is archived in {tmp_path}: shoal pipeline census {tmp_path}"
    assert told_archive(tmp_path, {"s01": 1, "s02": 1}) == whole
    told = told_archive(tmp_path, {"s01": 1, "s02": 40})
    assert "of s02 from LSN 40 on; older records are not there" in told and "all that happened" not in told
    told = told_archive(tmp_path, {"s01": Lacks.IN_JOURNAL, "s02": 7, "s03": Lacks.ELSEWHERE})
    assert told.startswith("NOT all") and "changes of s01 are only" in told and "what happened of s03 before" in told
    assert told_archive(tmp_path, {"s01": Lacks.ELSEWHERE}).startswith(
        f"NOT all that happened is archived in {tmp_path}: it"
    )


async def test_missing_data_names_the_command_that_works_here(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(data, "--slices", "2") as running:
        await running.until("clients connect to")
        assert await running.end() == 0
    shutil.rmtree(data / "s02")
    async with up(data) as running:
        missing = await running.until("s02 is MISSING")
        assert f"then `shoal up --data {data} --accept-empty s02`" in missing
        assert f"shoal check {data / 's02'}" not in missing, "there is nothing to check"
        assert await running.end() == 0
    async with up(data, "--accept-empty", "s02") as running:
        await running.until("ready, slices s01, s02; ")
        assert await running.end() == 0


def test_a_stop_says_which_data_was_removed_meanwhile(tmp_path: Path) -> None:
    for name in ("s01", "s02"):
        (tmp_path / name / "store").mkdir(parents=True)
    assert told_data(tmp_path, ["s01", "s02"]) == f"the data is kept in {tmp_path}"
    shutil.rmtree(tmp_path / "s02")
    assert told_data(tmp_path, ["s01", "s02"]) == f"the data of s02 was removed from {tmp_path}"
    assert told_data(tmp_path, ["s01"]) == f"the data is kept in {tmp_path}", "s02 had none"


async def test_a_lost_etcd_names_the_slices_and_the_command_that_works_here(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(data, "--slices", "1") as running:
        await running.until("clients connect to")
        assert await running.end() == 0
    shutil.rmtree(data / "etcd")
    code, out, error = await shoal("up", "--data", str(data), *ANY)
    assert code == exits.BAD_CALL and "ready" not in out
    assert "s01 (its data is there)" in error and f"`shoal up --data {data} --rebuild-etcd`" in error
    async with up(data, "--rebuild-etcd") as running:
        await running.until("ready, slice s01; ")
        assert await running.end() == 0


class Up:
    """A running `shoal up`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def until(self, part: str) -> str:
        """Waits for a line with `part`, and returns it."""
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_S):
            while True:
                if found := [line for line in self.lines if part in line]:
                    return found[0]
                read = (await self.process.stdout.readline()).decode()
                assert read, f"shoal up ended: {self.lines}"
                self.lines.append(read.rstrip())

    async def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(WAIT_S):
            rest, _ = await self.process.communicate()
        self.lines += rest.decode().splitlines()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def up(data: Path, *more: str) -> AsyncIterator[Up]:
    command = [sys.executable, "-m", "shoal_ops", "up", "--data", str(data), *ANY, *more]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with ended_at_last(process):
        yield Up(process)


async def test_a_damaged_slice_is_named_and_the_others_serve(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(data, "--slices", "2") as running:
        await running.until("clients connect to")
        assert await running.end() == 0
    (data / "s02" / "journal").rename(tmp_path / "aside")
    (data / "s02" / "journal").touch()
    async with up(data) as running:
        at = (await running.until("clients connect to")).split()[-1]
        missing = await running.until("s02 is MISSING")
        assert f"shoal check {data / 's02'}" in missing and "s02.log" in missing
        code, _, _ = await shoal("publish", await key_of("s01", at), "hello", at=at)
        assert code == 0
        assert await running.end() == 0
    assert any("s02 is MISSING" in line for line in (data / "log" / "up.log").read_text().splitlines())


async def key_of(name: str, at: str) -> str:
    """A key that a slice owns."""
    for number in range(100):
        _, out, _ = await shoal("locate", f"key-{number}", at=at)
        if name in out:
            return f"key-{number}"
    raise AssertionError(f"no key of {name}")


async def test_where_nothing_works_it_ends_and_says_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with up(data, "--slices", "1") as running:
        await running.until("clients connect to")
        assert await running.end() == 0
    (data / "s01" / "journal").rename(tmp_path / "aside")
    (data / "s01" / "journal").touch()
    code, out, error = await shoal("up", "--data", str(data), *ANY)
    assert code not in (0, 2)
    assert "s01 ended with code 1 before it was ready" in error and "s01.log" in error
    assert "shoal up starts one here" not in error
    assert "clients connect to" not in out


async def test_what_is_killed_under_it_is_named_and_comes_back(tmp_path: Path) -> None:
    """etcd and the gateway too, whose ends were never noticed."""
    data = tmp_path / "data"
    async with up(data, "--slices", "1", "--admin", "127.0.0.1:0") as running:
        ready = await running.until("clients connect to")
        assert "ready, slice s01; " in ready
        at = ready.split()[-1]
        page = await running.until("page and HTTP API at http://")
        record = read_record(data)
        metrics = f"metrics http://{record.address(http_of('s01'))}/metrics"
        assert any(f"ready at {record.address('s01')}, {metrics}" in line for line in running.lines)
        await running.until("Ctrl-C stops it")
        for name, port in (("etcd", record.ports[ETCD]), ("admin", int(page.rpartition(":")[2]))):
            holder = holder_of(port)
            assert holder is not None
            os.kill(holder, signal.SIGKILL)
            await running.until(f"{name} ended by signal 9; starting it again in 0.25 s")
            await running.until(f"{name} is ready again")
        code, _, error = await shoal("publish", "room", "hello", at=at)
        assert (code, error) == (0, "")
        assert not any("s01 ended" in line for line in running.lines), "its lease outlived etcd's restart"
        assert await running.end() == 0
