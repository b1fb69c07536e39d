"""What the kernel tells of connections, and doors that are shut for a while."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress

import pytest

from shoal_contract.connections import Connection, Connections
from shoal_contract.limits import UNSENT_BYTES_MAX


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
        (known,) = connections.look(known={found.cookie: ("known", 1)})
        assert known.address == ("known", 1)
        connections.shut_down(found._replace(cookie=found.cookie + 1))
        server.send(b"x")
        assert client.recv(1) == b"x", "the file is another's by now: it is let be"
        connections.shut_down(found)
        assert client.recv(1) == b""


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


def fill(server: socket.socket) -> int:
    """Until the kernel takes no more for a client that does not read."""
    server.setblocking(False)
    sent = 0
    with suppress(BlockingIOError):
        while True:
            sent += server.send(bytes(1 << 14))
    return sent


def test_what_clients_do_not_take_is_bounded_and_told() -> None:
    """4 MiB lay there for each of them, in nobody's account."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        connections = Connections()
        connections.bound_unsent(listening.getsockname()[1], UNSENT_BYTES_MAX)
        client = stack.enter_context(socket.create_connection(listening.getsockname()))
        server = stack.enter_context(listening.accept()[0])
        (found,) = only(connections, {client.getsockname()[1]})
        assert found.kernel_bytes == 0
        assert fill(server) > UNSENT_BYTES_MAX
        (found,) = only(connections, {client.getsockname()[1]})
        assert UNSENT_BYTES_MAX < found.kernel_bytes < 2.5 * UNSENT_BYTES_MAX


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


def test_a_list_of_files_that_cannot_be_had_is_no_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr("shoal_contract.connections.Path.iterdir", fails)
    with pytest.raises(OSError, match="too many open files"):
        list(Connections().look())
