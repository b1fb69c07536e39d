"""Puts the compiled core into a wheel, where the machine that builds it can compile: a build hook of hatchling.

`SHOAL_BUILD_CORE` says what to do where it cannot: `auto`, or nothing, leaves it out; `compiled` fails; `python` never
compiles. An editable installation has no compiled core. Not here: compiling (compile_core.py). See COMPILED.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE: Final = "SHOAL_BUILD_CORE"
ENDINGS: Final = (".so", ".json")


class CoreHook(BuildHookInterface[Any]):
    """Compiles the core into a temporary folder and adds it to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get(VARIABLE, "") or "auto"
        if wanted not in ("auto", "compiled", "python"):
            raise ValueError(f"{VARIABLE}={wanted}: it must be auto, compiled or python")
        if version == "editable" or self.target_name != "wheel" or wanted == "python":
            return
        self._folder = Path(mkdtemp(prefix="shoal-core-"))
        compiled = self._folder / "compiled"
        program = Path(self.root) / "slice_node" / "compile_core.py"
        possible = ["--if-possible"] if wanted == "auto" else []
        subprocess.run([sys.executable, str(program), str(compiled), *possible], check=True, stdin=subprocess.DEVNULL)
        for path in sorted(compiled.rglob("*")):
            if path.suffix in ENDINGS:
                inside = path.relative_to(compiled).as_posix()
                build_data["force_include"][str(path)] = f"shoal_slice_node/compiled/{inside}"
        if compiled.is_dir():
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            shutil.rmtree(self._folder, ignore_errors=True)
