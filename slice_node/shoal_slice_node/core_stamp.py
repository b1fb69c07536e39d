"""Knows the stamp of a compiled core: what it was compiled from, and by what. See ../COMPILED.md.

Belongs here: the stamp's form, the digest of the sources, the folders where a compiled core may lie. Not here:
compiling (slice_node/compile_core.py), loading (core_choice.py). A build runs it without any library.
"""

from __future__ import annotations

import json
import sysconfig
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import shoal_contract

PACKAGE: Final = Path(__file__).parent
COMPILED: Final = "shoal_slice_node.core"
"""The package that is compiled, with all that is in it."""
LIBRARY: Final = "shoal_core__mypyc"
"""The name of the library that holds the code of all compiled modules; each module's own file only points into it."""

STAMP_FILE: Final = "stamp.json"
_SOURCES: Final = (("shoal_slice_node", "core"), ("shoal_contract", ""))
"""Compiled code has constants of the contract in it: so it is out of date, too, when the contract's modules change."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Names what a compiled core was made from. `python`: the ending of extension modules, which names version and
    machine. `sources`: one digest of all."""

    python: str
    mypyc: str
    sources: str


def python_tag() -> str:
    """Returns the ending of the file names of extension modules that this Python loads."""
    tag = sysconfig.get_config_var("EXT_SUFFIX")
    assert isinstance(tag, str)
    return tag


def installed_folder() -> Path:
    """Returns where a wheel has its compiled core, if it has one."""
    return PACKAGE / "compiled"


def checkout_folder() -> Path | None:
    """Returns where a checkout has its compiled core after `make compiled`; None where this is no checkout."""
    root = PACKAGE.parents[1]
    return root / "build" / "compiled" if (root / "slice_node" / "compile_core.py").is_file() else None


def sources_digest() -> str:
    """Returns a digest of the names and the texts of all modules that take part in compiling."""
    found = sha256()
    for package, folder in _SOURCES:
        base = PACKAGE if package == PACKAGE.name else _contract()
        for path in sorted((base / folder).rglob("*.py")):
            name, text = f"{package}/{path.relative_to(base).as_posix()}".encode(), path.read_bytes()
            found.update(b"%d %d " % (len(name), len(text)) + name + text)
    return found.hexdigest()


def write_stamp(folder: Path, mypyc: str, sources: str) -> None:
    """Writes the stamp of what was just compiled. `sources`: their digest before compiling began, so that a source that
    changed meanwhile is noticed."""
    stamp = Stamp(python_tag(), mypyc, sources)
    (folder / STAMP_FILE).write_text(json.dumps(asdict(stamp), indent=2) + "\n", encoding="utf-8")


def read_stamp(folder: Path) -> Stamp | None:
    """Returns the stamp of a folder; None where there is none or it cannot be read."""
    try:
        found: Any = json.loads((folder / STAMP_FILE).read_text(encoding="utf-8"))
        return Stamp(str(found["python"]), str(found["mypyc"]), str(found["sources"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def why_unusable(folder: Path) -> str:
    """Returns why the compiled core in `folder` must not run, as the end of a sentence; "" where it may."""
    stamp = read_stamp(folder)
    if stamp is None:
        return "is missing or was not compiled to its end"
    if stamp.python != python_tag():
        return f"was compiled for {stamp.python}, and this Python takes {python_tag()}"
    if stamp.sources != sources_digest():
        return "is older than its source"
    return ""


def _contract() -> Path:
    """Returns the folder of the contract's package: beside this package in a wheel, elsewhere in a checkout."""
    (folder,) = shoal_contract.__path__
    return Path(folder)
