"""Translates the system's errors of journal files to typed ones."""

from __future__ import annotations

import errno
from pathlib import Path

from shoal_contract.errors import Corrupt, ResourceExhausted, ShoalError

FULL = (errno.ENOSPC, errno.EDQUOT)
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)


def typed_error(error: OSError, path: Path, position: int = 0) -> ShoalError:
    """Returns ResourceExhausted for what passes when there is room again, Corrupt for a disk that failed."""
    if error.errno in FULL:
        return ResourceExhausted(f"no disk space for {path}: {error.strerror}", subject="disk bytes")
    if error.errno in _OUT_OF_FILES:
        return ResourceExhausted(
            f"no file can be opened for {path}: {error.strerror}; raise the limit of open files", subject="open files"
        )
    return Corrupt(f"{path}, byte {position}: {error}", subject=str(path), position=position)
