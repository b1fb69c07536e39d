"""What can be known without Spark is told without it, in one line: none of these starts a Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .archives import SliceArchive

WAIT_S = 60


def job(*arguments: object, cwd: Path, **environment: str) -> tuple[int, str]:
    """Exit code and stderr of a job where Java cannot be found: to look for it is the last step before Spark."""
    command = [sys.executable, "-m", "shoal_pipeline", *map(str, arguments)]
    env = {**os.environ, "JAVA_HOME": "", "PATH": str(cwd), **environment}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_an_input_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert job("load", "nofile.parquet", cwd=tmp_path) == (3, "shoal pipeline: nofile.parquet is not there\n")


def test_a_cluster_that_is_not_there_with_the_port_that_was_left_out(tmp_path: Path) -> None:
    (tmp_path / "members.parquet").touch()
    for arguments in (("load", "members.parquet"), ("export", "out")):
        code, error = job(*arguments, cwd=tmp_path, SHOAL_REDIRECTOR="127.0.0.1:1")
        assert code == 4 and error.startswith("shoal pipeline: no cluster answers at 127.0.0.1:1: "), error
    assert not (tmp_path / "out").exists() and not (tmp_path / ".shoal-runs").exists()
    code, error = job("export", "out", "--at", "localhost:x", cwd=tmp_path)
    assert code == 2 and "localhost:x" in error and "its port is" in error


@pytest.mark.parametrize("arguments", [("export", "other", "--overwrite"), ("load", "m.csv", "--rejects", "other")])
def test_a_folder_that_is_not_ours(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("queue,key\na,b\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("x")
    code, error = job(*arguments, cwd=tmp_path, SHOAL_REDIRECTOR="127.0.0.1:1")
    assert code == 3 and "it has precious.txt" in error and error.count("\n") == 1
    assert (tmp_path / "other" / "precious.txt").exists()
    code, error = job("load", "m.csv", "--runs", "other", cwd=tmp_path)
    assert code == 3 and "it has precious.txt" in error


def test_an_archive_that_is_none_is_named(tmp_path: Path) -> None:
    code, error = job("census", "s3a://bucket/archive", cwd=tmp_path)
    assert code == 3 and "archive s3a://bucket/archive is a URL (s3a:)" in error
    assert job("census", "none", cwd=tmp_path) == (3, "shoal pipeline: archive none is not a folder\n")
    (tmp_path / "archive").mkdir()
    (tmp_path / "index.html").write_text("<html>mine</html>")
    code, error = job("census", "archive", "--report", "index.html", cwd=tmp_path)
    assert code == 3 and "index.html is there and is no report of a census" in error
    code, error = job("census", "archive", "--report", "none/census.html", cwd=tmp_path)
    assert code == 3 and "none is not a folder" in error
    code, error = job("census", "archive", "--interval", "soon", cwd=tmp_path)
    assert code == 3 and "interval is 'soon'" in error


def test_an_archive_of_nothing_yet_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "archive" / "s1" / "n1").mkdir(parents=True)
    code, error = job("census", "archive", cwd=tmp_path)
    assert code == 3 and "the archive has no records yet" in error
    code, error = job("census", "archive", "--allow-empty", cwd=tmp_path)
    assert code == 0 and "nothing to count: the archive has no records yet" in error
    (tmp_path / "archive" / "s1" / "n1" / "zz.journal").touch()
    code, error = job("census", "archive", "--allow-empty", cwd=tmp_path)
    assert code == 3 and "zz.journal has no segment's name" in error


@pytest.mark.parametrize("named", ["cluster", "cluster/s01"])
def test_a_folder_of_nodes_is_no_archive_though_it_has_segments(tmp_path: Path, named: str) -> None:
    archive = SliceArchive(tmp_path / "archive")
    archive.own(0, 16)
    archive.cut()
    (segment,) = (tmp_path / "archive").glob("*/*/*.journal")
    journal = tmp_path / "cluster" / "s01" / "journal"
    journal.mkdir(parents=True)
    (tmp_path / "cluster" / "s01" / "store").mkdir()
    segment.rename(journal / segment.name)
    code, error = job("census", named, "--allow-empty", cwd=tmp_path)
    assert code == 3 and f"{named} is no archive: cluster/s01 is a slice node's data folder" in error
    assert "--archive" in error and error.count("\n") == 1


def test_a_part_of_an_archive_is_told_from_an_archive_of_nothing_yet(tmp_path: Path) -> None:
    archive = SliceArchive(tmp_path / "archive")
    archive.own(0, 16)
    archive.cut()
    (segment,) = (tmp_path / "archive").glob("*/*/*.journal")
    for part in (segment.parent, segment.parent.parent):
        code, error = job("census", part, "--allow-empty", cwd=tmp_path)
        assert code == 3 and f"{part} is a part of an archive: name the folder above the slices' folders" in error


def test_a_missing_java_is_told_in_one_line(tmp_path: Path) -> None:
    archive = SliceArchive(tmp_path / "archive")
    archive.own(0, 16)
    archive.cut()
    code, error = job("census", "archive", cwd=tmp_path)
    assert code == 3 and error.startswith("shoal pipeline: Java is missing: install") and error.count("\n") == 1
    code, error = job("census", "archive", cwd=tmp_path, JAVA_HOME=str(tmp_path))
    assert code == 3 and "has no bin/java" in error
