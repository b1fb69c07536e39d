"""Makes files and folders of a local cluster: readable by its user only, never another user's, never over a link.

Belongs here: making and opening them. Does not: what they hold.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from shoal_contract.errors import Conflict

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def make_folder(path: Path) -> None:
    """Makes a folder with its parents, unless it exists. Raises Conflict if it exists and is another user's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(FOLDER_MODE)
    except FileExistsError:
        check_folder(path)


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

    Raises Conflict if it is a symbolic link: the link's target would be written.
    """
    try:
        return os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Conflict(
                f"{path} is a symbolic link; remove it, or choose another --data", subject=str(path)
            ) from None
        raise


def write_whole(path: Path, text: str) -> None:
    """Replaces a file's content as a whole, or not at all."""
    new = path.with_name(f"{path.name}.new")
    with os.fdopen(open_file(new, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)
