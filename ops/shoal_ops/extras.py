"""Finds which extra of the package brings a library, and so what to install where a command misses one.

The package's own metadata decides, so nothing here goes stale. Belongs here: extras. Not here: Java (the pipeline's).
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from typing import Final

from shoal_contract.errors import BadCall
from shoal_contract.version import DISTRIBUTION

_EXTRA: Final = re.compile(r"""^(?P<library>[A-Za-z0-9._-]+).*\bextra\s*==\s*["'](?P<extra>[\w-]+)["']""")
PREFERRED: Final = ("cli", "server", "spark", "loadtest", "ops")
"""The order of preference: the first extra that brings the library is named. `cli` holds all of `server`."""
_CONTAINS: Final = {"server": "cli"}


def extra_with(module: str) -> str | None:
    """Returns the extra that brings the library of an imported `module`; None where no extra of the package does."""
    wanted = _plain(module)
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        lines = []
    found = {match["extra"] for match in map(_EXTRA.match, lines) if match and _plain(match["library"]) == wanted}
    extra = next((name for name in PREFERRED if name in found), None)
    return None if extra is None else _CONTAINS.get(extra, extra)


def missing_library(module: str, command: str) -> str | None:
    """Returns the sentence for a `command` that cannot run without `module`; None where no extra brings it."""
    library = module.partition(".")[0]
    extra = extra_with(library)
    return None if extra is None else f"{command} needs {library}: pip install '{DISTRIBUTION}[{extra}]'"


def require(command: str, *modules: str) -> None:
    """Raises BadCall for the first of `modules` that is not installed."""
    for module in modules:
        if find_spec(module) is None:
            sentence = missing_library(module, command) or f"{command} needs the module {module}"
            raise BadCall(sentence, subject=module)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
