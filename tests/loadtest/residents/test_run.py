"""Short real runs through the entry point: a cluster, Locust, generators, the checker, the reports, the exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from shoal_loadtest.residents import wire
from shoal_loadtest.residents.summary import Summary, read_summary

# A small population that lives fast; latencies are this machine's business, not this test's.
SMALL = ["--scale", "0.02", "--pace", "40", "--duration", "8", "--slack", "1000", "--lost-after", "6", "--slices", "2"]


def run(report: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shoal_loadtest.residents", *SMALL, "--report", str(report), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


def logs(report: Path) -> str:
    return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1500:]}" for path in report.glob("*.log"))


@pytest.mark.slow
def test_a_short_run_is_checked_reported_and_passes(tmp_path: Path) -> None:
    ended = run(tmp_path, "--generators", "2", "--shape", "region-restart")

    assert ended.returncode == 0, ended.stdout + ended.stderr + logs(tmp_path)
    summary = read_summary(tmp_path / "summary.json")
    assert summary.passed
    assert summary.population.residents == 1360
    assert summary.population.consumed_share == 1.0
    assert summary.checked > 100
    assert summary.audited > 50
    assert {"bind", "unbind", "publish", "delivery", "login", "logout", "drop"} <= set(summary.latencies)
    assert summary.usage["slices MB"].peak > 10
    assert_reports(tmp_path, summary)
    assert "passed" in ended.stdout


def assert_reports(report: Path, summary: Summary) -> None:
    locust = (report / "locust.html").read_text()
    page = (report / "report.html").read_text()
    assert all(f'"{name}"' in locust for name in ("bind", "unbind", "publish", "delivery"))
    assert page.count("<figure>") == 10
    assert f"{summary.population.memberships:,} memberships" in page
    assert "missed" not in page.partition("<body")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"), [pytest.param("drop", "lost", marks=pytest.mark.long), ("double", "doubled")]
)
def test_a_fault_fails_the_run_and_is_named(tmp_path: Path, fault: str, kind: str) -> None:
    ended = run(tmp_path, "--fault", fault)

    assert ended.returncode == 1, ended.stdout + ended.stderr + logs(tmp_path)
    summary = read_summary(tmp_path / "summary.json")
    assert not summary.passed
    assert next(text for text, kept in summary.levels if not kept).startswith(f"messages {kind}: ")
    assert summary.cases[0].startswith(f"{kind}: queue ")
    assert f"fault: {kind}: queue " in ended.stdout
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    "arguments",
    [("--scale", "1000"), ("--shape", "round"), ("--duration", "0"), ("--generators", "0"), ("--consumed", "0")],
)
def test_bad_arguments_exit_with_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert run(tmp_path, *arguments).returncode == 2


@pytest.mark.parametrize(
    "said", [wire.Come(3), wire.Go(99), wire.Measure(), wire.Finish()], ids=lambda said: type(said).__name__
)
def test_commands_are_read_as_they_were_said(said: wire.Command) -> None:
    assert wire.command_of(wire.line_of(said)) == said


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        wire.message_of(wire.line_of(wire.Measure()))
