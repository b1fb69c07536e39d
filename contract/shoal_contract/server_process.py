"""A server's process: one uvloop, logs to stderr, one line of JSON on stdout when ready, SIGTERM and SIGINT stop it.

Belongs here: what every Shoal server process does in the same way. Does not: arguments and wiring (each `main.py`).
Only servers import this; the bare client needs no uvloop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable

import uvloop

from shoal_contract.errors import ShoalError
from shoal_contract.version import version

Serve = Callable[[asyncio.Event], Awaitable[None]]


def run(serve: Serve, name: str) -> int:
    """Runs `serve(stop)` to its end and returns the exit code: 0, or 1 after a ShoalError or OSError (logged).

    `stop` is set by SIGTERM or SIGINT; `serve` then cleans up and returns. Other exceptions are bugs and propagate.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format=f"%(asctime)s {name} %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger(__name__).info("shoal %s starts", version())
    try:
        uvloop.run(_until_signalled(serve))
    except (ShoalError, OSError) as error:
        logging.getLogger(__name__).error("%s stops: %s", name, error)
        return 1
    return 0


def say_ready(**facts: str | int) -> None:
    """Prints the one line that who started this process waits for: {"ready": true, ...facts}."""
    sys.stdout.write(json.dumps({"ready": True, **facts}) + "\n")
    sys.stdout.flush()


async def _until_signalled(serve: Serve) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(stop)
