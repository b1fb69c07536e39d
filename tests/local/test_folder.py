"""The data folder of a local cluster: wipes only its own, leaves what is another's alone, shows nothing to others."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from shoal_contract.errors import Conflict, Corrupt, OutOfRange
from shoal_local import etcd
from shoal_local.cluster import LocalCluster
from shoal_local.etcd_log import EtcdLog
from shoal_local.folder import LocalFolder
from shoal_local.log import LogFile
from shoal_local.record import RECORD, LocalRecord, read_record


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


def test_an_archive_beside_what_is_a_cluster_s_own_is_taken(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "data")
    for _ in range(2):
        for archive in (tmp_path, tmp_path / "data" / "archive", tmp_path / "new" / "s01"):
            folder.check_archive(archive)
        folder.open(2, fresh=False)
        folder.close()
    (tmp_path / "data" / "archive" / "s01" / "n01").mkdir(parents=True)
    folder.open(None, fresh=True)
    folder.close()
    assert (tmp_path / "data" / "archive" / "s01" / "n01").is_dir()


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


def test_the_record_is_read_as_it_was_saved_and_damage_is_named(tmp_path: Path) -> None:
    record = LocalRecord(["s01"], id="a" * 32)
    record.choose_ports()
    record.save(tmp_path)
    assert read_record(tmp_path) == record
    ports = dict(record.ports)
    record.choose_ports()
    assert record.ports == ports, "remembered"
    record.choose_ports(taken=[ports["s01"]])
    assert record.ports == ports | {"s01": record.ports["s01"]}
    assert record.ports["s01"] != ports["s01"]
    (tmp_path / RECORD).write_text("{}")
    with pytest.raises(Corrupt, match=RECORD):
        read_record(tmp_path)


def test_a_folder_that_cannot_be_made_is_named_and_a_new_one_that_fails_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Conflict, match=r"^cannot make the folder /proc/shoal: No such file or directory, or choose"):
        LocalFolder(Path("/proc/shoal")).open(1, fresh=False)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(Conflict, match=f"^cannot write {tmp_path / 'new' / 'owner'}: no space left on that disk; make"):
        LocalFolder(tmp_path / "new").open(1, fresh=False)
    assert not (tmp_path / "new").exists()


async def test_folders_and_files_are_their_users_own(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    before = os.umask(0o022)
    try:
        async with LocalCluster(folder, slices=1):
            pass
    finally:
        os.umask(before)
    shown = [path for path in (folder, *folder.rglob("*")) if path.stat().st_mode & 0o077]
    assert not shown, "others may look at them"


@pytest.mark.parametrize("name", ["owner", f"{RECORD}.new"])
def test_links_that_another_laid_are_not_followed(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "data"
    made = LocalFolder(folder)
    made.open(1, fresh=False)
    made.close()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim)
    with pytest.raises(Conflict, match=f"{name} is a symbolic link"):
        LocalFolder(folder).open(1, fresh=False).save(folder)
    assert victim.read_text() == "precious"


def test_a_log_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "up.log").symlink_to(victim)
    with pytest.raises(Conflict, match=r"up\.log is a symbolic link"):
        LogFile(tmp_path / "up.log").add("line")
    assert victim.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_of_another_user_is_refused(tmp_path: Path, fresh: bool) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(Conflict, match="belongs to user 12345, and this is user 0"):
        LocalFolder(folder).open(1, fresh)
    assert not list(folder.iterdir())


def test_last_words_are_the_reason_of_this_run(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "one.log")
    assert log.last_words() == ""
    with log.open() as file:
        file.write(b"2026 slice s01 ERROR x: slice s01 stops: it was full\nand a last line\n")
    assert log.last_words() == "it was full"
    with log.open() as file:
        assert log.last_words() == ""
        file.write(b"one\ntwo\n")
    assert log.last_words() == "two"


def test_last_words_of_etcd_are_what_it_says_and_no_trace(tmp_path: Path) -> None:
    log = EtcdLog(tmp_path / "etcd.log")
    trace = "\tgithub.com/etcd/server/main.go:32 +0x45\n"
    for said, told in (
        ('{"level":"fatal","msg":"discovery failed","error":"no such host","stacktrace":"a.go"}\n', "no such host"),
        ("panic: it was not open\n\ngoroutine 1 [running]:\n" + trace, "it was not open"),
        ('{"level":"panic","msg":"open","error":"no space left on device"}\n' + trace, "make room there"),
        ('{"level":"info","msg":"started"}\n[1]\n', "[1]"),
    ):
        with log.open() as file:
            file.write(said.encode())
        assert log.last_words().endswith(told)


def test_settings_of_another_etcd_are_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_NAME", "other")
    monkeypatch.setenv("ETCD_UNSUPPORTED_ARCH", "arm64")
    assert {name for name in etcd._environment() if name.startswith("ETCD_")} == {"ETCD_UNSUPPORTED_ARCH"}
