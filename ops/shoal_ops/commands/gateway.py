"""`shoal admin`: the HTTP gateway, the administration and its page, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from shoal_contract.version import version
from shoal_ops import output
from shoal_ops.http.serving import Settings, serve
from shoal_ops.http.token import TOKEN_VARIABLE, read_token


async def run_admin(at: str, listen: str, token_file: Path | None, as_json: bool) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s admin %(levelname)s %(message)s")
    settings = Settings(listen, tuple(at.split(",")), read_token(token_file, os.environ.get(TOKEN_VARIABLE)))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def say_ready(address: str) -> None:
        if as_json:
            output.say_json({"ready": True, "http": address, "version": version()})
        else:
            wants = "with the token" if settings.token else "without a token, as it is loopback"
            output.say(
                f"shoal {version()} ready at http://{address}, {wants}; OpenAPI at http://{address}/openapi.json;"
                " Ctrl-C stops it"
            )

    await serve(settings, stop, say_ready)
