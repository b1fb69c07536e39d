"""Tells where inputs and outputs are: folders of this machine, or URLs that only Spark reads. Pure, except that it
looks at folders.

Archives and stores must be folders that driver and executors see under the same path (DESIGN.md says why). Inputs and
outputs of load, export and the census may be wherever Spark reads and writes.
"""

from __future__ import annotations

import re
from pathlib import Path

from shoal_contract.errors import BadCall

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/|$)")
_GLOB = re.compile(r"[*?\[{]")


def scheme_of(path: str) -> str:
    """Returns "s3a" for s3a://bucket/x, "" for a plain path or one with file:."""
    found = _SCHEME.match(path)
    return "" if found is None or found[1] == "file" else found[1].lower()


def folder_of(path: str, what: str) -> Path:
    """Returns the folder that `path` names, plain or with file:. Raises BadCall for any other URL.

    `what` ("archive", "store") is for the message. It does not check whether the folder is there.
    """
    scheme = scheme_of(path)
    if scheme:
        raise BadCall(
            f"{what} {path} is a URL ({scheme}:); the {what} must be a folder: mount it, under the same path on the"
            " driver and on every executor, and name that folder",
            subject=path,
        )
    return Path(re.sub(r"^file:(//)?(?=/)", "", path))


def check_inputs(paths: list[str]) -> None:
    """Raises BadCall for a plain path that is not there. URLs and patterns are left to Spark."""
    for path in paths:
        if not scheme_of(path) and not _GLOB.search(path) and not folder_of(path, "input").exists():
            raise BadCall(f"{path} is not there", subject=path)
