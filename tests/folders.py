"""Folders that fixtures make for more than one test."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

NewFolder: TypeAlias = Callable[[str], Path]
"""Makes a folder whose name begins as given."""


def new_folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NewFolder]:
    """What fixtures of each scope are made of: its folders go when the scope ends, unless a test failed meanwhile.
    pytest removes only those of single tests, and a run makes 6 GB of others, more than some machines have."""
    failed_before, made = request.session.testsfailed, list[Path]()

    def new(name: str) -> Path:
        made.append(tmp_path_factory.mktemp(name))
        return made[-1]

    yield new
    if request.session.testsfailed == failed_before:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)
