"""Starts a child process of the main process with a socket to it: the checkpointer, and snapshot processes.

A child is started with exec, never by fork alone: a forked process would share the threads' locks and the memory. The
working folder is not on the child's module path (`-P`), since a file there may have the name of a module.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from socket import socket, socketpair
from typing import Final

CHILD_SOCKET: Final = "SOCKET_FD"
"""A placeholder in a child's arguments: it is replaced by the file descriptor of the child's end of the socket."""


async def start_child(module: str, arguments: Sequence[str], pass_fds: Sequence[int] = ()) -> tuple[Process, socket]:
    """Starts a child. Returns the process and the main process's end of the socket."""
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
