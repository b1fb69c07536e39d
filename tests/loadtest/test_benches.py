"""Each bench, tiny, as a user runs it: real processes, every field there, plausible, and nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoal_loadtest.churn import bench_churn
from shoal_loadtest.failure import BenchFailed
from shoal_loadtest.limits import POPULATION_FORM
from shoal_loadtest.population import Population
from shoal_loadtest.prepared import populated
from shoal_loadtest.setting import Setting

QUEUES = 2_000
# Field -> what no machine of ours can be below or above.
FIELDS: dict[str, dict[str, tuple[float, float]]] = {
    "churn": {"ops_per_s": (1_000, 5e6), "p99_ms": (0.1, 20_000), "stall_ms_max": (0.1, 20_000)},
    "publish": {"one_key_per_s": (1_000, 5e7), "many_keys_per_s": (500, 5e6)},
    "fanout": {"batched_deliveries_per_s": (10_000, 1e9), "single_deliveries_per_s": (1_000, 1e8)},
    "restart": {"clean_ready_s": (0.05, 60), "killed_ready_s": (0.05, 60)},
    "idle": {
        "disk_bytes_per_queue": (9 * 16, 10_000),
        "disk_bytes_per_membership": (16, 1_000),
        "resident_mb": (20, 1_000),
    },
    "latency": {"bind_p99_ms": (0.1, 20_000), "publish_p99_ms": (0.1, 20_000), "delivery_p99_ms": (0.1, 20_000)},
    "storm": {
        "drops_acknowledged_s": (0.001, 60),
        "drops_per_s": (100, 1e7),
        "drop_cpu_us": (0, 10_000),
        "unbinds_per_s": (100, 1e7),
        "unbind_cpu_us": (0, 10_000),
        "reclaimed_s": (0, 60),
        "reclaim_cpu_us": (0, 10_000),
        "quiet_p99_ms": (0.1, 20_000),
        "drops_p99_ms": (0, 20_000),
        "after_drops_p99_ms": (0, 20_000),
        "drops_and_after_p99_ratio": (0, 10_000),
        "unbinds_p99_ms": (0, 20_000),
    },
    "neighbours": {
        f"{kind}_{figure}": bounds
        for kind in ("nobody", "limits", "unread", "unary", "reconnect", "storm")
        for figure, bounds in (("p99_ms", (0.1, 20_000.0)), ("mib", (10.0, 512.0)))
    },
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shoal_loadtest", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("bench", FIELDS)
def test_tiny_run_yields_every_field(bench: str, data: Path, tmp_path: Path) -> None:
    picture = tmp_path / "storm.png"
    more = ("--plot", str(picture)) if bench == "storm" else ()
    ended = run(bench, "--queues", str(QUEUES), "--seconds", "0.5", "--json", "--data", str(data), *more)

    assert ended.returncode == 0, ended.stderr
    if more:
        assert picture.read_bytes().startswith(b"\x89PNG") and "--plot" not in ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    assert found["bench"] == bench
    for field, (low, high) in FIELDS[bench].items():
        assert low <= found[field] <= high, (field, found)
    assert found["machine"]["syncs_per_s"] > 0
    assert found["machine"]["puts_per_s"] > 0
    assert [path.name for path in data.iterdir() if not path.name.startswith("population-")] == []


@pytest.mark.parametrize("name", ["no-folder/storm.png", "storm.doc"])
def test_a_picture_that_cannot_be_drawn_is_refused_before_the_run(name: str, tmp_path: Path) -> None:
    ended = run("storm", "--queues", str(QUEUES), "--plot", str(tmp_path / name), "--data", str(tmp_path))

    assert ended.returncode == 2
    assert "--plot" in ended.stderr and list(tmp_path.iterdir()) == []


def test_only_a_storm_is_drawn(tmp_path: Path) -> None:
    assert run("idle", "--plot", str(tmp_path / "idle.png"), "--data", str(tmp_path)).returncode == 2


def test_table_names_the_command_that_made_it(data: Path) -> None:
    ended = run("idle", "--queues", str(QUEUES), "--seconds", "0.1", "--data", str(data))

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith(f"idle: shoal bench idle --queues {QUEUES} --seconds 0.1\n")
    assert "machine: fdatasync of 4 KiB" in ended.stdout


@pytest.mark.parametrize(
    "arguments",
    [("unheard-of",), ("churn", "--queues", "5"), ("churn", "--seconds", "-1"), ("churn", "--seconds", "1e9"), ()],
)
def test_bad_arguments_exit_with_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).returncode == 2


def test_node_that_cannot_start_fails_the_bench(tmp_path: Path) -> None:
    store = tmp_path / f"population-{QUEUES}-{POPULATION_FORM}" / "node" / "store"
    store.mkdir(parents=True)
    (store / "data.mdb").write_bytes(b"not a store" * 1000)
    (tmp_path / f"population-{QUEUES}-{POPULATION_FORM}" / "complete").touch()

    ended = run("churn", "--queues", str(QUEUES), "--seconds", "0.5", "--data", str(tmp_path))

    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "churn failed: the node ended with 1" in ended.stderr


async def test_a_store_that_lacks_memberships_fails_the_bench(data: Path, tmp_path: Path) -> None:
    # The smaller population's folder under the larger one's name: every answer for a missing queue is a refusal.
    await populated(data, Population(QUEUES))
    (tmp_path / f"population-{2 * QUEUES}-{POPULATION_FORM}").symlink_to(
        data / f"population-{QUEUES}-{POPULATION_FORM}"
    )

    with pytest.raises((BenchFailed, BaseExceptionGroup)) as caught:
        await bench_churn(Setting(2 * QUEUES, quick=True, seconds=0.5, data=tmp_path))

    assert "refused" in "".join(str(error) for error in leaves(caught.value))


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]
