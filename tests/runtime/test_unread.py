"""What came on a connection and no handler has read: found also where HTTP/2 counts next to nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from shoal_runtime.endings import estimated_bytes
from shoal_runtime.grpc_server import listen, new_server
from shoal_runtime.limits import UNREAD_ACCEPT_S, UNREAD_FREE_BYTES_PER_S, UNREAD_LOOKS, UNREAD_PARTS_MAX
from shoal_runtime.unread import Client, Unread

from .passed_over import FILLER
from .resets import connect
from .standing import standing
from .told_kernel import PEER, WHERE, Kernel, told

FRAMES = 200


@asynccontextmanager
async def server(unread: Unread) -> AsyncIterator[str]:
    """One that reads all that it gets and tells of it."""

    async def read_all(_: object, context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            unread.read(context.peer(), len(data))
            await context.write(b"")
            unread.wrote(context.peer(), 0)

    made = new_server(calls_max=10)
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Read": grpc.stream_stream_rpc_method_handler(unread.counted(read_all))
    }
    made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", handlers),))
    address = listen(made, "127.0.0.1:0")
    await made.start()
    try:
        yield address
    finally:
        await made.stop(0)


async def looked(unread: Unread) -> None:
    for _ in range(UNREAD_LOOKS):
        await asyncio.to_thread(unread.look)
        await asyncio.sleep(0.05)


async def test_frames_that_are_passed_over_are_found_and_what_is_read_is_not() -> None:
    unread = Unread()
    async with server(unread) as address, grpc.aio.insecure_channel(address) as channel, asyncio.timeout(20):
        call: Any = channel.stream_stream("/test/Read")()
        for _ in range(50):
            await call.write(bytes(100_000))
            await call.read()
        host, _, port = address.rpartition(":")
        greedy = await asyncio.to_thread(connect, host, int(port))
        place = greedy.getsockname()
        await asyncio.to_thread(greedy.sendall, FRAMES * FILLER)
        while not (found := standing(unread, FRAMES << 13)):
            await looked(unread)
        assert [where for _, where in found] == [place] and found[0][0] <= FRAMES * len(FILLER) + 1000
        (least,) = [size for size, where in standing(unread, 0) if where != place and size > 0] or [0]
        assert least < 20_000, "of an honest connection: headers and the like"
        greedy.close()
        call.cancel()
        await looked(unread)
        assert place not in [where for _, where in standing(unread, 0)]


async def test_a_second_connection_of_the_same_port_hides_nothing() -> None:
    """The totals of both went into one, and cancelled each other."""
    unread = Unread()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        ends: list[socket.socket] = []
        source = 0
        for listening in servers:
            client_side = stack.enter_context(socket.socket())
            client_side.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            client_side.bind(("127.0.0.1", source))
            client_side.connect(listening.getsockname())
            source = client_side.getsockname()[1]
            ends += [client_side, stack.enter_context(listening.accept()[0])]
        sent = 0
        for _ in range(3):
            ends[0].send(bytes(50_000))
            sent += len(ends[1].recv(50_000))
            await looked(unread)
        found = {where: size for size, where in standing(unread, 1)}
        assert found[ends[0].getsockname()] > sent // 2
        ends[3].close()
        ends[2].close()
        await looked(unread)
        found = {where: size for size, where in standing(unread, 1)}
        assert found[ends[0].getsockname()] > sent // 2, "one that is gone takes nothing with it"


def test_what_was_on_a_port_says_nothing_of_its_next_connection() -> None:
    kernel = Kernel(1 << 30)
    unread = told(kernel)
    unread.read(PEER, 1 << 30)
    unread.look()
    kernel.cookie, kernel.taken_bytes = 2, 5_000_000
    for _ in range(UNREAD_LOOKS):
        unread.look()
    ((size_bytes, _),) = standing(unread, 4_900_000)
    assert size_bytes <= 5_000_000
    kernel.cookie, kernel.taken_bytes = 3, 100
    for _ in range(UNREAD_LOOKS):
        unread.look()
    assert standing(unread, 0)[0][0] <= 100, "nor does what was unread on it"


def test_what_comes_and_is_read_while_it_looks_is_not_unread() -> None:
    """With 2,000 connections the busiest of all, each byte of which was read, seemed to have 25 MB unread."""
    kernel = Kernel(0)
    unread = told(kernel)
    unread.read(PEER, 1)
    unread.look()

    def goes_on() -> None:
        unread.read(PEER, 1 << 34)
        kernel.taken_bytes += (1 << 34) + (1 << 20) * 9 + 5_000_000
        unread.read(PEER, 5_000_000)

    kernel.meanwhile = goes_on
    for _ in range(UNREAD_LOOKS):
        unread.look()
    assert not standing(unread, 1)


def test_what_came_with_calls_that_have_ended_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers of traced calls, and requests of calls that were cut off, counted for good: such clients were hung up on
    before those who held something."""
    now_s = 100.0
    monkeypatch.setattr("shoal_runtime.unread.time.monotonic", lambda: now_s)
    kernel = Kernel(0)
    unread = told(kernel)

    def looks() -> int:
        for _ in range(UNREAD_LOOKS):
            unread.look()
        return standing(unread, 0)[0][0] if standing(unread, 0) else 0

    first, second = unread.calling(PEER), unread.calling(PEER)
    first.__enter__()
    kernel.taken_bytes += 600_000
    assert looks() == 600_000
    now_s += UNREAD_ACCEPT_S - 1
    second.__enter__()
    now_s += 10 * UNREAD_ACCEPT_S
    assert looks() > 590_000
    assert [one.calls for one in unread.clients.values()] == [2]
    first.__exit__(None, None, None)
    assert looks() > 590_000, "it may be the second's, which waited in gRPC's line"
    second.__exit__(None, None, None)
    assert looks() == 0
    assert not unread._calls


