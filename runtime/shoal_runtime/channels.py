"""Opens gRPC channels, for all that calls a server: clients, nodes, commands, and what reaches etcd.

Belongs here: how a channel is encrypted. Not here: its options, which are its owner's, nor closing it.
"""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import grpc.aio

Options = Sequence[tuple[str, int]]


def open_channel(
    address: str, options: Options = (), credentials: grpc.ChannelCredentials | None = None
) -> grpc.aio.Channel:
    """Opens a channel of asyncio to host:port. `credentials` None: it is not encrypted. Its owner closes it."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, options)
    return grpc.aio.secure_channel(address, credentials, options)


def open_blocking_channel(
    address: str, options: Options = (), credentials: grpc.ChannelCredentials | None = None
) -> grpc.Channel:
    """Opens a channel whose calls block their thread, else as `open_channel`."""
    if credentials is None:
        return grpc.insecure_channel(address, options)
    return grpc.secure_channel(address, credentials, options)
