"""Gives a folder one owner: an flock on the file `owner`, which holds the owner's pid. flock(2) ends with the process.

The checkpointer inherits the lock. So after a main process was killed, the folder stays locked until its checkpointer's
last commit has ended.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from pathlib import Path
from time import monotonic

from shoal_contract.errors import Conflict
from shoal_slice_node.storage.data_folder import OWNER_FILE
from shoal_slice_node.storage.limits import LOCK_RETRY_S, LOCK_WAIT_S_MAX


async def lock_folder(folder: Path) -> int:
    """Makes and locks the folder. Returns a file descriptor; closing it (in every process that inherited it) unlocks.

    Raises Conflict with the owner's pid. If the owner is dead but its checkpointer is not yet, waits for that, up to
    LOCK_WAIT_S_MAX."""
    fd = _open(folder)
    until = monotonic() + LOCK_WAIT_S_MAX
    try:
        while not _locked(fd):
            owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
            if _alive(owner) or monotonic() > until:
                raise Conflict(f"{folder} is in use by process {owner}", subject=str(folder))
            await asyncio.sleep(LOCK_RETRY_S)
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _open(folder: Path) -> int:
    """Makes the folder and opens its lock file. Raises Conflict for a folder of another user, who could place a link
    there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise Conflict(
            f"{folder} belongs to user {folder.stat().st_uid}, and this is user {os.geteuid()}: run the node as that"
            " user, or give it a folder of its own",
            subject=str(folder),
        )
    try:
        return os.open(folder / OWNER_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise Conflict(f"{folder / OWNER_FILE} is a link: it must be a file. Remove it", subject=str(folder)) from None


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _alive(pid: str) -> bool:
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not Path(f"/proc/{pid}/stat").exists() or Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
