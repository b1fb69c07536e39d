"""The process: what it says when ready, that it ends in order, and what it says about a port in use."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from typing import Any

import httpx

from shoal_ops import exits
from tests.ops.http.conftest import WAIT_S, Running, until
from tests.ops.http.test_gateway import ok


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "shoal_ops", "admin", "--json", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_stop_ends_streams_and_long_polls_and_answers_what_is_under_way(running: Running) -> None:
    process = start("--listen", "127.0.0.1:0", "--at", running.at)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        found: list[Any] = []
        with httpx.Client(base_url=f"http://{ready['http']}", trust_env=False, timeout=60) as http:
            ok(http.post("/v1/queues", json={"queues": ["stop-a", "stop-b"]}))
            waiting = threading.Thread(
                target=lambda: found.append(http.post("/v1/queues/stop-b/pull", json={"wait_s": 50}))
            )
            with http.stream("GET", "/v1/queues/stop-a/events") as stream:
                lines = stream.iter_lines()
                assert next(lines) == ": queue stop-a"
                waiting.start()
                until(lambda: "waits" if "shoal_admin_waiting_pulls 1.0" in http.get("/metrics").text else "")
                process.send_signal(signal.SIGTERM)
                assert ": stopping" in list(lines), "the stream is ended in order"
            waiting.join(WAIT_S)
        assert ok(found[0]) == {"messages": []}
        assert process.wait(WAIT_S) == exits.DONE
    finally:
        process.kill()
        process.communicate()


def test_a_port_in_use_is_named(running: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start("--listen", address, "--at", running.at)
        _, error = process.communicate(timeout=WAIT_S)
    assert process.returncode == exits.BAD_CALL
    assert f"cannot listen on {address}" in error
