"""A client of one connection that starts calls and resets them, as fast as it can, until it is ended: `python resets.py
HOST PORT`. Raw HTTP/2 (RFC 9113), since no gRPC client does so. Says `begun` after PAIRS_BEGUN."""

from __future__ import annotations

import socket
import sys
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RST_STREAM, SETTINGS = 1, 3, 4
END_HEADERS: Final = 4
CANCEL: Final = (8).to_bytes(4, "big")
PAIRS_AT_ONCE: Final = 80
PAIRS_BEGUN: Final = 100_000


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def field(name: str, value: str) -> bytes:
    """A literal header field without indexing (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def headers(path: str) -> bytes:
    """Of a gRPC call."""
    return b"".join(
        (
            field(":method", "POST"),
            field(":scheme", "http"),
            field(":path", path),
            field(":authority", "test"),
            field("te", "trailers"),
            field("content-type", "application/grpc"),
        )
    )


def connect(host: str, port: int) -> socket.socket:
    connection = socket.create_connection((host, port))
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return connection


def drain(connection: socket.socket) -> None:
    """What the server says. Raises OSError once it has hung up."""
    try:
        while connection.recv(1 << 16, socket.MSG_DONTWAIT):
            pass
        raise ConnectionResetError
    except BlockingIOError:
        pass


def main(host: str, port: int) -> None:
    fields = headers("/test.Test/Stream")
    connection, stream, begun = connect(host, port), 1, 0
    while True:
        streams = range(stream, stream + 2 * PAIRS_AT_ONCE, 2)
        stream = streams.stop
        try:
            connection.sendall(b"".join(frame(HEADERS, END_HEADERS, one, fields) for one in streams))
            drain(connection)
            connection.sendall(b"".join(frame(RST_STREAM, 0, one, CANCEL) for one in streams))
        except OSError:
            connection.close()
            connection, stream = connect(host, port), 1
        begun += PAIRS_AT_ONCE
        if begun == PAIRS_BEGUN:
            sys.stdout.write("begun\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
