"""Targets of the Makefile say what they need where it is missing."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE = shutil.which("make")


@pytest.mark.skipif(MAKE is None, reason="there is no make")
@pytest.mark.parametrize(
    ("target", "said"),
    [
        (".tools/buf-none/node_modules/.bin/buf", "there is no npm on PATH: install Node.js"),
        ("chromium", "Chromium is installed by apt-get, and there is none here"),
    ],
)
def test_a_program_that_is_missing_is_named_with_the_way_to_get_it(target: str, said: str, tmp_path: Path) -> None:
    assert MAKE is not None
    command = [MAKE, "--silent", "-C", str(ROOT), "BUF_VERSION=none", target]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False)
    assert done.returncode and said in done.stdout + done.stderr
    assert not (ROOT / ".tools" / "buf-none").exists()
