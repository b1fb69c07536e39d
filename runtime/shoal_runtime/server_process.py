"""Runs a server's process: one uvloop, logs to stderr, one line of JSON on stdout when ready. SIGTERM, SIGINT stop it.

Belongs here: what every Shoal server process does in the same way. Does not: arguments and wiring (each `main.py`).
Only servers import this; the bare client needs no uvloop.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Awaitable, Callable

import uvloop

from shoal_contract.errors import ShoalError
from shoal_contract.version import version
from shoal_runtime.loops import Loop
from shoal_runtime.standard_streams import open_closed_ones
from shoal_runtime.stopping import Stopping

Serve = Callable[[Stopping], Awaitable[None]]


def run(serve: Serve, name: str, drain_s: float = 0.0) -> int:
    """Runs `serve(stop)` to its end and returns the exit code: 0, or 1 after a ShoalError or OSError (logged).

    `stop` is set by SIGINT, or `drain_s` seconds after SIGTERM; `serve` then cleans up and returns. Other exceptions
    are bugs and propagate.
    """
    open_closed_ones()
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"%(asctime)s {name} %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger(__name__).info("shoal %s starts", version())
    try:
        uvloop.run(_until_signalled(serve, drain_s), loop_factory=Loop)
    except (ShoalError, OSError) as error:
        logging.getLogger(__name__).error("%s stops: %s", name, error)
        return 1
    return 0


def say_ready(**facts: str | int) -> None:
    """Prints the one line that the starter of this process waits for: {"ready": true, ...facts}."""
    sys.stdout.write(json.dumps({"ready": True, **facts}) + "\n")
    sys.stdout.flush()


async def _until_signalled(serve: Serve, drain_s: float) -> None:
    stop = Stopping(drain_s)
    stop.on_signals()
    await serve(stop)
