"""Decides how much memory Spark's JVM gets on one machine: a size, or a share of what this machine or container has."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from shoal_contract.errors import BadCall
from shoal_pipeline.limits import LOCAL_MEMORY, LOCAL_MEMORY_MIB_MIN

LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""The files that say what a container may use: control groups of version 2, and 1."""

_SIZE = re.compile(r"\d{1,6}[mg]")
_SHARE = re.compile(r"([1-9]\d?)%")


def heap_of(text: str, available_bytes: int | None = None) -> str:
    """Returns `text` ("", "3g", "900m", "50%") in the form that Spark takes. Raises BadCall.

    `available_bytes`: the memory that a share is taken of; None: what this machine or container has.
    """
    if not text:
        return LOCAL_MEMORY
    if _SIZE.fullmatch(text):
        return text
    share = _SHARE.fullmatch(text)
    if share is None:
        raise BadCall(f"memory is {text}; it needs a size as 900m or 3g, or a share from 1% to 99%", subject="memory")
    total = available() if available_bytes is None else available_bytes
    mib = total * int(share[1]) // 100 >> 20
    if mib < LOCAL_MEMORY_MIB_MIN:
        raise BadCall(
            f"memory is {text} of {total >> 20} MiB, {mib} MiB; Spark needs {LOCAL_MEMORY_MIB_MIN} MiB",
            subject="memory",
            limit=LOCAL_MEMORY_MIB_MIN,
            value=mib,
        )
    return f"{mib}m"


def available(limits: tuple[Path, ...] = LIMITS) -> int:
    """Returns the bytes that this container may use, or that the machine has where there is no lower limit."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    told = [path.read_text(encoding="ascii").strip() for path in limits if path.is_file()]
    return min([machine, *(int(one) for one in told if one.isdecimal())])
