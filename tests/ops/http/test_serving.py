"""The process: what it says when ready, that it ends in order, and what it says about a port in use."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal_ops import exits
from tests.ops.http.calls import ok
from tests.ops.http.conftest import WAIT_S, Running, until


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


def test_on_sigterm_it_serves_on_and_says_that_it_is_not_ready(running: Running) -> None:
    """What sends it requests learns of the end a little later: until then its port is not closed."""
    process = start("--listen", "127.0.0.1:0", "--at", running.at, "--metrics", "127.0.0.1:0", "--drain-s", "2")
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        main, side = f"http://{ready['http']}", f"http://{ready['metrics']}"
        assert {httpx.get(f"{at}/readyz", trust_env=False).status_code for at in (main, side)} == {200}
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        # Each request is on a connection of its own.
        until(lambda: "draining" if httpx.get(f"{main}/readyz", trust_env=False).status_code == 503 else "")
        assert httpx.get(f"{side}/readyz", trust_env=False).status_code == 503
        assert httpx.get(f"{side}/healthz", trust_env=False).status_code == 200
        ok(httpx.put(f"{main}/v1/queues/late", trust_env=False))
        assert process.wait(WAIT_S) == exits.DONE
        assert time.monotonic() - began >= 2
    finally:
        process.kill()
        process.communicate()


def test_a_second_signal_ends_the_drain(running: Running) -> None:
    process = start("--listen", "127.0.0.1:0", "--at", running.at, "--drain-s", "3600")
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        url = f"http://{ready['http']}/readyz"
        until(lambda: "draining" if httpx.get(url, trust_env=False).status_code == 503 else "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == exits.DONE
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("listen", "at"), [("[::1]:0", ("[::1]",)), ("[::]:0", ("[::1]", "127.0.0.1"))])
def test_it_listens_on_ipv6(running: Running, tmp_path: Path, listen: str, at: tuple[str, ...]) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("0123456789abcdef", encoding="utf-8")
    process = start("--listen", listen, "--at", running.at, "--token-file", str(token), "--metrics", listen)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        for name in ("http", "metrics"):
            host, _, port = ready[name].rpartition(":")
            assert host == listen.rpartition(":")[0]
            for one in at:
                assert httpx.get(f"http://{one}:{port}/healthz", trust_env=False).status_code == 200
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)
    assert process.returncode == exits.DONE
