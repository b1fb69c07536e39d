"""A server process says ready once, stops cleanly on SIGTERM, and gives up with a message when it cannot start."""

import json
import signal
import subprocess
import sys

import grpc
import pytest

from shoal_runtime import grpc_server

SERVES = """
import asyncio, sys
from shoal_runtime import (grpc_server, server_process)

async def serve(stop):
    server = grpc_server.new_server(calls_max=4)
    address = grpc_server.listen(server, sys.argv[1])
    await server.start()
    server_process.say_ready(grpc=address)
    await stop.wait()
    await server.stop(0)

sys.exit(server_process.run(serve, "test"))
"""


def _start(address: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SERVES, address]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_ready_with_its_real_port_and_stops_on_a_signal(number: signal.Signals) -> None:
    with _start("127.0.0.1:0") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        host, _, port = ready["grpc"].rpartition(":")
        assert ready["ready"] is True
        assert (host, int(port) > 0) == ("127.0.0.1", True)
        process.send_signal(number)
        rest, _ = process.communicate(timeout=20)
        assert (process.returncode, rest) == (0, "")


async def test_a_taken_port_is_refused_with_its_address() -> None:
    first, second = grpc.aio.server(), grpc_server.new_server(calls_max=1)
    taken = grpc_server.listen(first, "127.0.0.1:0")
    with pytest.raises(OSError, match=taken):
        grpc_server.listen(second, taken)
    await first.stop(0)
    with _start("nonsense:address:x") as process:
        _, logged = process.communicate(timeout=20)
        assert process.returncode == 1
        assert "test stops: cannot listen on nonsense:address:x" in logged
