"""A program that behaves as a server of a local cluster does: it says that it is ready, and ends at SIGTERM."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--say", default="", help="told when ready")
    parser.add_argument("--exit", type=int, help="ends with it once it was ready")
    parser.add_argument("--wants", type=Path, help="a file without which it does not start")
    parser.add_argument("--babble", action="store_true", help="prints something else first")
    parser.add_argument("--logs", type=int, default=0, help="how many lines of 1,000 bytes it logs first")
    parser.add_argument("--at-end", type=Path, help="its name is added there when it is told to end")
    parser.add_argument("--name", default="")
    parser.add_argument("--slow-after", type=Path, help="is never ready if this file is there; makes it")
    given = parser.parse_args()
    signals = {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    if given.wants is not None and not given.wants.exists():
        sys.stderr.write(f"2026-01-01 00:00:00 small ERROR server_process: small stops: {given.wants} is missing\n")
        return 1
    sys.stderr.write(("x" * 999 + "\n") * given.logs)
    if given.babble:
        sys.stdout.write("babble\n")
    if given.slow_after is not None:
        if given.slow_after.exists():
            signal.sigwait(signals)
        given.slow_after.touch()
    sys.stdout.write(json.dumps({"ready": True, "said": given.say, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()
    if given.exit is not None:
        return int(given.exit)
    signal.sigwait(signals)
    if given.at_end is not None:
        with given.at_end.open("a") as file:
            file.write(f"{given.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
