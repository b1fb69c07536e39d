"""Every `core/` imports the standard library's parts that compute, the contract and itself: nothing else.

`.importlinter` names what no core may reach, also through others. Here is what a core may import at all: a module that
neither list names is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.repository import COMPONENTS, ROOT, parsed

CORES_CONTRACT = "importlinter:contract:cores"
COMPUTES = {"__future__", "abc", "array", "bisect", "collections", "collections.abc", "dataclasses", "enum"}
COMPUTES |= {"functools", "hashlib", "heapq", "itertools", "math", "operator", "statistics", "struct", "typing"}
COMPUTES |= {"urllib.parse", "zlib"}
"""Modules of the standard library without an event loop, transport, clock, files, processes or randomness."""
ALSO = {
    "shoal.core": {"shoal.messages", "shoal.watch_events", "shoal.limits"},
    "shoal_loadtest.residents.core": {"shoal_loadtest.residents.limits"},
    "shoal_redirector.core": set[str](),
    "shoal_slice_node.core": {"logging"},
}
"""What one core imports besides: values and bounds beside it, and the log, which the slice node's warns through."""
PARENTS = {core.rpartition(".")[0] for core in ALSO}
"""Packages that hold a core: of them a core imports modules by name."""
REACHES_OUT = {"__import__", "breakpoint", "eval", "exec", "input", "open", "print"}


def imported(text: str) -> Iterator[str]:
    """The modules that a module imports, wherever it does; and built-in functions that reach beyond it."""
    for part in ast.walk(parsed(text)):
        if isinstance(part, ast.Import):
            yield from (name.name for name in part.names)
        elif isinstance(part, ast.ImportFrom):
            whole = "." * part.level + (part.module or "")
            yield from (f"{whole}.{name.name}" for name in part.names) if whole in ("urllib", *PARENTS) else (whole,)
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in REACHES_OUT:
            yield f"{part.func.id}()"


def refused(core: str, text: str) -> list[str]:
    """What a module of a core may not import."""
    own = (core, "shoal_contract")
    allowed = COMPUTES | ALSO[core]
    return [
        name
        for name in imported(text)
        if name not in allowed and not any(name == root or name.startswith(root + ".") for root in own)
    ]


def folders() -> dict[str, Path]:
    found = [folder for name in COMPONENTS for folder in (ROOT / name).glob("**/core") if folder.is_dir()]
    return {
        ".".join(folder.relative_to(ROOT).parts[1:]): folder
        for folder in found
        if not {"build", ".venv"} & set(folder.parts[len(ROOT.parts) :])
    }


def test_the_contract_of_forbidden_modules_names_every_core() -> None:
    """.importlinter says which modules no core may import; `make check` checks it."""
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    cores = set(folders())
    assert len(cores) >= 4 and cores == set(ALSO)
    assert set(contracts[CORES_CONTRACT]["source_modules"].split()) == cores
    assert {"asyncio", "grpc", "os", "random", "time"} <= set(contracts[CORES_CONTRACT]["forbidden_modules"].split())


@pytest.mark.parametrize("core", ALSO)
def test_a_core_imports_what_computes_the_contract_and_itself(core: str) -> None:
    modules = sorted(folders()[core].rglob("*.py"))
    found = {path.name: names for path in modules if (names := refused(core, path.read_text(encoding="utf-8")))}
    assert modules and not found


@pytest.mark.parametrize(
    "line",
    [
        "import prometheus_client",
        "import fcntl, struct",
        "from mmap import mmap",
        "from urllib import request",
        "import urllib.request",
        "from http import client",
        "import shoal_slice_node.adapters.answers",
        "from shoal_slice_node import adapters",
        "from . import ranges",
        "import shoal_slice_node.core_choice",
        "def f():\n    import ctypes",
        "if TYPE_CHECKING:\n    import signal",
        "def f(path):\n    return open(path)",
    ],
)
def test_any_other_import_is_refused(line: str) -> None:
    assert len(refused("shoal_slice_node.core", line)) == 1


@pytest.mark.parametrize("line", ["from shoal_slice_node import core", "from urllib import parse", "import logging"])
def test_these_are_not(line: str) -> None:
    assert refused("shoal_slice_node.core", line) == []
