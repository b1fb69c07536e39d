"""Tells the version of the installed program. Every process, log line and metric that names the version asks here."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from typing import Final

DISTRIBUTION: Final = "shoal"
UNKNOWN: Final = "unknown"


@lru_cache
def version() -> str:
    """Returns the version in the metadata of the installed package, as "0.1.0"; UNKNOWN if it is not installed."""
    try:
        return version_of(DISTRIBUTION)
    except PackageNotFoundError:
        return UNKNOWN
