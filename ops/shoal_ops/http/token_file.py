"""Reads a file with tokens, one per line: the valid token and, for a time, the one before or after it too.

The file is read again when it changes, so a token is changed without a restart: write both, tell the callers, then
write only the new one. A Secret that Kubernetes renews is a link that leads to another file: that counts as a change
too.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shoal_contract.errors import Malformed, PermissionDenied, ShoalError
from shoal_ops.http.limits import TOKEN_BYTES_MIN, TOKEN_FILE_BYTES_MAX, TOKEN_LOOK_S, TOKENS_MAX

_log = logging.getLogger(__name__)
_ROOT: Final = 0


class TokenFile:
    """Keeps the tokens of a file. Raises Malformed, PermissionDenied, OSError for a file that cannot be used at the
    start. Later such a file is logged, and the tokens that were read before stay valid."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._look_at = clock() + TOKEN_LOOK_S
        self._tokens, self._seen = _read(path)

    def tokens(self) -> tuple[str, ...]:
        """Returns the valid tokens. Looks at the file at most every TOKEN_LOOK_S seconds."""
        now = self._clock()
        if now >= self._look_at:
            self._look_at = now + TOKEN_LOOK_S
            self._look()
        return self._tokens

    def _look(self) -> None:
        seen: object = None
        try:
            seen = _state(self._path.stat())
            if seen == self._seen:
                return
            self._tokens, seen = _read(self._path)
            _log.warning("the token file %s has changed: %d tokens are valid now", self._path, len(self._tokens))
        except (ShoalError, OSError) as error:
            if seen != self._seen:
                _log.error("the token file's new contents are not used: %s. The tokens before stay valid", error)
        self._seen = seen


def tokens_in(text: str, where: str) -> tuple[str, ...]:
    """Returns the tokens of a text, one per line. Raises Malformed."""
    tokens = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not 1 <= len(tokens) <= TOKENS_MAX or not all(map(_is_good, tokens)):
        raise Malformed(
            f"{where} must hold one token, or two while it is changed, one a line, each of at least {TOKEN_BYTES_MIN} "
            "printable ASCII characters; openssl rand -hex 32 makes one",
            subject=where,
        )
    return tokens


def _is_good(token: str) -> bool:
    return len(token) >= TOKEN_BYTES_MIN and token.isascii() and token.isprintable() and " " not in token


def _read(path: Path) -> tuple[tuple[str, ...], object]:
    """Returns the tokens, and the state of the file that they were read from."""
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        _check_private(found, path)
        text = file.read(TOKEN_FILE_BYTES_MAX).decode("utf-8", "replace")
    return tokens_in(text, str(path)), _state(found)


def _check_private(found: os.stat_result, path: Path) -> None:
    """Raises PermissionDenied where others may read or change the file.

    The group of a file that belongs to root may read it: Kubernetes gives Secrets this way to a process that is not
    root (fsGroup).
    """
    if found.st_uid not in (os.geteuid(), _ROOT):
        raise PermissionDenied(f"the token file {path} belongs to another user: chown it to yours", subject=str(path))
    allowed = 0o740 if found.st_uid == _ROOT else 0o700
    if stat.S_IMODE(found.st_mode) & ~allowed & 0o777:
        raise PermissionDenied(
            f"others may read or change the token file {path} (mode {stat.S_IMODE(found.st_mode):04o}): "
            f"chmod 600 {path}, and if they did read it make a new token",
            subject=str(path),
        )


def _state(found: os.stat_result) -> object:
    return found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_size, found.st_mtime_ns, found.st_ctime_ns
