"""Reads the lists that `make lock` writes, in the one form that it writes."""

from __future__ import annotations

import re

from shoal_chart import locking

_ENTRY = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+) \\\n(?P<hashes>(?:    --hash=\S+(?: \\)?\n)+)", re.MULTILINE
)


def read_lock(text: str) -> dict[str, tuple[str, int]]:
    """Returns version and number of hashes by plain name. Raises ValueError for a line of another form."""
    head = locking.locked([])
    if not text.startswith(head) or _ENTRY.sub("", text) != head:
        raise ValueError("not a list as `make lock` makes it")
    return {
        re.sub(r"[-_.]+", "-", one["name"]).lower(): (one["version"], one["hashes"].count("--hash"))
        for one in _ENTRY.finditer(text)
    }
