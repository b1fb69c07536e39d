"""`shoal pipeline` before Spark starts: what is missing is named, with what to install."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal_contract.errors import BadCall
from shoal_ops import extras
from shoal_ops.commands import pipeline

WAIT_S = 120


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shoal_ops", "pipeline", *arguments]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )


def test_missing_java_is_told_in_one_line(tmp_path: Path) -> None:
    done = run("census", str(tmp_path), PATH=str(tmp_path), JAVA_HOME="")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("shoal pipeline: Java is missing: install") and done.stderr.count("\n") == 1


def test_missing_pyspark_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(BadCall, match=r"shoal pipeline needs pyspark: pip install 'shoal\[spark\]'"):
        pipeline.run_job(["census", "archive"])


def test_help_lists_the_jobs_without_starting_spark() -> None:
    done = run("--help")
    assert done.returncode == 0 and "census" in done.stdout
    done = run("census", "--help")
    assert done.returncode == 0 and "--skip-damage" in done.stdout
    assert run("cencus").returncode == 2
