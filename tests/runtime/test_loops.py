"""The loop of Shoal's processes takes what gRPC's poller says at once: nothing piles up in its socket."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, array, fcntl, json, socket, sys, termios, time
import grpc, uvloop
from shoal_runtime.loops import Loop

wakes = []

class Watched(Loop if sys.argv[1] == "ours" else uvloop.Loop):
    def add_reader(self, fd, callback, *args):
        if isinstance(fd, socket.socket) and fd.family == socket.AF_UNIX:
            wakes.append(fd)
        super().add_reader(fd, callback, *args)

def waiting():
    found = array.array("i", [0])
    fcntl.ioctl(wakes[-1].fileno(), termios.FIONREAD, found)
    return found[0]

async def answer(request, context):
    return b"answer"

async def main():
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", {"M": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    most = 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        calls = [asyncio.ensure_future(channel.unary_unary("/S/M")(b"")) for _ in range(120)]
        while not all(call.done() for call in calls):
            time.sleep(0.005)  # A busy loop: each turn brings many events.
            await asyncio.sleep(0)
            most = max(most, waiting())
    print(json.dumps({"answers": len({call.result() for call in calls}), "left": waiting(), "wakes": len(wakes)}))
    await server.stop(0)

asyncio.Runner(loop_factory=Watched).run(main())
"""


@pytest.mark.parametrize(("loop", "piles_up"), [("ours", False), ("uvloop's", True)])
def test_what_the_poller_says_does_not_pile_up(loop: str, piles_up: bool) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, loop], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["answers"] == 1 and found["wakes"] == 1, "gRPC has changed: see loops.py"
    assert (found["left"] > 20) is piles_up, found
