"""Starts a child process of the broker with a socket to it: the checkpointer, and snapshot processes.

Started with exec, never by fork alone: a forked broker would share its threads' locks and its memory. The working
folder is not on its path (`-P`): a file in it may have the name of a module.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from socket import socket, socketpair
from typing import Final

CHILD_SOCKET: Final = "SOCKET_FD"
"""Among a child's arguments: where the number of its end of the socket goes."""


async def start_child(module: str, arguments: Sequence[str], pass_fds: Sequence[int] = ()) -> tuple[Process, socket]:
    """Returns the process and the broker's end of the socket."""
    ours, theirs = socketpair()
    numbered = [str(theirs.fileno()) if argument == CHILD_SOCKET else argument for argument in arguments]
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module, *numbered),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), *pass_fds),
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours
