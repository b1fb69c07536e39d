"""Makes the grpc.aio server that every Shoal process runs: Shoal's frame size, keepalive, a port chosen or free.

Belongs here: options and binding. Does not: services, TLS material (each `main.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import grpc

from shoal_contract.limits import FRAME_BYTES_MAX, REQUEST_BYTES_MAX
from shoal_runtime.connections import Connections
from shoal_runtime.grpc_requests import DecodingChecked
from shoal_runtime.limits import (
    CALL_WAITING_BYTES,
    CALLS_PER_CONNECTION_MAX,
    CALLS_WAITING_MAX,
    CALLS_WAITING_PARTS,
    HANDSHAKE_MS_MAX,
    IDLE_MS_MAX,
    METADATA_BYTES_MAX,
    RECEIVED_BYTES_MAX,
    SETTINGS_MS_MAX,
)

Options = Sequence[tuple[str, Any]]

OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX),
    ("grpc.max_send_message_length", FRAME_BYTES_MAX),
    # No single connection may take all the places that calls wait for.
    ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION_MAX),
    # Calls that were reset count until they are freed. Otherwise one connection that starts and resets calls without
    # end would fill the line in which the new calls of all connections wait. See CALLS_PER_CONNECTION_MAX.
    ("grpc.http.overload_protection", 1),
    # Above the first bound gRPC refuses calls by chance, above the second all.
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.http2.settings_timeout", SETTINGS_MS_MAX),
    # No message comes compressed: 2 KB would be 2 MB in memory before the server can count it.
    ("grpc.compression_enabled_algorithms_bitset", 1),
    # Two processes must never share a port by accident: the second one fails to start.
    ("grpc.so_reuseport", 0),
    # A client that vanished is noticed within 30 s; clients may ping as often as every 5 s.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # A silent connection holds an open file, so it ends soon. gRPC's own default is 120 s.
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX),
    # So does one without calls, for longer.
    ("grpc.max_connection_idle_ms", IDLE_MS_MAX),
)


def calls_waiting_max(memory_bytes: int) -> int:
    """Returns how many new calls may wait in gRPC's line, in a process with this memory budget."""
    return min(memory_bytes // CALLS_WAITING_PARTS // CALL_WAITING_BYTES, CALLS_WAITING_MAX)


def new_server(
    *,
    calls_max: int,
    waiting_max: int = CALLS_WAITING_MAX,
    options: Options = (),
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> grpc.aio.Server:
    """Returns a server that takes at most `calls_max` calls and streams at a time; further ones get RESOURCE_EXHAUSTED.
    `waiting_max`: the calls in gRPC's line, before the loop takes or refuses them.

    `options` are gRPC's and replace ours of the same name: of two options gRPC takes the first.
    A request that cannot be decoded is answered with Malformed.
    """
    # Above the first bound gRPC drops some of the new calls, of any connection; above the second it drops all.
    line = {
        "grpc.server.max_pending_requests": waiting_max,
        "grpc.server.max_pending_requests_hard_limit": waiting_max,
    }
    return grpc.aio.server(
        options=tuple({**dict(OPTIONS), **line, **dict(options)}.items()),
        maximum_concurrent_rpcs=calls_max,
        interceptors=(*interceptors, DecodingChecked()),
    )


def listen(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None = None) -> str:
    """Binds `host:port` before the server starts; port 0 takes a free one. Returns the real `host:port`.

    Without credentials the connections are plain text. Raises OSError if the address cannot be bound.
    """
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {address}: {error}") from None
    if port == 0:
        raise OSError(f"cannot listen on {address}")
    Connections().bound_received(port, RECEIVED_BYTES_MAX)
    return f"{address.rpartition(':')[0]}:{port}"
