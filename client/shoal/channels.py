"""Opens gRPC channels: one for every stream, so that a slow stream never holds up another."""

from __future__ import annotations

from typing import Final

import grpc.aio

from shoal.limits import BACKOFF_MAX_S, KEEPALIVE_S, KEEPALIVE_TIMEOUT_S
from shoal_contract.limits import FRAME_BYTES_MAX, REQUEST_BYTES_MAX

OPTIONS: Final[list[tuple[str, int]]] = [
    ("grpc.max_send_message_length", REQUEST_BYTES_MAX),
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_S * 1000),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_S * 1000),
    ("grpc.http2.max_pings_without_data", 0),
    # Its own connection: otherwise channels of one process would share one, with its backoff and its flow control.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_reconnect_backoff_ms", int(BACKOFF_MAX_S * 1000)),
    ("grpc.enable_retries", 0),
]


def open_channel(address: str) -> grpc.aio.Channel:
    """Opens a channel to host:port. Close it with `async with`."""
    return grpc.aio.insecure_channel(address, options=OPTIONS)
