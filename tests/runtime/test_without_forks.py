"""gRPC is told in one place that nothing forks, and every program imports that first."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("contract", "runtime", "client", "redirector", "slice_node", "ops", "loadtest", "pipeline", "helm")
HOME = ROOT / "runtime" / "shoal_runtime" / "without_forks.py"
SOURCES = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
PROGRAMS = [path for path in SOURCES if path.name == "__main__.py" and path.parent.name != "shoal_ops"]


def test_the_variable_stands_in_one_place() -> None:
    assert [path for path in SOURCES if "GRPC_ENABLE_FORK_SUPPORT" in path.read_text(encoding="utf-8")] == [HOME]


@pytest.mark.parametrize(
    "program", [*PROGRAMS, ROOT / "ops" / "shoal_ops" / "cli.py"], ids=lambda path: path.parent.name
)
def test_every_program_imports_it_before_anything_of_ours(program: Path) -> None:
    lines = program.read_text(encoding="utf-8").splitlines()
    imports = [line.strip() for line in lines if line.strip().startswith(("import shoal", "from shoal"))]
    assert imports[0].startswith("import shoal_runtime.without_forks")
