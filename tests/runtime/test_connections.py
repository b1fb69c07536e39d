"""What the kernel tells of connections, and doors that are shut for a while."""

from __future__ import annotations

import os
import resource
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from shoal_runtime.connections import Connection, Connections, _Kernel
from shoal_runtime.limits import RECEIVED_BYTES_MAX
from shoal_runtime.process_memory import own_bytes


def only(connections: Connections, ports: set[int]) -> list[Connection]:
    """Those whose other ends have these ports."""
    return [one for one in connections.look() if one.address[1] in ports]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_what_came_and_was_taken_is_told(host: str) -> None:
    with ExitStack() as stack:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = stack.enter_context(socket.create_server((host, 0), family=family))
        client = stack.enter_context(socket.create_connection(listening.getsockname()[:2]))
        server = stack.enter_context(listening.accept()[0])
        client.send(bytes(1_000))
        server.recv(300)
        server.send(bytes(50))
        client.recv(50)
        connections = Connections()
        (found,) = only(connections, {client.getsockname()[1]})
        assert (found.file, found.address) == (server.fileno(), client.getsockname()[:2])
        assert (found.taken_bytes, found.acked_bytes) == (300, 50)
        (known,) = connections.look(
            (listening.getsockname()[1],), known={found.cookie: found._replace(address=("known", 1))}
        )
        assert known.address == ("known", 1)
        connections.shut_down(found._replace(cookie=found.cookie + 1))
        server.send(b"x")
        assert client.recv(1) == b"x", "the file is another's by now: it is let be"
        client.send(bytes(1_000))
        connections.shut_down(found)
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        with pytest.raises(ConnectionResetError):
            server.recv(1)  # What it had not taken is gone, and fills no memory.
        assert not only(connections, {client.getsockname()[1]})


def test_no_new_one_comes_while_the_doors_are_shut_and_those_there_go_on() -> None:
    with ExitStack() as stack:
        listening, other = (stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2))
        port = listening.getsockname()[1]
        client = stack.enter_context(socket.create_connection(listening.getsockname()))
        server = stack.enter_context(listening.accept()[0])
        connections = Connections()
        assert not connections.shut_doors(True, {port}), "it has not looked yet"
        list(connections.look())
        assert connections.shut_doors(True, {port})
        with pytest.raises(TimeoutError):
            socket.create_connection(listening.getsockname(), timeout=0.3)
        stack.enter_context(socket.create_connection(other.getsockname(), timeout=5))
        client.send(b"x")
        assert server.recv(1) == b"x"
        assert connections.shut_doors(False, {port})
        stack.enter_context(socket.create_connection(listening.getsockname(), timeout=5))
        assert listening.accept()[0].getpeername()[0] == "127.0.0.1"


def fill(end: socket.socket) -> int:
    """Sends until the kernel takes no more for the other end, which does not read."""
    end.setblocking(False)
    sent = 0
    with suppress(BlockingIOError):
        while True:
            sent += end.send(bytes(1 << 14))
    return sent


def test_what_is_not_read_on_either_side_is_told_and_what_came_is_bounded() -> None:
    """What clients did not take was in no account, and of what they sent 32 MiB lay there for each."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        connections = Connections()
        connections.bound_received(listening.getsockname()[1], RECEIVED_BYTES_MAX)
        client = stack.enter_context(socket.create_connection(listening.getsockname()))
        server = stack.enter_context(listening.accept()[0])
        port = {client.getsockname()[1]}
        (found,) = only(connections, port)
        assert found.kernel_bytes == 0
        fill(client)
        (found,) = only(connections, port)
        received_bytes = found.kernel_bytes
        assert RECEIVED_BYTES_MAX // 2 < received_bytes < 2.5 * RECEIVED_BYTES_MAX
        sent_bytes = fill(server)
        (found,) = only(connections, port)
        assert sent_bytes / 3 < found.kernel_bytes - received_bytes < 1.1 * sent_bytes


def test_a_new_connection_is_told_at_once() -> None:
    """It was told after all others: what was read meanwhile counted as unread, 2 MB beside 3,000 connections."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        connections = Connections()
        list(connections.look())
        clients = [stack.enter_context(socket.create_connection(listening.getsockname())) for _ in range(3)]
        servers = [stack.enter_context(listening.accept()[0]) for _ in clients]
        ports = {client.getsockname()[1] for client in clients}
        for found in connections.look():
            if found.address[1] in ports:
                break
        clients[2].send(bytes(1_000))
        servers[2].recv(1_000)
        (last,) = only(connections, {clients[2].getsockname()[1]})
        assert found.taken_bytes == 0 and last.taken_bytes == 1_000
        looking = connections.look()
        first = next(one for one in looking if one.address[1] in ports)
        clients[2].send(bytes(1_000))
        servers[2].recv(1_000)
        taken = {one.address[1]: one.taken_bytes for one in (first, *looking)}
        assert taken[clients[2].getsockname()[1]] == 2_000, "it was looked at when it was told"


def test_what_was_not_sent_goes_with_the_connection_that_was_shut_down() -> None:
    """The kernel went on for minutes to offer it to a client that had been hung up on for not reading."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(listening.getsockname()))
        server = listening.accept()[0]
        fill(server)
        connections = Connections()
        (found,) = only(connections, {client.getsockname()[1]})
        connections.shut_down(found)
        server.close()
        with pytest.raises(ConnectionResetError):
            while client.recv(1 << 16):
                pass


def test_what_the_kernel_cannot_cut_is_shut_down() -> None:
    here, there = socket.socketpair()  # Not TCP.
    with here, there:
        _Kernel().cut(here.fileno())
        assert there.recv(1) == b""


def test_connections_are_found_where_no_further_file_can_be_opened() -> None:
    """A process with as many files as it may have found none, and held what it liked."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        client = stack.enter_context(socket.create_connection(listening.getsockname()))
        server = stack.enter_context(listening.accept()[0])
        own_bytes()
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        highest = max(int(file.name) for file in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 2, limits[1]))
        with suppress(OSError):
            while True:
                stack.callback(os.close, os.dup(server.fileno()))
        with pytest.raises(OSError, match="Too many open files"):
            list(Path("/proc/self/fd").iterdir())
        assert {one.address for one in Connections().look() if one.file == server.fileno()} == {client.getsockname()}
        assert own_bytes() > 1 << 20
