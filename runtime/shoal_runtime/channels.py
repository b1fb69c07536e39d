"""Opens gRPC channels, for all that calls a server: clients, nodes, commands, and what reaches etcd.

Belongs here: how a channel is encrypted, and what holds for all. Not here: its other options, which are its owner's,
nor closing it. gRPC does not work in a process that was forked from one that uses it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import grpc
import grpc.aio

from shoal_contract.errors import Unavailable

Options = Sequence[tuple[str, int]]

_ALWAYS: Options = (("grpc.enable_http_proxy", 0),)
"""Never goes through a web proxy that the environment names: what is called belongs to the cluster."""
_users: set[int] = set()
"""The pid of the process that opened channels; those of its parents, too, if it was forked from one that did."""


def check_not_forked() -> None:
    """Raises Unavailable in a process that was forked from one that had opened channels: none would work here."""
    if _users - {os.getpid()}:
        raise Unavailable(
            "this process was forked from one that uses shoal, and gRPC does not work in it: start it anew"
            " (multiprocessing.get_context('spawn')), or connect only after the fork",
            subject="fork",
        )


def open_channel(
    address: str, options: Options = (), credentials: grpc.ChannelCredentials | None = None
) -> grpc.aio.Channel:
    """Opens a channel of asyncio to host:port. `credentials` None: it is not encrypted. Its owner closes it."""
    if credentials is None:
        return grpc.aio.insecure_channel(address, _with_own(options))
    return grpc.aio.secure_channel(address, credentials, _with_own(options))


def open_blocking_channel(
    address: str, options: Options = (), credentials: grpc.ChannelCredentials | None = None
) -> grpc.Channel:
    """Opens a channel whose calls block their thread, else as `open_channel`."""
    if credentials is None:
        return grpc.insecure_channel(address, _with_own(options))
    return grpc.secure_channel(address, credentials, _with_own(options))


def _with_own(options: Options) -> Options:
    _users.add(os.getpid())
    return (*options, *_ALWAYS)
