"""`shoal admin`: serves the HTTP gateway, the administration and its page, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from shoal_contract.version import version
from shoal_ops import output
from shoal_ops.http.serving import Ready, Settings, serve
from shoal_ops.http.token import TOKEN_VARIABLE, token_from
from shoal_runtime.stopping import Stopping


async def run_admin(
    at: str, listen: str, token_file: Path | None, as_json: bool, metrics: str = "", drain_s: float = 0.0
) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s admin %(levelname)s %(message)s")
    token = token_from(token_file, os.environ.get(TOKEN_VARIABLE))
    stop = Stopping(drain_s)
    stop.on_signals()

    def say_ready(ready: Ready) -> None:
        if as_json:
            facts = {"http": ready.http} | ({"metrics": ready.metrics} if ready.metrics else {})
            output.say_json({"ready": True, **facts, "version": version()})
            return
        url = f"http://{ready.http}"
        wants = "with the token" if token.required else "without a token, as it is loopback"
        metrics_at = f"; metrics at http://{ready.metrics}/metrics" if ready.metrics else ""
        said = f"shoal {version()} ready at {url}, {wants}; OpenAPI at {url}/openapi.json{metrics_at}; Ctrl-C stops it"
        output.say(said)

    await serve(Settings(listen, tuple(at.split(",")), token, metrics), stop, say_ready)
