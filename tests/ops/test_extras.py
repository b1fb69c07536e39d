"""A library that is not installed is named together with the extra that brings it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from shoal_contract.errors import BadCall
from shoal_ops import exits, extras

ROOT = Path(__file__).parents[2]
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))  # None: Python takes them as not installed
sys.argv = ["shoal", *{arguments!r}]
from shoal_ops.entry import main
main()
"""


def without(*missing: str, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Runs `shoal` where some libraries are not installed."""
    code = WITHOUT.format(missing=missing, arguments=arguments)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("missing", "arguments"),
    [("typer", ("status",)), ("uvloop", ("status", "--at", "127.0.0.1:1")), ("rich", ("up", "--slices", "1"))],
)
def test_the_bare_client_says_what_the_command_needs(missing: str, arguments: tuple[str, ...]) -> None:
    done = without(missing, arguments=arguments)
    assert (done.returncode, done.stdout) == (exits.BAD_CALL, "")
    assert done.stderr == f"shoal: this command needs {missing}: pip install 'shoal[cli]'\n"


def test_bench_says_what_it_needs() -> None:
    done = without("psutil", arguments=("bench", "churn"))
    assert done.returncode == exits.BAD_CALL
    assert done.stderr == "shoal: shoal bench needs psutil: pip install 'shoal[loadtest]'\n"


def test_a_module_of_ours_that_is_missing_is_a_bug_and_stays_a_traceback() -> None:
    done = without("shoal_coordination", arguments=("up",))
    assert done.returncode == 1 and "Traceback" in done.stderr


def test_every_library_of_every_extra_is_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    expected = {"server": "cli", "cli": "cli", "ops": "ops", "loadtest": "loadtest", "spark": "spark"}
    checked = 0
    for extra, named in expected.items():
        for line in project["optional-dependencies"][extra]:
            library = line.partition(">")[0].partition("=")[0]
            if not library.startswith("shoal"):
                checked += 1
                assert extras.extra_with(library.replace("-", "_")) == named, library
    assert checked > 15
    assert extras.extra_with("nothing_like_it") is None


def test_what_is_installed_is_not_asked_for() -> None:
    extras.require("shoal status", "typer", "rich")
    with pytest.raises(BadCall, match="needs the module nothing_like_it"):
        extras.require("shoal status", "nothing_like_it")