def test_a_look_that_fails_changes_nothing() -> None:
    """What handlers had read was forgotten: all that had ever come on any connection seemed to be unread."""
    kernel = Kernel(5_000_000)
    unread = told(kernel)
    unread.look()
    unread.read(PEER, 5_000_000)
    unread.look()

    def fails() -> None:
        raise OSError("too many open files")

    kernel.meanwhile = fails
    for _ in range(UNREAD_LOOKS):
        with pytest.raises(OSError, match="too many open files"):
            unread.look()
    kernel.meanwhile = lambda: None
    for _ in range(UNREAD_LOOKS):
        unread.look()
    assert not standing(unread, 1)


def test_a_connection_rests_when_it_has_no_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sent a frame of no use now and then never rested."""
    now_s = 100.0
    monkeypatch.setattr("shoal_runtime.unread.time.monotonic", lambda: now_s)
    kernel = Kernel(50)
    unread = told(kernel)

    def rests_since_s() -> float:
        unread.look()
        return unread.clients[WHERE].rests_since_s

    assert rests_since_s() == 100.0
    with unread.calling(PEER):
        now_s = 110.0
        assert rests_since_s() == 110.0
    now_s = 120.0
    kernel.taken_bytes += 9
    assert rests_since_s() == 110.0
    unread.read(PEER, 1)
    assert rests_since_s() == 120.0, "it had a call between two looks"


def test_what_was_read_of_a_connection_that_is_gone_hides_no_more_than_what_came_by_then() -> None:
    """Where it came and went between two looks, as much of the next one on its port was hidden: 16 held 490 MiB."""
    kernel = Kernel(0)
    unread = told(kernel)
    unread.look()
    with unread.calling(PEER):
        unread.read(PEER, 100_000_000)
    kernel.cookie, kernel.taken_bytes = 2, 20_000_000
    with unread.calling(PEER):
        unread.look()
        kernel.taken_bytes += 80_000_000
        for _ in range(UNREAD_LOOKS):
            unread.look()
        ((size_bytes, _),) = standing(unread, 1)
        assert size_bytes > 79_000_000


def test_much_that_is_read_is_counted_nearly_exactly() -> None:
    """Five bytes a frame made 45 KB that seemed unread after 510 MB: such a publisher was ended where memory stays."""
    kernel = Kernel(0)
    unread = told(kernel)
    unread.look()
    with unread.calling(PEER):
        for size_bytes in (16_381, 40_000, 61_440, 1_000_000):
            for frame_bytes in (1 << 13, 1 << 14):
                for _ in range(1_000):
                    unread.read(PEER, size_bytes)
                    frames = -(-(size_bytes + 5) // frame_bytes) + 1
                    kernel.taken_bytes += 5 + size_bytes + 9 * frames
                for _ in range(UNREAD_LOOKS):
                    unread.look()
                assert unread.holding == []
        kernel.taken_bytes += 5_000_000
        for _ in range(UNREAD_LOOKS):
            unread.look()
        assert unread.holding == [WHERE]


def test_what_was_read_before_the_first_look_is_not_unread() -> None:
    """A client that published 40 MB within its first look, and opened a session then, seemed to have it unread for as
    long as the session lived."""
    kernel = Kernel(0)
    unread = told(kernel)
    with unread.calling(PEER):
        unread.read(PEER, 40_000_000, first=True)
    kernel.taken_bytes = 40_000_000
    with unread.calling(PEER):
        for _ in range(UNREAD_LOOKS):
            unread.look()
        assert not standing(unread, 1)


def test_what_the_kernel_holds_is_told_apart_from_what_just_goes() -> None:
    kernel = Kernel(0)
    unread = told(kernel)
    for kernel.kernel_bytes in (5_000, 7_000, 6_000):
        unread.look()
    client = unread.clients[WHERE]
    assert (unread.kernel_bytes, client.standing_kernel) == (6_000, 5_000)
    kernel.kernel_bytes = 0
    unread.look()
    assert (unread.kernel_bytes, client.standing_kernel) == (0, 0)


def test_many_looks_during_one_call_are_summed_up() -> None:
    kernel = Kernel(0)
    unread = told(kernel)
    with unread.calling(PEER):
        for _ in range(10 * UNREAD_PARTS_MAX):
            kernel.taken_bytes += 1_000
            unread.look()
        client = unread.clients[WHERE]
        assert 9_900 * UNREAD_PARTS_MAX < client.unread[-1] <= 10_000 * UNREAD_PARTS_MAX
        assert len(client.came) <= UNREAD_PARTS_MAX


def test_small_messages_hide_next_to_nothing() -> None:
    """Each message of 5 bytes hid 250 that nobody read."""
    kernel = Kernel(0)
    unread = told(kernel)
    for _ in range(UNREAD_LOOKS):
        for _ in range(1_000):
            unread.read(PEER, 0)
        kernel.taken_bytes += 1_000 * 255
        unread.look()
    ((size_bytes, _),) = standing(unread, 1)
    assert size_bytes > 0.9 * 1_000 * 255


def test_what_comes_besides_messages_is_let_go_of_over_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, contextlib.ExitStack() as stack:
        client_side = stack.enter_context(socket.create_connection(listening.getsockname()))
        server_side = stack.enter_context(listening.accept()[0])
        client_side.send(bytes(2_000))
        server_side.recv(2_000)
        unread = Unread()
        for _ in range(UNREAD_LOOKS):
            unread.look()
        place = client_side.getsockname()
        assert [size for size, where in standing(unread, 1) if where == place]
        unread._looked_s -= 2_000 / UNREAD_FREE_BYTES_PER_S + 1
        for _ in range(UNREAD_LOOKS):
            unread.look()
        assert not [size for size, where in standing(unread, 1) if where == place]


def test_the_process_s_own_connections_to_others_are_not_looked_at() -> None:
    """What etcd answered counted as something that nobody reads."""
    unread = Unread()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client_side = socket.create_connection(listening.getsockname())
        with client_side, listening.accept()[0] as server_side:
            unread.look()
            assert client_side.getsockname() in unread.clients
            assert listening.getsockname() not in unread.clients, "the other end, which is this process's own"
            assert server_side.getpeername() == client_side.getsockname()


def test_calls_whose_headers_are_small_hide_nothing_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of 29 bytes hid 51 that nobody read: with 2,000 such calls a second 100 KB."""
    now_s = 100.0
    monkeypatch.setattr("shoal_runtime.unread.time.monotonic", lambda: now_s)
    kernel = Kernel(0)
    unread = told(kernel)
    unread.look()
    junk = 0

    def looks(junk_of_call: int) -> Client:
        nonlocal junk
        for _ in range(20):
            for _ in range(1_000):
                kernel.taken_bytes += 29 + junk_of_call
                junk += junk_of_call
                unread.read(PEER, 0, first=True)
            unread.look()
        return unread.clients[WHERE]

    with unread.calling(PEER):
        client = looks(48)
        assert client.standing > junk // 3, "so much no headers take"
        assert client.unread[-1] + client.doubtful >= junk - 1_000
        held = estimated_bytes(client) + client.unread[-1]
        client = looks(29)
        assert client.unread[-1] + client.doubtful >= junk - 1_000
        assert estimated_bytes(client) + client.unread[-1] - held >= 29 * 20_000 - 1_000
    now_s += UNREAD_ACCEPT_S + 1
    unread.look()
    assert (client.unread[-1], client.doubtful) == (0, 0), "its calls have ended"


async def test_honest_calls_and_answers_leave_nothing_unread() -> None:
    unread = Unread()
    async with server(unread) as address, grpc.aio.insecure_channel(address) as channel, asyncio.timeout(60):
        call: Any = channel.stream_stream("/test/Read")()
        await call.write(b"x")
        await call.read()
        await looked(unread)
        (client,) = (one for one in unread.clients.values() if one.calls)
        before = client.unread[-1]
        for _ in range(1_000):
            await call.write(b"x")
            await call.read()
        await looked(unread)
        (client,) = (one for one in unread.clients.values() if one.calls)
        assert client.unread[-1] - before < 2_000
        call.cancel()
