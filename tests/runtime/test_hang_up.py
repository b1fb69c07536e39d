"""A client that does not read what a server wrote is hung up on when its call ends; others are not."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal_contract.errors import DeadlineExceeded
from shoal_contract.grpc_errors import from_rpc_error
from shoal_runtime.aborting import abort, send_headers
from shoal_runtime.grpc_server import listen, new_server
from shoal_runtime.hang_up import address_of, hang_up

LARGE = bytes(3 << 20)
NARROW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16))
WAIT_S = 60


class Server:
    """`Large` writes what is not read, and then ends the call; `Small` answers. `ended`: calls that are gone."""

    def __init__(self) -> None:
        self.ended = asyncio.Semaphore(0)
        self.peers: list[str] = []
        self.lost_patience = asyncio.Event()

    async def large(self, _: object, context: Any) -> None:
        self.peers.append(context.peer())
        try:
            await context.read()
            await send_headers(context)
            try:
                async with asyncio.timeout(0.2):
                    await context.write(LARGE)
            except TimeoutError:
                self.lost_patience.set()
                await abort(context, DeadlineExceeded("too slow"), 0.5)
        finally:
            self.ended.release()

    async def small(self, _: object, context: Any) -> None:
        await context.read()
        await context.write(b"answer")


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Server, str]]:
    found = Server()
    server = new_server(calls_max=100)
    handlers = {"Large": found.large, "Small": found.small}
    methods: dict[str, Any] = {
        name: grpc.stream_stream_rpc_method_handler(handler) for name, handler in handlers.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", methods),))
    address = listen(server, "127.0.0.1:0")
    await server.start()
    try:
        yield found, address
    finally:
        await server.stop(0)


@asynccontextmanager
async def connection(address: str, number: int) -> AsyncIterator[grpc.aio.Channel]:
    options = (*NARROW, ("grpc.use_local_subchannel_pool", 1), ("test", number))
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        yield channel


async def call(channel: grpc.aio.Channel, method: str) -> Any:
    found: Any = channel.stream_stream(f"/S/{method}")()
    await found.write(b"request")
    return found


async def test_who_does_not_read_is_hung_up_on_and_nobody_else() -> None:
    async with (
        serving() as (server, address),
        connection(address, 1) as greedy,
        connection(address, 2) as other,
        asyncio.timeout(WAIT_S),
    ):
        kept = await call(other, "Small")
        unread = await call(greedy, "Large")
        await server.ended.acquire()
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            while await unread.read() is not grpc.aio.EOF:
                pass
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        assert await kept.read() == b"answer"
        async with connection(address, 3) as again:
            assert await (await call(again, "Small")).read() == b"answer"


async def test_who_reads_in_time_learns_why_its_call_ended() -> None:
    async with serving() as (server, address), connection(address, 1) as channel, asyncio.timeout(WAIT_S):
        late = await call(channel, "Large")
        await server.lost_patience.wait()
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            while await late.read() is not grpc.aio.EOF:
                pass
        assert isinstance(from_rpc_error(failed.value), DeadlineExceeded)


async def test_many_are_hung_up_on_together() -> None:
    async with serving() as (server, address), asyncio.timeout(WAIT_S):
        channels = [grpc.aio.insecure_channel(address, [*NARROW, ("test", number)]) for number in range(20)]
        calls = [await call(channel, "Large") for channel in channels]
        for _ in calls:
            await server.ended.acquire()
        assert len(set(server.peers)) == 20
        for channel in channels:
            await channel.close()


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:5000", ("127.0.0.1", 5000)),
        ("ipv6:%5B::1%5D:5000", ("::1", 5000)),
        ("ipv6:%5Bfe80::1%25eth0%5D:5000", ("fe80::1", 5000)),
        ("unix:", ("", 0)),
        ("", ("", 0)),
    ],
)
async def test_peers_as_grpc_names_them(peer: str, address: tuple[str, int]) -> None:
    assert address_of(peer) == address
    await hang_up("ipv4:127.0.0.1:1")


async def test_locks_on_files_stay(tmp_path: Path) -> None:
    """LMDB's were gone: an export then read pages that were written anew."""
    with (tmp_path / "lock").open("w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        held = locks()
        assert held
        await hang_up("ipv4:127.0.0.1:1")
        assert locks() == held


def locks() -> list[str]:
    """POSIX locks of this process."""
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return [line for line in lines if "POSIX" in line and f" {os.getpid()} " in line]
