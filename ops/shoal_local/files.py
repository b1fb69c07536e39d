"""Makes files and folders of a local cluster: readable by its user only, never another user's, never over a link.

Belongs here: making and opening them. Does not: what they hold.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shoal_contract.errors import Conflict

DISK_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""Matches a URL as a Path shows it: s3a://bucket/x is s3a:/bucket/x there."""


@contextmanager
def named(what: str, path: Path) -> Iterator[None]:
    """Raises a Conflict that names `what` cannot be done, the path and the reason, in place of the system's error."""
    try:
        yield
    except OSError as error:
        reason = "no space left on that disk; make room there" if error.errno in DISK_FULL else error.strerror
        raise Conflict(f"cannot {what} {path}: {reason}, or choose another folder", subject=str(path)) from None


def make_folder(path: Path) -> bool:
    """Makes a folder with its parents, unless it exists. Returns whether it is new. Raises Conflict if it cannot be
    made, or exists and is another user's."""
    with named("make the folder", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            path.mkdir(FOLDER_MODE)
        except FileExistsError:
            check_folder(path)
            return False
    return True


def check_archive(path: Path) -> None:
    """Raises Conflict unless `path` is a folder that this user may write to, or one that can be made."""
    if _URL.match(str(path)):
        raise Conflict(
            f"--archive {path} is a URL; the archive must be a folder: mount it, and give its path", subject=str(path)
        )
    found = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not found.is_dir():
        raise Conflict(f"--archive {path}: {found} is not a folder; choose another one", subject=str(path))
    if not os.access(found, os.W_OK | os.X_OK):
        raise Conflict(f"--archive {path}: {found} may not be written by this user", subject=str(path))


def check_folder(path: Path) -> None:
    """Raises Conflict if `path` is not a folder, or belongs to another user, who could put links into it."""
    if not path.is_dir():
        raise Conflict(f"{path} is not a folder; choose another --data", subject=str(path))
    owner = path.stat().st_uid
    if owner != os.geteuid():
        raise Conflict(
            f"{path} belongs to user {owner}, and this is user {os.geteuid()}: choose another --data, or start it as"
            f" user {owner}",
            subject=str(path),
        )


def open_file(path: Path, flags: int) -> int:
    """Opens a file as os.open does, and makes it if it does not exist. Returns its descriptor, not inherited.

    Raises Conflict if it cannot be opened, or is a symbolic link: the link's target would be written.
    """
    try:
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Conflict(
                f"{path} is a symbolic link; remove it, or choose another --data", subject=str(path)
            ) from None
        with named("write", path):
            raise


def write_whole(path: Path, text: str) -> None:
    """Replaces a file's content as a whole, or not at all. Raises Conflict."""
    new = path.with_name(f"{path.name}.new")
    with named("write", path):
        with os.fdopen(open_file(new, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
            file.write(text)
        new.replace(path)
