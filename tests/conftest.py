"""Which etcd the tests run: SHOAL_TEST_ETCD=PROGRAM, else what a local cluster would find."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import shoal_runtime.without_forks  # noqa: F401 - before gRPC is imported, as every program does

VARIABLE = "SHOAL_TEST_ETCD"


def pytest_configure() -> None:
    """Puts the program's folder in front of PATH, for this process and for all that it starts; they hear Ctrl-C, which
    a shell has its background jobs ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    given = os.environ.get(VARIABLE)
    if given is None:
        return
    program = Path(given).resolve()
    if program.name != "etcd" or not program.is_file():
        raise SystemExit(f"{VARIABLE}={given} is not a program called etcd")
    os.environ["PATH"] = os.pathsep.join((str(program.parent), os.environ["PATH"]))
