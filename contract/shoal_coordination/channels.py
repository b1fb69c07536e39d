"""Gives every gRPC channel to etcd, blocking or asyncio, its options, and the credentials of the moment.

Belongs here: options, and reading PEM files again when they changed. Does not: choosing endpoints (connection.py,
lease_connection.py).
"""

from __future__ import annotations

import logging
from typing import Any, Final

import grpc

from shoal_contract.errors import Malformed, Unavailable
from shoal_coordination import limits
from shoal_coordination.options import EtcdOptions, PemFiles, Tls
from shoal_coordination.pem import Stamp, read_tls, stamp_of
from shoal_coordination.wire import rpc_pb2 as wire

_log = logging.getLogger(__name__)

CHANNEL_OPTIONS: Final[tuple[tuple[str, Any], ...]] = (
    ("grpc.max_receive_message_length", limits.MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", int(limits.KEEPALIVE_S * 1000)),
    ("grpc.keepalive_timeout_ms", int(limits.SILENCE_S_MAX * 1000)),
    # Each channel connects anew: it shares no broken connection, and no back-off, with an earlier channel.
    ("grpc.use_local_subchannel_pool", 1),
)


def log_in_request(options: EtcdOptions) -> wire.AuthenticateRequest:
    """Returns the login with the current password. Raises Unavailable if the password's file cannot be read now."""
    try:
        return wire.AuthenticateRequest(name=options.user, password=options.password_now())
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"etcd's password cannot be read: {error}", subject=str(options.password_file)) from None


class Credentials:
    """Provides the certificates of one connection's channels, as the files are when a channel is made.

    Files that cannot be read, or do not fit each other, are logged once, and the last good ones stay in use. Not for
    several threads.
    """

    def __init__(self, tls: Tls | PemFiles | None) -> None:
        self._files = tls if isinstance(tls, PemFiles) else None
        self._tls = tls.first if isinstance(tls, PemFiles) else tls
        self._stamp: Stamp | None = None
        """The stamp of the files that were read last."""
        self._complaint = ""
        """The last error logged about files that cannot be used; "" if they can be used."""

    def now(self) -> grpc.ChannelCredentials | None:
        """Returns the credentials for a new channel; None: plain text."""
        if self._files is not None:
            self._read_again(self._files)
        return None if self._tls is None else self._tls.credentials()

    def _read_again(self, files: PemFiles) -> None:
        try:
            if stamp_of(files.paths) != self._stamp:
                self._tls, self._stamp = read_tls(files.ca, files.certificate, files.key)
            self._complaint = ""
        except (OSError, Malformed) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.error(
                    "etcd's new certificate files cannot be used: %s. Connections to etcd are made with the files"
                    " before them, until these end: mend the new files, which are read again at the next connection",
                    error,
                )
