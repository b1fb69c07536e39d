"""Chooses which core this process runs, plain Python or the compiled one, before any module of the core is imported.

The environment variable SHOAL_CORE says which: `python`, `compiled`, or `auto` (without it), which takes the compiled
one where the wheel brought it. Children inherit the variable, so that a node and its processes always run the same.
A compiled core that does not fit its source is refused: whatever imports the core then gets the error. See
../COMPILED.md. Not here: what a stamp is (core_stamp.py), compiling (slice_node/compile_core.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from shoal_slice_node import core_stamp

VARIABLE: Final = "SHOAL_CORE"
PYTHON: Final = "python"
MADE_BY_COMPILER: Final = "compiled"
AUTO: Final = "auto"


class _CompiledCore(MetaPathFinder):
    """Finds the modules of the core in a folder of compiled ones, before Python looks for their sources."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == core_stamp.LIBRARY:
            return PathFinder.find_spec(fullname, [str(self._folder)])
        if not _in_core(fullname):
            return None
        place = self._folder.joinpath(*fullname.split("."))
        tag = core_stamp.python_tag()
        if (package := place / f"__init__{tag}").is_file():
            loader = ExtensionFileLoader(fullname, str(package))
            return spec_from_file_location(fullname, package, loader=loader, submodule_search_locations=[str(place)])
        module = place.with_name(place.name + tag)
        if not module.is_file():
            raise ModuleNotFoundError(f"the compiled core has no {fullname}", name=fullname)
        return spec_from_file_location(fullname, module, loader=ExtensionFileLoader(fullname, str(module)))


class _RefusedCore(MetaPathFinder):
    """Lets nothing of the core be imported, and says why."""

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if _in_core(fullname):
            # Imported here: a build, which has no libraries, imports this module too.
            from shoal_contract.errors import ShoalError

            raise ShoalError(self.problem, subject=VARIABLE)
        return None


def choose() -> None:
    """Sets up this process for the core that the environment names. The package calls it when it is imported."""
    finder = _finder(os.environ.get(VARIABLE, "") or AUTO)
    if finder is not None:
        sys.meta_path.insert(0, finder)


def refusal() -> str:
    """Returns why this process has no core, as a sentence for an operator; "" where it has one."""
    return next((finder.problem for finder in sys.meta_path if isinstance(finder, _RefusedCore)), "")


def running_core() -> str:
    """Returns which core this process runs: `compiled` or `python`. It looks at what was loaded."""
    module = sys.modules.get(core_stamp.COMPILED)
    loader = None if module is None or module.__spec__ is None else module.__spec__.loader
    return MADE_BY_COMPILER if isinstance(loader, ExtensionFileLoader) else PYTHON


def _finder(wanted: str) -> MetaPathFinder | None:
    if wanted not in (PYTHON, MADE_BY_COMPILER, AUTO):
        return _RefusedCore(f"{VARIABLE}={wanted}: it must be {PYTHON}, {MADE_BY_COMPILER} or {AUTO}")
    installed, checkout = core_stamp.installed_folder(), core_stamp.checkout_folder()
    if wanted == PYTHON or (wanted == AUTO and not installed.is_dir()):
        return None
    folder = installed if checkout is None or installed.is_dir() else checkout
    problem = core_stamp.why_unusable(folder)
    if not problem:
        return _CompiledCore(folder)
    remedy = "reinstall Shoal" if folder == installed else "run `make compiled`"
    return _RefusedCore(f"the compiled core in {folder} {problem}: {remedy}, or set {VARIABLE}={PYTHON}")


def _in_core(fullname: str) -> bool:
    return fullname == core_stamp.COMPILED or fullname.startswith(f"{core_stamp.COMPILED}.")
