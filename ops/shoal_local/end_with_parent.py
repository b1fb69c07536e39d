"""Becomes COMMAND, which ends with PID: `python -P -m shoal_local.end_with_parent PID COMMAND...`.

This is for the children of a local cluster, so that a starter killed with -9 leaves no process behind: they get SIGTERM
then. Only their user can read the files that they make. The kernel's parent-death signal (prctl(2), PR_SET_PDEATHSIG)
outlives exec. On other systems than Linux, which have no such signal, COMMAND just runs. This is a program of its own,
because a function between fork and exec is unsafe in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tied_command(*command: str) -> list[str]:
    """Returns the command line with which this process must start `command` to make it end with this process."""
    return [sys.executable, "-P", "-m", __name__, str(os.getpid()), *command]


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(f"process {parent} ended before {command[0]} began")
    os.umask(0o077)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
