"""A real redirector, and clients that do not acknowledge gRPC's settings, so that their headers have no bound."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from shoal_contract.wire import redirector_pb2 as wire
from shoal_local.etcd import LocalEtcd
from tests.redirector.conftest import Redirector, end, launch, until_ready
from tests.runtime.resets import END_HEADERS, HEADERS, PREFACE, SETTINGS, frame, headers

CONTINUATION = 9
FRAME_BYTES = 16_000
BUDGET_MIB = 256
BESIDE_MIB = 64
"""What it may hold beyond its budget until the connections have ended and their calls were taken."""
PATH = "/test.Test/One"
INDEXED = b"\x40\x01x\x00"
"""A header `x` without a value, which HTTP/2's table has from now on (RFC 7541, 6.2.1), as its latest field."""
REFERENCE = b"\xbe"
"""That field once more (6.1). gRPC keeps 170 bytes for it."""
SENT_S = 6.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def head(stream: int, fields: bytes, references: int, ends: bool = True) -> bytes:
    """The headers of a call, in as many frames as they need."""
    block = fields + REFERENCE * references
    parts = [block[at : at + FRAME_BYTES] for at in range(0, len(block), FRAME_BYTES)]
    return b"".join(
        frame(CONTINUATION if at else HEADERS, END_HEADERS if ends and at == len(parts) - 1 else 0, stream, part)
        for at, part in enumerate(parts)
    )


def many_calls() -> bytes:
    """127 calls of 5,000 fields each."""
    calls = (head(1 + 2 * number, headers(PATH) + (b"" if number else INDEXED), 5_000) for number in range(127))
    return b"".join(calls)


def one_call_without_end() -> bytes:
    return head(1, headers(PATH) + INDEXED, 400_000, ends=False)


def send(address: str, content: bytes) -> None:
    """Sends this on a new connection, until it is hung up on."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=SENT_S) as connection:
        connection.sendall(PREFACE + frame(SETTINGS, 0, 0) + content)
        while connection.recv(1 << 16):
            pass


def held_mib(redirector: Redirector) -> Iterator[int]:
    """The memory of its own, now, each time it is asked."""
    status = Path(f"/proc/{redirector.process.pid}/status")
    while True:
        yield int(status.read_text(encoding="ascii").split("RssAnon:")[1].split()[0]) >> 10


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("connections", "content"), [(40, many_calls()), (12, one_call_without_end())])
async def test_headers_without_a_bound_take_little_more_than_its_budget(
    etcd: LocalEtcd, connections: int, content: bytes
) -> None:
    """63 such connections took a redirector of 256 MiB to 855 and 1,017 MiB, 20 without an end to 1,216."""
    async with AsyncExitStack() as stack:
        process = await launch(etcd.endpoint, "--memory-mib", str(BUDGET_MIB))
        stack.push_async_callback(end, process)
        redirector = await until_ready(process, stack)
        threads = stack.enter_context(ThreadPoolExecutor(connections))
        loop, address = asyncio.get_running_loop(), str(redirector.ready["grpc"])
        sending = [loop.run_in_executor(threads, send, address, content) for _ in range(connections)]
        attack, peak_mib, held = asyncio.gather(*sending), 0, held_mib(redirector)
        while not attack.done():
            peak_mib = max(peak_mib, next(held))
            await asyncio.wait((attack,), timeout=0.01)
        assert peak_mib < BUDGET_MIB + BESIDE_MIB, f"{peak_mib} of {BUDGET_MIB} MiB"
        assert await redirector.stub.Locate(wire.LocateRequest(keys=[b"k"]), wait_for_ready=True, timeout=30)
