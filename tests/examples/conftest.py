"""One cluster for the examples, and a way to load them: they are programs, not packages."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest_asyncio

from shoal_local.cluster import LocalCluster
from tests.folders import NewFolder

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(module_folder: NewFolder) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(module_folder("examples"), slices=2) as cluster:
        yield cluster


def load(path: Path) -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
