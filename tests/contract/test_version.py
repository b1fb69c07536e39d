"""The version: one home, the package's metadata; processes log it and tell it as a metric."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest

from shoal_contract.version import version
from shoal_runtime.build_info import BuildInfo

ROOT = Path(__file__).parents[2]
ENDS_AT_ONCE = """
import sys
from shoal_runtime import (server_process)

async def serve(stop):
    server_process.say_ready()

sys.exit(server_process.run(serve, "test"))
"""


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert version() == project["version"]


def test_every_server_logs_it_as_it_starts() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS_AT_ONCE], capture_output=True, text=True, timeout=60, check=True)
    assert f"shoal {version()} starts" in done.stderr


def test_it_is_a_metric_of_every_component() -> None:
    registry = CollectorRegistry()
    BuildInfo("redirector", registry)
    text = generate_latest(registry).decode()
    assert f'shoal_build_info{{component="redirector",version="{version()}"}} 1.0' in text
