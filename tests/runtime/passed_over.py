"""A connection that makes a gRPC server hold what no window counts: the buffers that small payloads came in."""

from __future__ import annotations

from .resets import END_HEADERS, HEADERS, connect, drain, frame, headers

DATA = 0
PIECE = 24
"""Bytes of payload that gRPC does not copy."""
FILLER = frame(0xEE, 0, 0, bytes(1 << 14))
"""A frame of a kind that is passed over (RFC 9113, 4.1)."""


def send_until_ended(address: str, path: str, streams: int, most_bytes: int) -> int:
    """Begins so many calls and sends pieces of their messages, with fillers between. Returns how many bytes were sent
    until the server hung up. Raises AssertionError if it did not by `most_bytes`."""
    host, _, port = address.rpartition(":")
    with connect(host, int(port)) as connection:
        sent = 0
        try:
            for number in range(streams):
                connection.sendall(frame(HEADERS, END_HEADERS, 1 + 2 * number, headers(path)))
                connection.sendall(frame(DATA, 0, 1 + 2 * number, bytes(1) + (1 << 20).to_bytes(4, "big")))
            while sent < most_bytes:
                stream = 1 + 2 * (sent // len(4 * FILLER) % streams)
                connection.sendall(frame(DATA, 0, stream, bytes(PIECE)) + 4 * FILLER)
                sent += len(4 * FILLER) + PIECE
                drain(connection)
        except OSError:
            return sent
    raise AssertionError(f"{sent} bytes were taken")
