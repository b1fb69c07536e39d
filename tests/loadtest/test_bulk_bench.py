"""Bench `bulk` on a tiny population: a real cluster, a real Spark job, churn on what it loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

QUEUES = 2_000
RUN_S_MAX = 170
STAGES = ("judged_s", "sorted_s", "imported_s", "verified_s")


@pytest.mark.long
def test_bulk_loads_verifies_and_churns(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shoal_loadtest", "bulk", "--queues", str(QUEUES), "--seconds", "0.5", "--json"]
    ended = subprocess.run(
        [*command, "--data", str(tmp_path)], capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )

    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["details"]["loaded"].endswith(f"{9 * QUEUES:,} memberships")
    assert 0 < sum(found[name] for name in STAGES) <= found["load_s"]
    assert found["churn_ops_per_s"] > 0
    assert 20 < found["tables_bytes_per_membership"] < 400
    assert {"peak of broker", "peak of checkpointer", "peak of Spark's JVM"} <= found["details"].keys()
    assert [path.name for path in tmp_path.iterdir()] == [f"memberships-{QUEUES}.parquet"]
